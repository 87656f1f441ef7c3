"""Who works on one workspace at the same time, step by step: each step is one look or one durable operation.

What decides is the code that ships: `CutPlan` where a cut is, `plan_stops` where a pull stops, `Search` where
datasets agree. Around it datasets are lists of blocks, and what one holds is a term: the definition and the
terms it was made from. So a reading is right if its terms are those of the composed definitions on its cut.

Actors are generators that yield operations; `orders.py` runs them in every order.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.workspace.snapshot.model import ModelBlock, ModelDataset
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutPlan, _joined
from trueline.workspace.cuts.transaction import Intent, IntentState
from trueline.workspace.pull.stops import NOWHERE, plan_stops, related
from trueline.workspace.snapshot.search import NOTHING, Search, consumers_first

Actor = Generator[Callable[["World"], Any], Any, Any]
Look = tuple[ModelBlock, ...]
# root or derived → what it is made from
BANK = {"transfers": (), "fx": (), "credits": ("transfers",), "debits": ("transfers",)}
BANK |= {"balances": ("credits", "debits"), "worth": ("credits", "fx"), "rates": ("fx",)}
MOMENT = Instant(0)


class Wrong(AssertionError):
    """What no schedule may lead to."""


@dataclass
class World:
    """Everything that outlives a process."""

    inputs: Mapping[str, tuple[str, ...]]
    chains: dict[str, Look] = field(default_factory=dict)
    cuts: tuple[Cut, ...] = (Cut(),)
    intents: dict[str, Intent] = field(default_factory=dict)
    pins: dict[str, frozenset[int]] = field(default_factory=dict)
    # Where pulls that are under way have said they bring which datasets.
    going: tuple[tuple[int, tuple[str, ...]], ...] = ()
    removed: frozenset[int] = frozenset()
    put: frozenset[int] = frozenset()
    has_reset: bool = False
    appended: dict[str, int] = field(default_factory=dict)
    # What a transaction appends to, and what it has appended.
    joined: tuple[str, ...] = ()
    halves: dict[str, int] = field(default_factory=dict)
    numbers: dict[Any, int] = field(default_factory=dict, repr=False)
    terms: dict[int, Any] = field(default_factory=dict, repr=False)
    origins: dict[int, Mapping[str, Position]] = field(default_factory=dict, repr=False)

    @property
    def key(self) -> Any:
        """Equal for equal worlds."""
        chains = tuple((name, tuple(b.hash for b in blocks)) for name, blocks in self.chains.items())
        cuts = tuple(frozenset(cut.positions.items()) for cut in self.cuts)
        intents = tuple((n, i.state, tuple(i.roots.items())) for n, i in sorted(self.intents.items()))
        pins = tuple(sorted((who, tuple(sorted(held))) for who, held in self.pins.items()))
        return chains, cuts, intents, pins, self.going, self.removed, self.put, self.has_reset

    def again(self) -> World:
        """Return a copy, to which other things happen; what was made means the same in both."""
        copied = {"chains": dict(self.chains), "intents": dict(self.intents), "pins": dict(self.pins)}
        return replace(self, appended=dict(self.appended), halves=dict(self.halves), **copied)

    def roots(self, name: str) -> frozenset[str]:
        """The roots that a dataset rests on."""
        if not self.inputs[name]:
            return frozenset({name})
        return frozenset().union(*(self.roots(each) for each in self.inputs[name]))

    @property
    def derived(self) -> list[str]:
        """The datasets that are computed, inputs first."""
        return [name for name in consumers_first(self.inputs)[::-1] if self.inputs[name]]

    def block(self, about: Any, offset: int, **what: Any) -> ModelBlock:
        """Make a block; one about the same has the same hash, whenever it is made."""
        number = self.numbers.setdefault(about, len(self.numbers))
        return ModelBlock(number, offset, **what)

    def commit(self, root: str, parts: int = 1) -> int:
        """Append a commit of several blocks to a root; returns the hash of its last."""
        self.appended[root] = self.appended.get(root, 0) + 1
        for part in range(1, parts + 1):
            blocks = self.chains.get(root, ())
            offset = blocks[-1].offset + 1 if blocks else 0
            about = (root, blocks[-1].hash if blocks else None, self.appended[root], part)
            made = self.block(about, offset, is_data=True, is_end=part == parts)
            self.terms[made.hash] = made.hash
            self.swap(root, blocks, (*blocks, made))
        return made.hash

    def define(self, name: str, version: int) -> None:
        """Define a dataset, anew if it was."""
        blocks = self.chains.get(name, ())
        offset = blocks[-1].offset if blocks else NOTHING
        about = (name, "definition", version)
        self.chains[name] = (*blocks, self.block(about, offset, inputs=self.inputs[name]))

    def record(self, cut: Cut) -> bool:
        """Put a cut if its number is free; what cuts promise is looked at here."""
        if cut.number != self.cuts[-1].number + 1:
            return False
        for root, at in cut.positions.items():
            here = {block.hash: place for place, block in enumerate(self.chains[root])}
            if at.block in here and not self.chains[root][here[at.block]].is_end:
                raise Wrong(f"cut {cut.number} is inside of a commit of {root}")
            was = self.cuts[-1].positions.get(root)
            went_back = was is not None and was.block in here and here.get(at.block, -1) < here[was.block]
            if went_back and not self.has_reset:
                raise Wrong(f"cut {cut.number} goes back in {root}")
        self.cuts += (cut,)
        is_named = any("tx" in each.broken for each in self.cuts)
        if not is_named and len({self._shows(cut, root) for root in self.joined}) > 1:
            raise Wrong(f"cut {cut.number} shows a part of a transaction")
        return True

    def _shows(self, cut: Cut, root: str) -> bool:
        here = {block.hash: place for place, block in enumerate(self.chains[root])}
        at, half = cut.positions.get(root), self.halves.get(root)
        return at is not None and half is not None and here[at.block] >= here[half]

    def swap(self, name: str, expected: Look, new: Look) -> bool:
        """Move a head if it is where it was."""
        if self.chains.get(name, ()) != expected:
            return False
        self.chains[name] = new
        self.put |= {new[-1].hash}
        return True


# --- cuts ---------------------------------------------------------------------------------


@dataclass(frozen=True)
class Head:
    """A root as `CutPlan` asks for it."""

    blocks: Look
    is_copy = False

    @property
    def position(self) -> Position | None:
        ends = [block for block in self.blocks if block.is_data and block.is_end]
        return Position(ends[-1].hash, ends[-1].offset) if ends else None  # type: ignore[arg-type]

    def number_of(self, position: Position | None) -> int | None:
        if position is None:
            return NOTHING
        return next((i for i, block in enumerate(self.blocks) if block.hash == position.block), None)

    def time_of(self, _block: object, now: Instant) -> Instant:
        return now


class HeadInside(Head):
    """A mutant: a root that is taken at its newest block but one, whatever that is."""

    @property
    def position(self) -> Position | None:
        last = self.blocks[-2] if len(self.blocks) > 1 else self.blocks[-1]
        return Position(last.hash, last.offset)  # type: ignore[arg-type]


def head(name: str) -> Callable[[World], Look]:
    return lambda world: world.chains[name]


def recording(roots: Iterable[str], mutant: str = "") -> Actor:
    """Record a cut as `CutLog.record` does; returns it."""
    wanted = frozenset(roots)
    while True:
        heads: dict[str, Head] = {}
        if mutant == "heads before the number":
            for root in sorted(wanted):
                heads[root] = Head((yield head(root)))
        last = yield lambda world: world.cuts[-1]
        before = yield lambda world, last=last: settle(world, last)
        for root in sorted(_joined(wanted, before)):  # type: ignore[arg-type]
            if root not in heads:
                kind = HeadInside if mutant == "inside a commit" else Head
                heads[root] = kind((yield head(root)))
        after = before
        if mutant != "intents once":
            after = yield lambda world: dict(world.intents)
        plan = CutPlan.of(last, heads, before, after)  # type: ignore[arg-type]
        cut = plan.cut(MOMENT) if plan.moves else last
        if not plan.moves or (yield lambda world, cut=cut: world.record(cut)):
            if plan.passed:
                yield lambda world, plan=plan: forget(world, plan.passed)
            return cut


def settle(world: World, last: Cut) -> dict[str, Intent]:
    forget(world, last.broken)
    return dict(world.intents)


def forget(world: World, names: Iterable[str]) -> None:
    for name in names:
        world.intents.pop(name, None)


def transaction(*roots: str) -> Actor:
    """Append to roots, which no cut may fall between; each joins before it is appended to."""
    held: dict[str, Position | None] = {}
    for root in roots:
        held[root] = Head((yield head(root))).position
        intent = Intent("tx", dict(held), MOMENT, MOMENT)  # type: ignore[arg-type]
        first = root == roots[0]
        if not (yield lambda world, intent=intent, first=first: _put_intent(world, intent, first=first)):
            return
        yield lambda world, root=root: _append_half(world, root, roots)
    yield lambda world: _put_intent(world, replace(intent, state=IntentState.CLOSED))


def _put_intent(world: World, intent: Intent, *, first: bool = False) -> bool:
    """Put an intent, or change the own one; not if it has expired."""
    there = world.intents.get(intent.id)
    if not first and (there is None or there.state is not IntentState.OPEN):
        return False
    world.intents[intent.id] = intent
    return True


def _append_half(world: World, root: str, roots: tuple[str, ...]) -> None:
    world.joined, world.halves[root] = roots, world.commit(root)


# --- pulls --------------------------------------------------------------------------------


def pulling(graph: World, names: Iterable[str], mutant: str = "", *, rule: bool = True) -> Actor:
    """Pull datasets and what they rest on, as `pull_derived` does."""
    wanted: set[str] = set()
    for name in names:
        wanted |= {name, *upstream(graph, name)}
    order = [name for name in graph.derived if name in wanted]
    # Looks that decide nothing else are one step: there is less to look at.
    definitions = dict(
        (yield lambda world: tuple((name, defined(world.chains[name])) for name in order)),
    )
    target = yield from recording({r for name in order for r in graph.roots(name)}, mutant)
    said, cuts, stops = yield from going(graph, order, target, mutant if rule else "no rule")
    last = max(number for numbers in stops.values() for number in numbers)
    for number, place in sorted((n, order.index(name)) for name in order for n in stops[name]):
        done = yield from follow(graph, order[place], cuts[number], definitions, mutant)
        if not done and number == last:
            break
    if said is not None:
        yield lambda world: say(world, None, said)


def going(graph: World, order: list[str], target: Cut, mutant: str) -> Actor:
    """Say where datasets go, look around and plan the stops, as `going_to` does; the cuts are those known."""
    others = {} if mutant == "no rule" else related({name: graph.roots(name) for name in graph.derived})
    number, before, said = target.number, None, None
    speaks = mutant != "says nothing" and any(others.get(name) for name in order)
    while True:
        if speaks and mutant != "looks before it speaks":
            before, said = said, (number, tuple(order))
            yield lambda world, before=before, said=said: say(world, said, before)
        there = yield lambda world: world.going
        cuts, *looks = yield lambda world: (world.cuts, *(world.chains[name] for name in graph.derived))
        if speaks and mutant == "looks before it speaks":
            before, said = said, (number, tuple(order))
            yield lambda world, before=before, said=said: say(world, said, before)
        at: dict[Any, int] = {}
        for name, look in zip(graph.derived, looks, strict=True):
            at[name] = rests_at(look, graph, cuts[: number + 1]) or rests_at(look, graph, cuts)
        seen = {name: set(others.get(name, ())) for name in order}
        for place, (to, moving) in enumerate(_without(there, said)):
            for name in order:
                if set(moving) & set(others.get(name, ())):
                    seen[name].add(place)
                    at[place] = to
        needed = {each for name in order for each in (name, *seen[name])}
        furthest = max(at[each] for each in needed)
        if furthest <= number or mutant == "goes on for nobody":
            break
        number = furthest
    inputs = {name: [each for each in graph.inputs[name] if each in at] for name in order}
    return said, cuts, plan_stops(at, seen, inputs, order, number)


def say(world: World, said: Any, before: Any = None) -> None:
    """Say where a pull goes, instead of what it has said before."""
    kept = _without(world.going, before)
    world.going = tuple(sorted(kept if said is None else (*kept, said)))


def _without(there: tuple[Any, ...], said: Any) -> tuple[Any, ...]:
    """All that was said but one's own, once."""
    place = there.index(said) if said in there else len(there)
    return (*there[:place], *there[place + 1 :])


