"""Observation points: where a flow takes a piece of what has arrived, and how much is chance.

Each hook holds what has arrived on the asynchronous side and hands a part of it to a tick. A decision is
one number: 0 is the eager choice (everything, the newest version), the last one holds everything back.
All state is immutable values in numbered slots, so that a whole machine is copied by copying one list.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

from trueline.flow.graph import FlowNode
from trueline.flow.markers import ABSENT, NOTHING

Choose = Callable[[int, Any], int]
"""`choose(n, what)` picks one of n ≥ 2 ways; 0 is the eager one."""

# Above it the ways to take parts are not numbered at once but part by part: 2^12 is one draw, 2^40 is not.
ONE_DRAW: Final = 4096


def take_parts(sizes: list[int], choose: Choose, what: Any, force: bool) -> list[int]:
    """How many to take of each part: of every part all, some or none; `force`: not none of all."""
    total = 1
    for size in sizes:
        total *= size + 1
        if total > ONE_DRAW:
            return _take_many(sizes, choose, what, force)
    if force:
        total -= 1
    code = choose(total, what) if total > 1 else 0
    taken = []
    for size in sizes:
        code, held = divmod(code, size + 1)
        taken.append(size - held)
    return taken


def _take_many(sizes: list[int], choose: Choose, what: Any, force: bool) -> list[int]:
    """The same for many parts: all, some, or none, and then part by part."""
    way = choose(2 if force else 3, what)
    if way == 0:
        return list(sizes)
    if way == 2:
        return [0] * len(sizes)
    if len(sizes) == 1:  # neither all nor none of one long part
        return [sizes[0] - 1 - (choose(sizes[0] - 1, what) if sizes[0] > 2 else 0)]
    taken: list[int] = []
    for number, size in enumerate(sizes):
        low, high = 0, size
        if number == len(sizes) - 1:  # all and none are other ways
            low = 1 if not any(taken) else 0
            high = size - 1 if taken == sizes[:-1] else size
        span = high - low + 1
        taken.append(high - (choose(span, what) if span > 1 else 0))
    return taken


@dataclass(eq=False)
class Hook:
    """One observation point, bound to its slot and to the wire it hands over on."""

    node: FlowNode
    source: FlowNode
    member: int
    slot: int
    out: int
    entry: bool
    """Whether it hands changes to a region, not a value to a tick."""
    newest: bool = False
    """Whether older versions need no exploring: the choice was made just before it."""

    @property
    def initial(self) -> Any:
        """What the slot holds before anything has arrived."""
        return (0, ())

    def put(self, s: list[Any], new: tuple[Any, ...]) -> None:
        """Add what has arrived."""
        taken, items = s[self.slot]
        s[self.slot] = (taken, items + new)

    def ready(self, s: list[Any]) -> bool:
        """Whether a tick that reads it can run at all."""
        return True

    def active(self, s: list[Any]) -> bool:
        """Whether it has something new."""
        return bool(s[self.slot][1])

    def hold(self, s: list[Any], w: list[Any]) -> None:
        """Hand over nothing new."""
        w[self.out] = ()

    def take(self, s: list[Any], w: list[Any], choose: Choose, force: bool) -> bool:
        """Choose what to hand over, of what is new; says whether it was anything."""
        raise NotImplementedError

    def position(self, s: list[Any]) -> Any:
        """The cut: how much has been handed over."""
        return s[self.slot][0]

    def waiting(self, s: list[Any]) -> tuple[Any, ...]:
        """What has arrived and was not handed over."""
        return tuple(s[self.slot][1])


class PrefixHook(Hook):
    """An ordered stream: the next so many elements."""

    def take(self, s: list[Any], w: list[Any], choose: Choose, force: bool) -> bool:
        taken, items = s[self.slot]
        size = len(items)
        ways = size if force else size + 1
        here = size - (choose(ways, self) if ways > 1 else 0)
        w[self.out] = items[:here]
        s[self.slot] = (taken + here, items[here:])
        return here > 0


class SubsetHook(Hook):
    """An unordered stream: any of the elements, in whatever order."""

    def take(self, s: list[Any], w: list[Any], choose: Choose, force: bool) -> bool:
        taken, items = s[self.slot]
        picked = take_parts([1] * len(items), choose, self, force)
        w[self.out] = tuple([item for item, yes in zip(items, picked, strict=True) if yes])
        s[self.slot] = (
            taken + sum(picked),
            tuple([i for i, yes in zip(items, picked, strict=True) if not yes]),
        )
        return any(picked)


class KeyedHook(Hook):
    """A keyed stream: of every key the next so many elements (A35)."""

    def take(self, s: list[Any], w: list[Any], choose: Choose, force: bool) -> bool:
        taken, items = s[self.slot]
        sizes: dict[Any, int] = {}
        for key, _ in items:
            sizes[key] = sizes.get(key, 0) + 1
        left = dict(zip(sizes, take_parts(list(sizes.values()), choose, self, force), strict=True))
        count = sum(left.values())
        now, later = [], []
        for item in items:
            if left[item[0]]:
                left[item[0]] -= 1
                now.append(item)
            else:
                later.append(item)
        w[self.out] = tuple(now)
        s[self.slot] = (taken + count, tuple(later))
        return count > 0


class ValueHook(Hook):
    """A live value: the version shown before, or any newer one; versions in between are skipped."""

    @property
    def initial(self) -> Any:
        return (0, (), NOTHING)

    def put(self, s: list[Any], new: tuple[Any, ...]) -> None:
        taken, items, shown = s[self.slot]
        if self.newest:
            s[self.slot] = (taken + len(items) + len(new) - 1, new[-1:], shown)
        else:
            s[self.slot] = (taken, items + new, shown)

    def ready(self, s: list[Any]) -> bool:
        _, items, shown = s[self.slot]
        return bool(items) or shown is not NOTHING

    def hold(self, s: list[Any], w: list[Any]) -> None:
        w[self.out] = () if self.entry else s[self.slot][2]

    def take(self, s: list[Any], w: list[Any], choose: Choose, force: bool) -> bool:
        taken, items, shown = s[self.slot]
        size = len(items)
        ways = size if force or shown is NOTHING or self.newest else size + 1
        here = size - (choose(ways, self) if ways > 1 else 0)
        if here == 0:
            self.hold(s, w)
            return False
        value = items[here - 1]
        w[self.out] = (value,) if self.entry else value
        s[self.slot] = (taken + here, items[here:], value)
        return True


class KeyedValueHook(Hook):
    """A live map: of every key the version shown before, or any newer one."""

    @property
    def initial(self) -> Any:
        return (0, (), {})

    def put(self, s: list[Any], new: tuple[Any, ...]) -> None:
        taken, items, shown = s[self.slot]
        s[self.slot] = (taken, items + new, shown)

    def hold(self, s: list[Any], w: list[Any]) -> None:
        w[self.out] = () if self.entry else s[self.slot][2]

    def take(self, s: list[Any], w: list[Any], choose: Choose, force: bool) -> bool:
        taken, items, shown = s[self.slot]
        versions: dict[Any, list[Any]] = {}
        for key, value in items:
            versions.setdefault(key, []).append(value)
        sizes = [len(each) for each in versions.values()]
        left = dict(zip(versions, take_parts(sizes, choose, self, force), strict=True))
        new = tuple([(key, versions[key][count - 1]) for key, count in left.items() if count])
        count = sum(left.values())
        later = []
        for item in items:
            if left[item[0]]:
                left[item[0]] -= 1
            else:
                later.append(item)
        shown = updated(shown, new)
        w[self.out] = new if self.entry else shown
        s[self.slot] = (taken + count, tuple(later), shown)
        return count > 0


def updated(shown: dict[Any, Any], changes: tuple[tuple[Any, Any], ...]) -> dict[Any, Any]:
    """A map with some keys changed; the old one stays as it was."""
    if not changes:
        return shown
    new = dict(shown)
    for key, value in changes:
        if value is ABSENT:
            new.pop(key, None)
        else:
            new[key] = value
    return new


def hook_class(source: FlowNode) -> type[Hook]:
    """The hook that fits a collection."""
    if source.shape == "stream":
        return PrefixHook if source.ordered else SubsetHook
    if source.shape == "keyed stream":
        return KeyedHook if source.ordered else SubsetHook
    return KeyedValueHook if source.shape == "keyed singleton" else ValueHook
