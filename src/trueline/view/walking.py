"""Walks over the nodes of a view, which may share what they are made of.

`v.concat(v)`, done forty times over, has forty-one nodes and more ways through them than can be gone. So
what a walk has learnt of a node it remembers until it ends; not longer, since the next one may learn more
(how many rows there are is known once they were read).
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

if TYPE_CHECKING:
    from trueline.view.node import Node

N = TypeVar("N")
P = ParamSpec("P")
T = TypeVar("T")


class _Walk(threading.local):
    """What the walk of this thread has learnt; None between walks."""

    # Nodes stand beside their answers, so that none is dropped and its identity given to another.
    known: dict[tuple[Any, ...], tuple[object, Any]] | None = None


_walk = _Walk()


def once_a_walk(ask: Callable[Concatenate[N, P], T]) -> Callable[Concatenate[N, P], T]:
    """Answer a question to a node once in a walk, which is whatever the first such question asks in turn.

    For nodes that several others may rest on, and questions they hand to all their inputs.
    """

    @wraps(ask)
    def asked(node: N, /, *args: P.args, **named: P.kwargs) -> T:
        known = _walk.known
        if known is None:
            _walk.known = {}
            try:
                return asked(node, *args, **named)
            finally:
                _walk.known = None
        key = (id(node), ask, *args, *sorted(named.items()))
        if key not in known:
            known[key] = node, ask(node, *args, **named)
        found: T = known[key][1]
        return found

    return asked


def steps(node: Node) -> Iterator[Node]:
    """Yield the nodes of a view, each once, what it is made of before it."""
    seen: set[int] = set()

    def walk(each: Node) -> Iterator[Node]:
        if id(each) in seen:
            return
        seen.add(id(each))
        for below in each.inputs:
            yield from walk(below)
        yield each

    return walk(node)