def upstream(world: World, name: str) -> set[str]:
    above = {each for each in world.inputs[name] if world.inputs[each]}
    return above.union(*(upstream(world, each) for each in above)) if above else above


def defined(blocks: Look) -> int:
    return blocks[ModelDataset(list(blocks)).definition].hash


def event_at(blocks: Look, origin: Mapping[str, Position], under: Mapping[str, int], world: World) -> Any:
    """The newest transaction that was made from an origin, under definitions."""
    for block in reversed(blocks):
        if block.is_data and world.origins[block.hash] == origin and block.made_under == under:
            return block
    return None


def rests_at(blocks: Look, world: World, cuts: tuple[Cut, ...]) -> int:
    last = next((block for block in reversed(blocks) if block.is_data), None)
    if last is None:
        return NOWHERE
    origin = world.origins[last.hash]
    same = [cut.number for cut in cuts if all(cut.positions.get(r) == at for r, at in origin.items())]
    return same[-1] if same else NOWHERE


def origin_of(world: World, name: str, cut: Cut, definitions: Mapping[str, int]) -> tuple[Any, Any]:
    roots = {root: cut.positions[root] for root in sorted(world.roots(name)) if root in cut.positions}
    under = {each: definitions[each] for each in sorted({name, *upstream(world, name)})}
    return roots, under


