"""The oracle: steps one after another over all keys, and random steps to compare with."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import Any

from trueline.run import ERASED, Step
from trueline.run.line import in_order

KEYS = "abcdef"


def sequential(steps: Sequence[Step], inputs: Mapping[Any, Any]) -> dict[Any, Any]:
    """What a run must give, whatever its schedule (decision 20)."""
    state = dict(inputs)
    for step in steps:
        before = dict(state)
        for key in in_order(before):
            if not step.match(key):
                continue
            if step.kind == "map":
                state[key] = step.map(key, before[key])
            elif step.kind == "flat_map":
                state.update(step.flat_map(key, before[key]))
            else:
                state.update((dst, value) for _, dst, value in step.process([(key, before[key])]))
        state = {key: value for key, value in state.items() if value is not ERASED}
    return state


def random_step(rng: random.Random, *, maps_only: bool = False) -> Step:
    """A step that is a function of what it is given: it changes, writes other keys, or erases by a hash."""
    salt, change = rng.randrange(1 << 30), rng.choice((0.0, 0.2, 0.5, 1.0))
    options: dict[str, Any] = {
        "eager": rng.random() < 0.7,
        "batch_size": rng.choice((None, 1, 2, 3, -1)),
        "concurrency": rng.choice((None, None, 1, 2)),
    }
    if rng.random() < 0.3:
        left_out = rng.choice(KEYS)
        options["match"] = lambda key: key != left_out

    def roll(*what: Any) -> random.Random:
        return random.Random(repr((salt, *what)))

    def map_(key: Any, value: Any) -> Any:
        dice = roll(key, value)
        if dice.random() >= change:
            return value
        return ERASED if dice.random() < 0.15 else f"{value}{dice.choice('xyz')}"

    def flat_map(key: Any, value: Any) -> Any:
        dice = roll(key, value)
        if dice.random() < change:
            for _ in range(dice.randrange(3)):
                dst = dice.choice(KEYS + "gh")
                yield dst, ERASED if dice.random() < 0.25 else f"{value}{dice.choice('pqr')}"

    def process(items: Any) -> Any:
        for key, value in items:
            for dst, made in flat_map(key, value):
                yield key, dst, made

    kind = "map" if maps_only else rng.choice(("map", "map", "flat_map", "process"))
    return Step(**{kind: {"map": map_, "flat_map": flat_map, "process": process}[kind]}, **options)


def random_run(seed: int, *, maps_only: bool = False) -> tuple[list[Step], dict[str, str]]:
    """Steps and values of one schedule."""
    rng = random.Random(seed)
    steps = [random_step(rng, maps_only=maps_only) for _ in range(rng.randrange(1, 6))]
    return steps, {key: key.upper() for key in rng.sample(KEYS, rng.randrange(0, len(KEYS) + 1))}
