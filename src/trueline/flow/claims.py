"""What a flow's functions are trusted with, tested: to leave their input alone, to need no order."""

from __future__ import annotations

from collections.abc import Callable
from itertools import islice, permutations
from typing import Any, Final

from trueline.errors import ClaimBroken
from trueline.flow.graph import FlowNode
from trueline.flow.values import alike, copied, is_fixed

ORDERS: Final = 24
"""Orders tried per set of elements: all of up to 4; more show little that 24 do not."""


def leaves_input_alone(node: FlowNode, fn: Callable[..., Any]) -> Callable[..., Any]:
    """The function, refusing to have changed what it was given."""

    def call(*args: Any) -> Any:
        before = [arg if is_fixed(arg) else copied(arg) for arg in args]
        result = fn(*args)
        for arg, was in zip(args, before, strict=True):
            if was is not arg and not alike(was, arg):
                raise ClaimBroken(
                    f"the function of {node} changes its input: {was!r} became {arg!r}",
                    remedy="return a new value and leave the old one as it is; others may still read it",
                    node=node,
                    value=was,
                )
        return result

    return call


def order_makes_no_difference(
    node: FlowNode,
    into: Callable[[Any, Any], Any],
    value: Any,
    items: tuple[Any, ...],
    begin: Callable[[], Any],
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


def _broken(node: FlowNode, claim: str, one: tuple[Any, Any], other: tuple[Any, Any]) -> ClaimBroken:
    return ClaimBroken(
        f"the function of {node} {claim}, but {list(one[0])!r} gives {one[1]!r}, "
        f"{list(other[0])!r} gives {other[1]!r}",
        remedy="use .assume_ordering(nondet(…)).fold(…), or fix the function",
        node=node,
        value=one[0],
    )