def follow(graph: World, name: str, cut: Cut, known: dict[str, int], mutant: str) -> Actor:
    """Bring a dataset to a cut by one transaction; says whether it is there or further."""
    while True:
        own = yield head(name)
        definitions = known | {name: defined(own)}
        looks: dict[str, Look] = {name: own}
        for each in graph.inputs[name]:
            looks[each] = yield head(each)
        if mutant == "origin without definitions" and _is_there(graph, name, cut, own):
            return True
        made = _made(graph, name, cut, definitions, looks)
        if made is None or made is True:
            return bool(made)
        if (yield lambda world, own=own, made=made: world.swap(name, own, (*own, made))):
            return True


def _is_there(world: World, name: str, cut: Cut, own: Look) -> bool:
    """A mutant's look: whether a dataset rests on the roots of a cut, whatever it was made under."""
    last = next((b for b in reversed(own[ModelDataset(list(own)).definition :]) if b.is_data), None)
    return last is not None and world.origins[last.hash] == origin_of(world, name, cut, last.made_under)[0]


def _made(
    world: World, name: str, cut: Cut, definitions: Mapping[str, int], looks: Mapping[str, Look]
) -> ModelBlock | bool | None:
    """The next transaction; True if there is nothing to do, None if an input is not there."""
    own = looks[name]
    origin, under = origin_of(world, name, cut, definitions)
    last = next((b for b in reversed(own[ModelDataset(list(own)).definition :]) if b.is_data), None)
    if last is not None:
        here = {each: {b.hash for b in looks[each]} for each in last.taken}
        if any(block not in here[each] for each, (block, _) in last.taken.items()):
            return None  # an input was reset: a pull refuses
    if last is not None and last.made_under == under:
        before = world.origins[last.hash]
        if before.keys() != origin.keys():
            return None  # so was a root behind one
        if all(at.offset <= origin[root].offset for root, at in before.items()) is False or before == origin:
            return True
    taken, terms = {}, []
    for each in world.inputs[name]:
        blocks = looks[each]
        if world.inputs[each]:
            event = event_at(blocks, *origin_of(world, each, cut, definitions), world)
        else:
            event = next((b for b in blocks if each in origin and b.hash == origin[each].block), None)
        if event is None:
            return None
        taken[each] = (event.hash, event.offset)
        terms.append(world.terms[event.hash])
    term = (name, definitions[name], tuple(terms))
    offset = own[-1].offset + 1
    about = (own[-1].hash, term, tuple(origin.items()), tuple(under.items()))
    made = world.block(about, offset, is_data=True, taken=taken, made_under=under)
    world.terms[made.hash], world.origins[made.hash] = term, origin
    return made


