"""The oracle: steps one after another over all keys, and random steps, values and feeds to compare with."""

from __future__ import annotations

import random
import zlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from trueline.run import ERASED, Step
from trueline.run.keys import in_order

KEYS = "abcdef"


class Refused(Exception):
    """What steps here raise."""


@dataclass
class Sequential:
    """What a run must give, whatever its schedule (decision 20)."""

    result: dict[Any, Any] = field(default_factory=dict)
    left_out: set[tuple[int, Any]] = field(default_factory=set)  # skip_key: (step, key)
    skipped: dict[int, set[Any]] = field(default_factory=dict)  # skip_step: step → the keys it failed on
    failed: tuple[int, set[Any]] | None = None  # fail_run: step and the keys it failed on


def run_sequentially(steps: Sequence[Step], inputs: Mapping[Any, Any]) -> Sequential:
    """Run each step over all keys before the next."""
    found = Sequential()
    state = {key: value for key, value in inputs.items() if value is not ERASED}
    for index, step in enumerate(steps):
        state, failed = _one(step, state)
        if failed and step.on_error == "skip_step":
            found.skipped[index] = failed
        elif failed and step.on_error == "skip_key":
            found.left_out |= {(index, key) for key in failed}
        elif failed:
            found.failed = (index, failed)
            return found
    found.result = state
    return found


def sequential(steps: Sequence[Step], inputs: Mapping[Any, Any]) -> dict[Any, Any]:
    """The result alone."""
    return run_sequentially(steps, inputs).result


def _one(step: Step, before: dict[Any, Any]) -> tuple[dict[Any, Any], set[Any]]:
    state, failed = dict(before), set()
    items = []
    for key in in_order(before):
        try:
            if not step.match(key):
                continue
            items.append((key, before[key]))
            if step.kind == "map":
                state[key] = step.map(key, before[key])
            elif step.kind == "flat_map":
                state.update(list(step.flat_map(key, before[key])))
            else:
                writes = list(step.process([(key, before[key])]))
                state.update((dst, value) for source, dst, value in writes if source is not None)
        except Refused:
            failed.add(key)
            state[key] = ERASED
    if step.takes_all:
        good = [item for item in items if item[0] not in failed]
        if good:
            state.update((dst, value) for source, dst, value in step.process(good) if source is None)
    if failed and step.on_error == "skip_step":
        state = before
    return {key: value for key, value in state.items() if value is not ERASED}, failed


# --- random steps ---------------------------------------------------------------------


def dice(*what: Any) -> random.Random | Any:
    """Numbers that are a function of what they are thrown for, in every process."""
    return _Dice(zlib.crc32(repr(what).encode()))


class _Dice:
    def __init__(self, seed: int) -> None:
        self.seed = seed

    def below(self, limit: int) -> int:
        self.seed = (self.seed * 1_103_515_245 + 12_345) & 0x7FFFFFFF
        return (self.seed >> 8) % limit

    def chance(self, share: float) -> bool:
        return self.below(1_000) < share * 1_000


@dataclass
class Kinds:
    """What random steps may do."""

    others: bool = True
    errors: bool = True
    whole: bool = True


def random_step(rng: random.Random, kinds: Kinds) -> Step:
    """A step that is a function of what it is given: it changes, writes other keys, erases or raises."""
    salt, change = rng.randrange(1 << 30), rng.choice((0.0, 0.2, 0.5, 1.0))
    refuse = rng.choice((0.0, 0.0, 0.05, 0.2)) if kinds.errors else 0.0
    options: dict[str, Any] = {
        "eager": rng.random() < 0.7,
        "batch_size": rng.choice((None, 1, 2, 3, -1)),
        "concurrency": rng.choice((None, None, 1, 2)),
        "on_error": rng.choice(("skip_key", "skip_step", "fail_run")) if refuse else "fail_run",
    }
    if rng.random() < 0.3:
        left_out, raises = rng.choice(KEYS), bool(refuse) and rng.random() < 0.3
        options["match"] = _match(left_out, raises=raises)

    def map_(key: Any, value: Any) -> Any:
        thrown = dice(salt, key, value)
        if thrown.chance(refuse):
            raise Refused(key)
        if not thrown.chance(change):
            return value
        return ERASED if thrown.chance(0.15) else value + "xyz"[thrown.below(3)]

    def flat_map(key: Any, value: Any) -> Any:
        thrown = dice(salt, key, value)
        wrong = thrown.chance(refuse)
        if thrown.chance(change):
            for _ in range(thrown.below(3)):
                dst = "abcdefgh"[thrown.below(8)]
                yield dst, ERASED if thrown.chance(0.25) else value + "pqr"[thrown.below(3)]
        if wrong:
            raise Refused(key)

    def process(items: Any) -> Any:
        for key, value in items:
            for dst, made in flat_map(key, value):
                yield key, dst, made
        if together and step.takes_all:
            yield None, "gh"[salt % 2], "".join(value for _, value in items)[:6]

    kind = rng.choice(("map", "map", "flat_map", "process")) if kinds.others else "map"
    together = kinds.whole and rng.random() < 0.5
    step = Step(**{kind: {"map": map_, "flat_map": flat_map, "process": process}[kind]}, **options)
    return step


def _match(left_out: str, *, raises: bool) -> Callable[[Any], bool]:
    def match(key: Any) -> bool:
        if raises and key == left_out:
            raise Refused(key)
        return bool(key != left_out)

    return match


def random_run(seed: int, kinds: Kinds | None = None) -> tuple[list[Step], dict[str, str]]:
    """Steps and values of one schedule."""
    rng = random.Random(seed)
    steps = [random_step(rng, kinds or Kinds(errors=False)) for _ in range(rng.randrange(1, 6))]
    return steps, {key: key.upper() for key in rng.sample(KEYS, rng.randrange(0, len(KEYS) + 1))}


def random_feed(seed: int, inputs: dict[str, str]) -> list[tuple[str, Any, bool]]:
    """The same values as they may come in one by one: revised, taken back, promised to be final."""
    rng = random.Random(-seed)
    fed: list[tuple[str, Any, bool]] = []
    for key, value in inputs.items():
        values = [value, *(value + rng.choice("123") for _ in range(rng.randrange(3)))]
        if rng.random() < 0.15:
            values.append(ERASED)
        rng.shuffle(values)
        fed += [(key, each, False) for each in values]
    rng.shuffle(fed)
    last = {key: place for place, (key, _, _) in enumerate(fed)}
    return [
        (key, value, last[key] == place and rng.random() < 0.5) for place, (key, value, _) in enumerate(fed)
    ]
