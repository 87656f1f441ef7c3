"""Conditions that Spark hands to `format("trueline")`: what they rule out before anything is read.

They are hints. Spark evaluates every condition itself on what is read, so what is said here may rule out too
little, and must never rule out too much.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any, Final

import pyarrow as pa
from pyspark.sql import datasource as s

from trueline.dataset.dataset_at import Standing
from trueline.errors import TruelineError
from trueline.view.expressions import condition
from trueline.view.plan.node import NO_BOUNDS, Bounds, Interval, both

ENABLED: Final = "spark.sql.python.filterPushdown.enabled"
_OPERATORS: Final[Mapping[type[s.Filter], str]] = {
    s.EqualTo: "=",
    s.EqualNullSafe: "=",
    s.GreaterThan: ">",
    s.GreaterThanOrEqual: ">=",
    s.LessThan: "<",
    s.LessThanOrEqual: "<=",
}
# Beyond, ranges of the state are scanned.
_KEYS_LOOKED_UP: Final = 1_000


@dataclass(frozen=True)
class Conditions:
    """Conditions on columns that all have to be true."""

    filters: tuple[s.Filter, ...] = ()

    def bounds(self, schema: pa.Schema) -> Bounds:
        """Return the ranges of columns outside of which no row is wanted."""
        found = NO_BOUNDS
        for each in self.filters:
            found = both(found, _bounds(each, schema))
        return found

    def keys(self, standing: Standing) -> tuple[bytes, ...] | None:
        """Return the keys, ascending, of which rows are wanted; None if conditions do not name them."""
        values = [self._values(name, standing.schema.field(name).type) for name in standing.key]
        count = 1
        for each in values:
            if each is None:
                return None
            count *= len(each)
        if not values or count > _KEYS_LOOKED_UP:
            return None
        rows = list(product(*(each for each in values if each is not None)))
        try:
            named = {
                name: pa.array([row[place] for row in rows], standing.schema.field(name).type)
                for place, name in enumerate(standing.key)
            }
        except (pa.ArrowException, OverflowError, TypeError, ValueError):
            return None  # such as a number that the key cannot have
        return tuple(sorted(set(standing.merge_key.encode(pa.table(named)).to_pylist())))

    def _values(self, name: str, kind: pa.DataType) -> list[Any] | None:
        """Return the values that a column of the key may have, where Spark and keys agree on equality."""
        if not _is_exact(kind):
            return None
        for each in self.filters:
            if isinstance(each, s.EqualTo | s.EqualNullSafe | s.In) and each.attribute == (name,):
                given = list(each.value) if isinstance(each, s.In) else [each.value]
                return [value for value in given if value is not None]
        return None


NO_CONDITIONS: Final = Conditions()


def _is_exact(kind: pa.DataType) -> bool:
    is_ = pa.types
    return bool(is_.is_integer(kind) or is_.is_string(kind) or is_.is_date32(kind) or is_.is_boolean(kind))


def _bounds(filter_: s.Filter, schema: pa.Schema) -> Bounds:
    name = _column(filter_, schema)
    if name is None:
        return NO_BOUNDS
    if isinstance(filter_, s.In):
        return _hull(name, [_compared(name, "=", value, schema) for value in _given(filter_.value)])
    operator = _OPERATORS.get(type(filter_))
    if operator is None:
        return NO_BOUNDS
    value: Any = getattr(filter_, "value", None)
    return NO_BOUNDS if value is None else _compared(name, operator, value, schema)


def _given(values: Iterable[Any]) -> Iterator[Any]:
    return (value for value in values if value is not None)


def _column(filter_: s.Filter, schema: pa.Schema) -> str | None:
    """Return the column of a condition, if Spark has its values as they are stored."""
    path: Sequence[str] = getattr(filter_, "attribute", ())
    if len(path) != 1 or path[0] not in schema.names:
        return None
    kind = schema.field(path[0]).type
    is_cut = pa.types.is_timestamp(kind) and kind.unit == "ns"
    return None if is_cut else path[0]


def _compared(name: str, operator: str, value: object, schema: pa.Schema) -> Bounds:
    quoted = f"`{name.replace('`', '``')}`"
    try:
        return condition(f"{quoted} {operator} :value", schema, {"value": value}).bounds
    except TruelineError:
        return NO_BOUNDS


def _hull(name: str, found: Sequence[Bounds]) -> Bounds:
    """Return the range that holds several; none if one of them has no bound."""
    ranges = [each.get(name, Interval()) for each in found]
    known = [(each.low, each.high) for each in ranges if each.low is not None and each.high is not None]
    if not known or len(known) < len(ranges):
        return NO_BOUNDS
    return {name: Interval(min(low for low, _ in known), max(high for _, high in known))}