# --- readers ------------------------------------------------------------------------------


def agreeing(graph: World, names: Iterable[str], mutant: str = "") -> Actor:
    """Find where datasets agree: the looks, and the event of each; None where there is no common cut."""
    closure: set[str] = set()
    for name in names:
        closure |= {name, *upstream(graph, name), *graph.roots(name)}
    looks: dict[str, Look] = {}
    for name in consumers_first({name: graph.inputs[name] for name in closure}):
        looks[name] = yield head(name)
    histories = {name: ModelDataset(list(blocks)) for name, blocks in looks.items()}
    if mutant == "heads":
        found = {name: history.readable() for name, history in histories.items()}
    else:
        found = Search(histories).run(dict.fromkeys(names))
    if any(found[name] == NOTHING for name in names):
        return None
    return looks, found


def reading(graph: World, names: tuple[str, ...], times: int = 1, mutant: str = "") -> Actor:
    """Read snapshots, held against `gc`, and compare each with the composed definitions on its own cut."""
    last: dict[str, int] = {}
    for number in range(times):
        who = f"reader {number}"
        while True:
            found = yield from agreeing(graph, names, mutant)
            if found is None:
                return
            looks, at = found
            blocks = {name: looks[name][number] for name, number in at.items()}
            held = frozenset(blocks[name].hash for name in names)
            if mutant != "no lease":
                yield lambda world, held=held, who=who: world.pins.update({who: held})
            if mutant in ("no lease", "lease not checked"):
                break
            stays = yield lambda world, blocks=blocks: all(
                any(b.hash == blocks[name].hash for b in world.chains[name]) for name in names
            )
            if stays:
                break
            yield lambda world, who=who: world.pins.pop(who, None)
        for name in names:
            yield lambda world, block=blocks[name]: _read(world, block.hash)
        _compare(graph, names, blocks, looks)
        cut = {name: blocks[name].offset for name in blocks if not graph.inputs[name]}
        has_reset = yield lambda world: world.has_reset
        if not has_reset and any(cut[root] < offset for root, offset in last.items()):
            raise Wrong(f"a snapshot went back from {last} to {cut}")
        last = cut
        yield lambda world, who=who: world.pins.pop(who, None)


