"""What a flow's functions are trusted with, tested: to leave their input alone, to need no order."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable
from itertools import islice, permutations
from typing import Any, Final

from trueline.errors import ClaimBroken
from trueline.flow.graph import Node

ORDERS: Final = 24
"""Orders tried per set of elements: all of up to 4; more show little that 24 do not."""


def leaves_input_alone(node: Node, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, refusing to have changed what it was given."""

    def call(*args: Any) -> Any:
        before = [arg if is_fixed(arg) else copied(arg) for arg in args]
        result = fn(*args)
        for arg, was in zip(args, before, strict=True):
            if was is not arg and not alike(was, arg):
                raise ClaimBroken(
                    f"the function of {node} changes what it is given: {was!r} became {arg!r}",
                    remedy="return a new value and leave the old one as it is; others may still read it",
                    node=node,
                    value=was,
                )
        return result

    return call


def is_fixed(value: Any) -> bool:
    """Whether a value cannot change, as far as Python can tell."""
    try:
        hash(value)
    except Exception:  # noqa: BLE001 (a class may refuse to be hashed as it likes)
        return False
    return not _is_plain(value)


def _is_plain(value: Any) -> bool:
    """Whether it is an object of a class that says nothing about equality: it is hashable, and may change."""
    kind: Any = type(value)
    return kind.__hash__ is object.__hash__ and hasattr(value, "__dict__")


def copied(value: Any) -> Any:
    """A copy of a value; itself, where it cannot be copied."""
    try:
        return copy.deepcopy(value)
    except Exception:  # noqa: BLE001 (locks, open files, generators, depth: they raise what they like)
        return value


def alike(a: Any, b: Any) -> bool:
    """Whether two values are equal; NaN is like NaN, and what cannot be compared is not held against it.

    >>> alike([float("nan")], [float("nan")]), alike({"a": 1}, {"a": 2})
    (True, False)
    """
    if a is b:
        return True
    try:
        if bool(a == b):
            return True
    except Exception:  # noqa: BLE001 (arrays have no truth, and __eq__ may raise what it likes)
        return _same_bytes(a, b, otherwise=True)
    if type(a) is not type(b):
        return False
    if isinstance(a, float):
        return a != a and b != b  # noqa: PLR0124 (only NaN differs from itself)
    if isinstance(a, list | tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    if isinstance(a, dict):
        return a.keys() == b.keys() and all(alike(value, b[key]) for key, value in a.items())
    if _is_plain(a):
        return alike(vars(a), vars(b))
    kind: Any = type(a)
    return False if kind.__eq__ is not object.__eq__ else _same_bytes(a, b, otherwise=True)


def _same_bytes(a: Any, b: Any, *, otherwise: bool) -> bool:
    try:
        return pickle.dumps(a) == pickle.dumps(b)
    except Exception:  # noqa: BLE001 (nothing can be told of what cannot be written down)
        return otherwise


def order_makes_no_difference(
    node: Node, into: Callable[[Any, Any], Any], value: Any, items: tuple[Any, ...], begin: Callable[[], Any]
) -> None:
    """Fold the elements in other orders, in two parts, and twice, as was claimed, and compare."""

    def folded(start: Any, order: tuple[Any, ...]) -> Any:
        for x in order:
            start = into(start, x)
        return start

    expected = folded(value, items)
    for order in islice(permutations(items), 1, ORDERS):
        got = folded(value, order)
        if not alike(got, expected):
            raise _broken(node, "is said to be commutative", (items, expected), (order, got))
    if len(items) > ORDERS and not alike(got := folded(value, items[::-1]), expected):
        raise _broken(node, "is said to be commutative", (items, expected), (items[::-1], got))
    merge = node.args.get("merge")
    if merge is not None:
        middle = len(items) // 2
        got = merge(folded(value, items[:middle]), folded(begin(), items[middle:]))
        if not alike(got, expected):
            raise _broken(node, "has a merge that differs from folding", (items, expected), (items, got))
    if node.args.get("idempotent") and not alike(got := folded(expected, items), expected):
        raise _broken(node, "is said to be idempotent", (items, expected), ((*items, *items), got))


def _broken(node: Node, claim: str, one: tuple[Any, Any], other: tuple[Any, Any]) -> ClaimBroken:
    return ClaimBroken(
        f"the function of {node} {claim}, but {list(one[0])!r} gives {one[1]!r}, "
        f"{list(other[0])!r} gives {other[1]!r}",
        remedy="use .assume_ordering(nondet(…)).fold(…), or mend the function",
        node=node,
        value=one[0],
    )
