"""What a view does: immutable nodes that know their columns and what they ask of their inputs.

Nodes may share what they are made of: `v.concat(v)`, done forty times over, has forty-one nodes and more ways
through them than can be gone. So what a walk has learnt of a node it remembers until it ends; not longer,
since the next one may learn more (how many rows there are is known once they were read).

How rows are made is not known here: `trueline.view.execute` does it in this process, by a node's class.
"""

from __future__ import annotations

import enum
import hashlib
import secrets
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields, is_dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any, Concatenate, Final, Generic, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import pyarrow as pa

from trueline import types as t
from trueline.view.origin import Origin, united

if TYPE_CHECKING:
    from trueline.view.schema import Schema

N = TypeVar("N")
P = ParamSpec("P")
T = TypeVar("T")


class _Walk(threading.local):
    """What the walk of this thread has learnt; None between walks."""

    # Nodes are kept beside their answers, so that none is dropped and its identity given to another.
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


# --- what is asked of a node -----------------------------------------------------------------

# Bounds are ranges of columns outside of which no row will be missed: hints, which may be wider than a filter
# and never narrower. Times and dates count in nanoseconds since 1970, whatever unit a column is stored with.
_NANOSECONDS: Final = {"s": 1_000_000_000, "ms": 1_000_000, "us": 1_000, "ns": 1}
DAY: Final = 86_400 * 1_000_000_000


@dataclass(frozen=True, slots=True)
class Interval:
    """Values from `low` to `high`, both included; None means no bound.

    >>> Interval(1, 5) & Interval(3, None), Interval(1, 2).meets(3, 9), Interval().meets(3, 9)
    (Interval(low=3, high=5), False, True)
    """

    low: int | None = None
    high: int | None = None

    def __and__(self, other: Interval) -> Interval:
        lows = [low for low in (self.low, other.low) if low is not None]
        highs = [high for high in (self.high, other.high) if high is not None]
        return Interval(max(lows, default=None), min(highs, default=None))

    def meets(self, low: int, high: int) -> bool:
        """Say whether a value from `low` to `high` can be in it."""
        return (self.low is None or self.low <= high) and (self.high is None or low <= self.high)


Bounds = Mapping[str, Interval]
# A plain dictionary: bounds travel to tasks in other processes.
NO_BOUNDS: Final[Bounds] = {}


def both(one: Bounds, other: Bounds) -> Bounds:
    """Return what both rule out together."""
    names = dict.fromkeys((*one, *other))
    return {name: one.get(name, Interval()) & other.get(name, Interval()) for name in names}


def step_of(kind: pa.DataType) -> int | None:
    """Return how much one unit of a stored value counts here, None for types without bounds.

    >>> step_of(pa.timestamp("ms", "UTC")), step_of(pa.int32()), step_of(pa.string())
    (1000000, 1, None)
    """
    if pa.types.is_timestamp(kind):
        return _NANOSECONDS[kind.unit]
    if pa.types.is_date32(kind):
        return DAY
    if pa.types.is_date64(kind):
        return _NANOSECONDS["ms"]
    return 1 if pa.types.is_integer(kind) else None


@dataclass(frozen=True, slots=True)
class Want:
    """What is asked of a node: columns by their places in its schema, each once, in the order wanted.

    `bounds` are hints, by column: rows outside of them will not be missed, so
    a node that counts or orders rows must not hand them on. `parts` is how many
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
        if not bounds:
            return self
        both = {key: self.bounds.get(key, Interval()) & each for key, each in bounds.items()}
        return replace(self, bounds={**self.bounds, **both})


# --- what a node is --------------------------------------------------------------------------


class IdRule(enum.Enum):
    """How the ids of a node's rows follow from those of its inputs (view:C77)."""

    ORDINAL = "the row's number in the source, or what its ordinal column says"
    UNCHANGED = "that of the input's row"
    FIRST_ROW = "that of the first row of the group"
    FIRST_INPUT = "that of the first input's row"
    CONCAT = "id.combine(RowId(i)) for the i-th input"
    JOIN = "left.combine(right), all ones for a side without a row"
    FORK = "id.fork(), the next of that, and so on"
    DRAW = "id.combine(RowId(k)) for the k-th time a row is drawn"