def _read(world: World, block: int) -> None:
    if block in world.removed:
        raise Wrong("what an open snapshot reads was collected")


def _compare(
    world: World, names: Iterable[str], blocks: Mapping[str, ModelBlock], looks: Mapping[str, Look]
) -> None:
    def composed(name: str) -> Any:
        if not world.inputs[name]:
            return blocks[name].hash
        return (name, defined(looks[name]), tuple(composed(each) for each in world.inputs[name]))

    for name in names:
        if world.terms[blocks[name].hash] != composed(name):
            raise Wrong(f"{name} does not show what its definition makes of the cut: a torn reading")


def waiting(graph: World, root: str, names: tuple[str, ...], mutant: str = "") -> Actor:
    """Append, wait until it is visible, and let somebody else read after that."""
    commit = yield lambda world: world.commit(root)
    for _ in range(2):
        if mutant == "ack at the cut":
            cut = yield lambda world: world.cuts[-1]
            is_visible = root in cut.positions and cut.positions[root].block == commit
        else:
            found = yield from agreeing(graph, names)
            is_visible = found is not None and _includes(found, root, commit)
        if is_visible:
            found = yield from agreeing(graph, names)
            if found is None or not _includes(found, root, commit):
                raise Wrong("a commit was acknowledged, and a reader does not see it")
            return


def _includes(found: tuple[Mapping[str, Look], Mapping[str, int]], root: str, commit: int) -> bool:
    looks, at = found
    return any(block.hash == commit for block in looks[root][: at[root] + 1])


def resetting(root: str, commits: int) -> Actor:
    """Cut the end of a root off."""

    def reset(world: World) -> None:
        world.chains[root], world.has_reset = world.chains[root][:-commits], True

    yield reset


def collecting(mutant: str = "") -> Actor:
    """Remove what nothing refers to, as `gc` does: objects are listed, then heads, then pins are read."""
    listed = yield lambda world: world.put
    heads = yield lambda world: frozenset(b.hash for blocks in world.chains.values() for b in blocks)
    pins = frozenset()
    if mutant != "pins are not read":
        pins = yield lambda world: frozenset().union(*world.pins.values())
    gone = listed - heads - pins
    yield lambda world: setattr(world, "removed", world.removed | gone)
