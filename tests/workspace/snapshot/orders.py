"""Actors in every order: each state is looked at once, whichever orders lead to it."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from random import Random
from typing import Any

from tests.workspace.snapshot.model import ModelBlock
from tests.workspace.snapshot.protocol import Actor, World, Wrong
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.transaction import IntentState
from trueline.workspace.snapshot.search import NOTHING


@dataclass
class Explored:
    """How much was looked at: states that differ, and ends of schedules."""

    states: int = 0
    ends: int = 0


class Schedule:
    """Actors in a world, under choices: `(actor, what)`, where what is "step", "dies" or "expires"."""

    def __init__(self, world: World, actors: Iterable[Actor], crashes: int) -> None:
        self.world, self.crashes = world, crashes
        self.actors = list(actors)
        self.next: list[Any] = [next(actor, None) for actor in self.actors]
        self.seen: list[int] = [0] * len(self.actors)

    @property
    def choices(self) -> list[tuple[int, str]]:
        alive = [(number, "step") for number, each in enumerate(self.next) if each is not None]
        if not alive:
            return []
        dying = [(number, "dies") for number, _ in alive if self.crashes and self.seen[number]]
        over = any(i.state is IntentState.OPEN for i in self.world.intents.values()) and not self.crashes
        return alive + dying + [(NOTHING, "expires")] * over

    def take(self, choice: tuple[int, str]) -> None:
        number, what = choice
        if what == "dies":
            self.next[number], self.crashes = None, self.crashes - 1
        elif what == "expires":
            expire(self.world)
        else:
            answer = self.next[number](self.world)
            self.seen[number] = hash((self.seen[number], self.next[number].__code__, canonical(answer)))
            try:
                self.next[number] = self.actors[number].send(answer)
            except StopIteration:
                self.next[number] = None

    @property
    def key(self) -> Any:
        alive = tuple(each is not None for each in self.next)
        return self.world.key, tuple(self.seen), alive, self.crashes


def expire(world: World) -> None:
    """Let the time of open transactions be over."""
    for name, intent in world.intents.items():
        if intent.state is IntentState.OPEN:
            world.intents[name] = replace(intent, state=IntentState.BROKEN)


def canonical(answer: Any) -> Any:
    """Return what stands for an answer: equal ones let an actor go on equally."""
    if isinstance(answer, Cut):
        return answer.number, frozenset(answer.positions.items()), answer.broken
    if isinstance(answer, tuple):
        return tuple(canonical(each) for each in answer)
    if isinstance(answer, ModelBlock):
        return answer.hash
    if isinstance(answer, dict):
        return tuple((name, each.state, tuple(each.roots.items())) for name, each in sorted(answer.items()))
    return answer


def schedules(
    world: World,
    cast: Callable[[World], Iterable[Actor]],
    at_end: Callable[[World], object],
    *,
    crashes: int = 0,
    most: int = 400_000,
) -> Explored:
    """Run actors in every order, up to states that were seen; `at_end` looks at what each order leaves."""
    known: set[int] = set()
    waiting: list[list[tuple[int, str]]] = [[]]
    found = Explored()
    while waiting:
        taken = waiting.pop()
        run = Schedule(world.again(), cast(world), crashes)
        try:
            for choice in taken:
                run.take(choice)
            while (key := hash(run.key)) not in known:
                known.add(key)
                assert len(known) < most, "too much to look at all of it"
                if not (choices := run.choices):
                    found.ends += 1
                    at_end(run.world)
                    break
                waiting += [[*taken, other] for other in choices[1:]]
                taken = [*taken, choices[0]]
                run.take(choices[0])
        except Wrong as wrong:
            wrong.add_note(f"after {taken}")
            raise
    found.states = len(known)
    return found


def one_of_them(
    world: World,
    cast: Callable[[World], Iterable[Actor]],
    at_end: Callable[[World], object],
    *,
    chance: Random,
    crashes: int = 0,
) -> None:
    """Run actors in one order that chance chooses, where there are too many to look at all of them."""
    taken: list[tuple[int, str]] = []
    run = Schedule(world.again(), cast(world), crashes)
    try:
        while choices := run.choices:
            # Deaths are rare, or nobody gets anywhere.
            alive = [choice for choice in choices if choice[1] != "dies"]
            taken.append(chance.choice(choices if chance.random() < 0.05 else alive))
            run.take(taken[-1])
        at_end(run.world)
    except Wrong as wrong:
        wrong.add_note(f"after {taken}")
        raise


def finish(world: World, actor: Actor) -> Any:
    """Let one actor do all it does, undisturbed."""
    try:
        step = next(actor)
        while True:
            step = actor.send(step(world))
    except StopIteration as done:
        return done.value