@dataclass(frozen=True, eq=False)
class Node(ABC):
    """Something with columns and rows, made of other such things down to its sources.

    Nodes are values that are compared by identity: they read nothing, and any
    number of readers may read one at once (view:C25, view:C28).
    """

    @property
    @abstractmethod
    def schema(self) -> Schema:
        """The columns; the same object each time (view:C1)."""

    @property
    @abstractmethod
    def inputs(self) -> tuple[Node, ...]:
        """What it is made of."""

    @property
    @abstractmethod
    def title(self) -> str:
        """What it does, in a line."""

    @property
    def id_rule(self) -> IdRule:
        """How the ids of its rows are made (view:C77)."""
        return IdRule.UNCHANGED

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """Say how many rows there are if its inputs have so many, None if that takes reading (view:C31)."""
        del counts
        return None

    @property
    @once_a_walk
    def row_count(self) -> int | None:
        """How many rows there are, None if that takes reading; a number never changes (view:C29)."""
        return self.count_rows([each.row_count for each in self.inputs])

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
        """Why it comes in one piece whatever a reader would like, None if it need not (view:C71)."""
        return None

    @abstractmethod
    def wants(self, want: Want) -> tuple[Want, ...]:
        """Say what it asks of its inputs to give what is wanted (view:C35)."""

    def passed(self, column: int) -> tuple[int, int] | None:
        """Say which column of which input a column *is*; None if it is made here."""
        del column
        return None

    def source_of(self, column: int) -> tuple[Node, int]:
        """Follow a column down to the node that makes it."""
        found = self.passed(column)
        if found is None:
            return self, column
        which, below = found
        return self.inputs[which].source_of(below)

    @property
    def key(self) -> str:
        """A digest of its class, its parameters and the keys of its inputs; the same each time."""
        if "_key" not in self.__dict__:
            said = "\n".join([type(self).__qualname__, *self._parameters()])
            # Of several threads the first sets it, for all of them: that of a source is drawn by chance.
            self.__dict__.setdefault("_key", hashlib.blake2b(said.encode(), digest_size=16).hexdigest())
        key: str = self.__dict__["_key"]
        return key

    def _parameters(self) -> Iterator[str]:
        for each in fields(self):
            yield f"{each.name}={described(getattr(self, each.name))}"

    def __getstate__(self) -> dict[str, Any]:
        # A copy elsewhere does the same, so it has the same key.
        return {**self.__dict__, "_key": self.key}


@dataclass(frozen=True, eq=False)
class SourceNode(Node):
    """A node that is made of no other; two of them are never known to have the same rows."""

    @property
    def inputs(self) -> tuple[Node, ...]:
        """None."""
        return ()

    @property
    def id_rule(self) -> IdRule:
        """Rows are numbered."""
        return IdRule.ORDINAL

    def wants(self, want: Want) -> tuple[Want, ...]:
        """Nothing, of nobody."""
        del want
        return ()

    @property
    def can_shuffle(self) -> bool:
        """Sources can be read again and again."""
        return True

    @property
    def origins(self) -> Mapping[str, Origin]:
        """None, unless it knows better."""
        return {}

    def _parameters(self) -> Iterator[str]:
        yield secrets.token_hex(16)


@dataclass(frozen=True, eq=False)
class OneInput(Node):
    """A node over one other: unless it says otherwise it has its columns, ids and number of rows."""

    below: Node

    @property
    def inputs(self) -> tuple[Node, ...]:
        """One."""
        return (self.below,)

    @property
    def schema(self) -> Schema:
        """That of the input, the very same (view:C10)."""
        return self.below.schema

    def count_rows(self, counts: Sequence[int | None]) -> int | None:
        """As many as the input has (view:C31)."""
        return counts[0]

    def wants(self, want: Want) -> tuple[Want, ...]:
        """The same columns; no bounds, since a row that a reader does not need may still count here."""
        return (want.of(want.columns),)

    def passed(self, column: int) -> tuple[int, int] | None:
        """Every column is the input's."""
        return 0, column


class OwnSchema(Node):
    """A node whose columns are not those of an input."""

    columns: Schema

    @property
    def schema(self) -> Schema:
        """The columns there are now."""
        return self.columns


class NodeState(Generic[T]):
    """What changes while nodes are read: made when it is first asked for, gone with the node."""

    def __init__(self, make: Callable[[Any], T]) -> None:
        self._make = make
        self._states: WeakKeyDictionary[Node, T] = WeakKeyDictionary()
        self._lock = threading.Lock()

    def of(self, node: Node) -> T:
        """Return the state of a node."""
        with self._lock:
            found = self._states.get(node)
            if found is None:
                found = self._states[node] = self._make(node)
            return found

    def known(self, node: Node) -> T | None:
        """Return the state of a node that has one already."""
        return self._states.get(node)


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


def described(value: object) -> str:
    """Return a parameter as text that is equal for equal ones; what is not known here is equal to nothing.

    >>> described((1, "a", None)), described(t.int64)
    ("(1,'a',None)", 'int64')
    """
    if isinstance(value, Node):
        return value.key
    if value is None or isinstance(value, bool | int | float | str | bytes | enum.Enum):
        return repr(value)
    if isinstance(value, t.Type):
        return str(value)
    if isinstance(value, tuple | list):
        return f"({','.join(map(described, value))})"
    if isinstance(value, Mapping):
        return f"{{{','.join(sorted(f'{described(k)}:{described(v)}' for k, v in value.items()))}}}"
    if isinstance(value, pa.DataType):
        return f"arrow {value}"
    if isinstance(value, pa.Scalar):
        return f"{value.type} {value.as_py()!r}"
    if is_dataclass(value) and not isinstance(value, type):
        said = ",".join(described(getattr(value, each.name)) for each in fields(value))
        return f"{type(value).__qualname__}({said})"
    name = getattr(value, "__qualname__", "<")
    if callable(value) and "<" not in name:
        return f"{value.__module__}.{name}"
    if hasattr(value, "fields") and hasattr(value, "to_arrow"):  # a schema
        return described(value.fields)
    return secrets.token_hex(16)
