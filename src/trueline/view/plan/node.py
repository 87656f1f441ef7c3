"""What a view is made of: immutable nodes, each with its columns known, read piece by piece."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

from trueline.kernel.pieces import Piece
from trueline.view.bounds import Interval
from trueline.view.origin import Origin, united

if TYPE_CHECKING:
    from trueline.view.schema import Schema


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


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked of a node: columns by their places in its schema, each once, in the order wanted.

    `bounds` are hints, by column: rows outside of them will not be missed, so
    whoever counts or orders rows must not hand them on. `parts` is how many
    pieces a reader would like to have, 0 for no opinion (view:C60).
    """

    columns: tuple[int, ...]
    ids: bool = False
    bounds: Mapping[int, Interval] = field(default_factory=dict)
    parts: int = 0

    def __hash__(self) -> int:
        return hash((self.columns, self.ids, self.parts))

    def of(self, columns: Sequence[int], *, ids: bool | None = None) -> Want:
        """Return it for other columns, with no bounds."""
        return Want(tuple(columns), self.ids if ids is None else ids, {}, self.parts)

    def within(self, bounds: Mapping[int, Interval]) -> Want:
        """Return it with bounds added to those there are."""
        both = {key: self.bounds.get(key, Interval()) & each for key, each in bounds.items()}
        return replace(self, bounds={**self.bounds, **both})


class Node(ABC):
    """Something with columns and rows, made of other such things down to its sources.

    Nodes are values: they read nothing when they are made, and any number of
    readers may read one at once (view:C25, view:C28).
    """

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns; the same object each time (view:C1)."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """What it is made of."""
        return ()

    @property
    def row_count(self) -> int | None:
        """How many rows there are, None if that takes reading; a number never changes (view:C29)."""
        return None

    @property
    @once_a_walk
    def can_shuffle(self) -> bool:
        """Whether a seed changes the order of rows (view:C81)."""
        return all(each.can_shuffle for each in self.inputs)

    @property
    @once_a_walk
    def origins(self) -> Mapping[str, Origin]:
        """The datasets it rests on, by name; a second commit of one as `name@commit`."""
        return united(each.origins for each in self.inputs)

    @property
    def serial(self) -> str | None:
        """Why it comes in one piece whatever a reader would like, None if it does not (view:C71)."""
        return None

    @property
    @once_a_walk
    def portable(self) -> bool:
        """Whether its pieces can be read in other processes."""
        return all(each.portable for each in self.inputs)

    @property
    @abstractmethod
    def title(self) -> str:
        """What it does, in a line."""

    def wants(self, want: Want) -> tuple[Want, ...]:
        """Say what it asks of its inputs to give what is wanted (view:C35)."""
        return ()

    def passed(self, column: int) -> tuple[int, int] | None:
        """Say which column of which input a column *is*; None if it is made here."""
        return None

    @abstractmethod
    def pieces(self, want: Want) -> Sequence[Piece]:
        """Return the rows in order as pieces; none if there are no rows."""

    def source_of(self, column: int) -> tuple[Node, int]:
        """Follow a column down to the node that makes it."""
        found = self.passed(column)
        if found is None:
            return self, column
        which, below = found
        return self.inputs[which].source_of(below)


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
