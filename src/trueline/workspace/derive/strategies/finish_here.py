"""Aggregates that follow a small change in this process: the rows that came and went become accumulators,
these are added to those that are kept, and the results before and after are evaluated.

What is not certain to have the bits that Spark gives is `Elsewhere`: then Spark does all of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from trueline.kernel.key_encoding import KeyEncoding, encode_keys
from trueline.kernel.sorted_keys import as_array
from trueline.workspace.derive.spark_sql import called, parsed
from trueline.workspace.derive.strategies.accumulators import RESULT, ROWS, SIGN, VERSION, Accumulation
from trueline.workspace.derive.strategies.expressions_here import (
    Columns,
    Elsewhere,
    Evaluation,
    all_rows,
    by_name,
    columns_of,
    compiled,
    known_here,
)

_Whole: TypeAlias = npt.NDArray[np.int64]
_Codes: TypeAlias = npt.NDArray[np.intp]
_Results: TypeAlias = tuple[tuple[Evaluation, ...], Evaluation | None]

# Whole numbers whose sums are certain to have room.
_ROOM: Final = 2.0**62
# Doubles add whole numbers of less without loss, in any order.
_EXACT: Final = 2.0**53
# Rows that are looked at together: what is computed of them is then still at hand for the next step.
_ROWS_AT_ONCE: Final = 1 << 16
# The bytes of a total while it is added up.
_NUMBER: Final = 8
_COUNTS: Final = ("count", "count_if")


# --- rows become accumulators -------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Sum:
    """An accumulator: the function, its argument if any, and of which rows it is."""

    function: str
    argument: Evaluation | None
    where: Evaluation | None

    def of(self, rows: Columns, count: int) -> pa.Array:
        """Return what each row adds."""
        found = pa.repeat(1, count) if self.argument is None else all_rows(self.argument(rows), count)
        if self.function == "count":
            found = pc.cast(pc.is_valid(found), pa.int64())
        elif self.function == "count_if":
            found = pc.cast(pc.fill_null(found, False), pa.int64())
        if self.where is not None:
            holds = pc.fill_null(all_rows(self.where(rows), count), False)
            found = pc.if_else(holds, found, pa.scalar(0 if self.function in _COUNTS else None, found.type))
        return found


@dataclass(frozen=True, slots=True)
class Accumulating:
    """The first step of a query over one table, as it is done here; `columns` are those it reads."""

    columns: frozenset[str]
    keys: Mapping[str, Evaluation]
    sums: Mapping[str, _Sum]
    where: Evaluation | None

    def of(self, rows: pa.Table, kept: pa.Schema, room: int) -> pa.Table:
        """Return the accumulators of the groups of rows, typed as those that are kept, of so many bytes."""
        with known_here():
            batches = [self._wanted(batch) for batch in rows.to_batches(max_chunksize=_ROWS_AT_ONCE)]
            keys, codes = self._groups_of(batches, pa.schema([kept.field(name) for name in self.keys]))
            firsts = _firsts(codes)
            if _NUMBER * len(firsts) * len(self.sums) > room:
                raise Elsewhere
            totals = [_Total(each, kept.field(name).type, len(firsts)) for name, each in self.sums.items()]
            start = 0
            for batch in batches:
                groups, columns = _Groups(codes[start : start + batch.num_rows], len(firsts)), by_name(batch)
                start += batch.num_rows
                for total in totals:
                    total.add(columns, groups)
            arrays = [as_array(keys[name]).take(pa.array(firsts)) for name in self.keys]
            found = pa.table([*arrays, *(total.array() for total in totals)], names=[*self.keys, *self.sums])
        if found.nbytes > room:
            raise Elsewhere
        return found

    def _groups_of(self, batches: Sequence[pa.RecordBatch], kinds: pa.Schema) -> tuple[pa.Table, _Codes]:
        """Return the keys of rows, and the number of the group of each."""
        if not self.keys:
            return kinds.empty_table(), np.zeros(sum(batch.num_rows for batch in batches), np.intp)
        keys = pa.concat_tables([kinds.empty_table(), *map(self._keys_of, batches)])
        return keys, _codes(keys, list(self.keys))

    def _wanted(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        if self.where is None:
            return batch
        return batch.filter(all_rows(self.where(by_name(batch)), batch.num_rows))

    def _keys_of(self, batch: pa.RecordBatch) -> pa.Table:
        rows = by_name(batch)
        arrays = [all_rows(each(rows), batch.num_rows) for each in self.keys.values()]
        return pa.table(arrays, names=list(self.keys))


class _Total:
    """An accumulator of each group, while rows are added to it."""

    def __init__(self, summed: _Sum, kind: pa.DataType, groups: int) -> None:
        self._summed, self._kind = summed, kind
        self._values = np.zeros(groups, np.int64)
        self._seen = np.zeros(groups, bool)
        self._most = 0.0

    def add(self, rows: Columns, groups: _Groups) -> None:
        """Add what each of the rows gives."""
        column = self._summed.of(rows, len(groups.codes))
        if column.type != self._kind:
            raise Elsewhere
        if not len(column):
            return
        function = self._summed.function
        if function in ("min", "max"):
            found, seen = groups.extremes(column, is_least=function == "min"), groups.sizes > 0
            least = np.minimum if function == "min" else np.maximum
            self._values[seen] = np.where(self._seen[seen], least(self._values[seen], found), found)
        else:
            found, seen, most = groups.sums(column)
            self._most += most
            if self._most >= _ROOM:
                raise Elsewhere
            self._values += found
        self._seen |= seen

    def array(self) -> pa.Array:
        """Return it, null where no row gave a value."""
        return _typed(self._values, ~self._seen, self._kind)


def accumulating(made: Accumulation) -> Accumulating | None:
    """Return how rows are accumulated here; None if that, or what is made of it, is not known."""
    is_finished = not made.values and _results(made.results, made.having) is not None
    return _accumulating(made.partial) if is_finished else None


@lru_cache(maxsize=256)
def _accumulating(partial: str) -> Accumulating | None:
    query = parsed(partial)
    if not isinstance(query, exp.Select) or any(
        value for name, value in query.args.items() if name not in ("expressions", "from_", "where", "group")
    ):
        return None
    source = query.args["from_"].this
    if not isinstance(source, exp.Table) or any(source.args.get(name) for name in ("pivots", "sample")):
        return None
    if isinstance(source.args.get("alias"), exp.TableAlias) and source.args["alias"].columns:
        return None
    if {column.table for column in query.find_all(exp.Column)} - {"", source.alias_or_name}:
        return None  # fields of a column
    condition = query.args.get("where")
    keys: dict[str, Evaluation] = {}
    sums: dict[str, _Sum] = {}
    try:
        with known_here():
            where = None if condition is None else compiled(condition.this)
            for column in query.expressions:
                part = column.unalias()
                if (found := _sum(part)) is not None:
                    sums[column.alias] = found
                else:
                    keys[column.alias] = compiled(part)
    except Elsewhere:
        return None
    return Accumulating(frozenset(columns_of(query)), keys, sums, where)


def _sum(part: exp.Expr) -> _Sum | None:
    """Return an accumulator; None of what is no aggregate."""
    where = None
    if isinstance(part, exp.Filter):
        part, where = part.this, compiled(part.expression.this)
    function = called(part)
    if function not in ("sum", "count", "count_if", "min", "max"):
        if where is not None or isinstance(part, exp.AggFunc):
            raise Elsewhere
        return None
    (argument,) = part.expressions if len(part.expressions) == 1 else (None,)
    if argument is None or isinstance(argument, exp.Distinct):
        raise Elsewhere
    return _Sum(function, None if isinstance(argument, exp.Star) else compiled(argument), where)


# --- accumulators are added ---------------------------------------------------------------------


def finished_here(
    made: Accumulation, touched: pa.Table, new: pa.Table, result: Sequence[pa.DataType]
) -> pa.Table:
    """Return what `Accumulation.finish` gives for kept groups and partial ones, whose signs are a column.

    `result` are the types of the columns of the query, which what is evaluated here has to have.
    """
    expressions = None if made.values else _results(made.results, made.having)
    if expressions is None:
        raise Elsewhere
    with known_here():
        before = touched.select(list(made.kept)).combine_chunks()
        after = _after(made, before, new)
        versions = [
            _with_results(made, rows, expressions, result).add_column(
                0, VERSION, pa.array(np.full(rows.num_rows, number, np.int32))
            )
            for number, rows in enumerate((before, after))
        ]
        return pa.concat_tables(versions)


def _after(made: Accumulation, before: pa.Table, new: pa.Table) -> pa.Table:
    """Return the accumulators of each group, those that were kept and those that came and went."""
    rows = pa.concat_tables([before, new.select(list(made.kept)).cast(before.schema)])
    ones = np.ones(before.num_rows, np.int64)
    signs = np.concatenate([ones, np.asarray(as_array(new[SIGN])).astype(np.int64)])
    return _added(rows, made.keys, {ROWS: "sum", **made.sums}, signs)


def _added(rows: pa.Table, keys: Sequence[str], merges: Mapping[str, str], signs: _Whole) -> pa.Table:
    """Return one row for each group: sums of what is added or, where the sign says so, taken away."""
    if not rows.num_rows:
        return rows
    codes = _codes(rows, keys)
    firsts = _firsts(codes)
    groups = _Groups(codes, len(firsts))
    found = {name: as_array(rows[name]).take(pa.array(firsts)) for name in keys}
    for name, merge in merges.items():
        column = as_array(rows[name])
        if merge == "sum":
            totals, seen, _ = groups.sums(column, signs)
            found[name] = _typed(totals, ~seen, column.type)
        elif merge in ("min", "max") and (signs > 0).all():
            values = groups.extremes(column, is_least=merge == "min")
            found[name] = _typed(values, None, column.type)
        else:
            raise Elsewhere
    return pa.table([found[name] for name in rows.column_names], schema=rows.schema)


def _typed(values: _Whole, nulls: npt.NDArray[np.bool_] | None, kind: pa.DataType) -> pa.Array:
    """Return whole numbers, or days, as Arrow has them."""
    found = pa.array(values, pa.int64(), mask=nulls)
    return found.cast(pa.int32()).cast(kind) if pa.types.is_date32(kind) else found.cast(kind)


class _Groups:
    """Rows by group, of which there are so many: the number of its group of each row."""

    def __init__(self, codes: _Codes, groups: int) -> None:
        self.codes = codes
        self.sizes = np.bincount(codes, minlength=groups)

    @cached_property
    def in_order(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Rows in the order of their groups, and where in it each starts that has some."""
        there = self.sizes > 0
        return np.argsort(self.codes, kind="stable"), (np.cumsum(self.sizes) - self.sizes)[there]

    def sums(
        self, column: pa.Array, signs: _Whole | None = None
    ) -> tuple[_Whole, npt.NDArray[np.bool_], float]:
        """Return the sum of each group, whether it had a value, and a bound of what was added."""
        if not pa.types.is_signed_integer(column.type):
            raise Elsewhere
        numbers = np.asarray(pc.fill_null(column, 0) if column.null_count else column).astype(np.int64)
        # As doubles, since the least whole number has no opposite.
        most = max(abs(float(numbers.max())), abs(float(numbers.min()))) * float(self.sizes.max())
        if most >= _ROOM:
            raise Elsewhere
        given = numbers if signs is None or (signs == 1).all() else numbers * signs
        if most < _EXACT:
            totals = np.bincount(self.codes, weights=given, minlength=len(self.sizes)).astype(np.int64)
        else:
            order, starts = self.in_order
            totals = np.zeros(len(self.sizes), np.int64)
            totals[self.sizes > 0] = np.add.reduceat(given[order], starts)
        seen = self.sizes > 0
        if column.null_count:
            weights = np.asarray(column.is_valid())
            seen = np.bincount(self.codes, weights=weights, minlength=len(self.sizes)) > 0
        return totals, seen, most

    def extremes(self, column: pa.Array, *, is_least: bool) -> _Whole:
        """Return the least or the greatest of each group that has rows."""
        is_date = pa.types.is_date32(column.type)
        if not (pa.types.is_signed_integer(column.type) or is_date) or column.null_count:
            raise Elsewhere
        numbers = np.asarray(column.cast(pa.int32()) if is_date else column).astype(np.int64)
        order, starts = self.in_order
        least = np.minimum if is_least else np.maximum
        return least.reduceat(numbers[order], starts)


def _firsts(codes: _Codes) -> npt.NDArray[np.intp]:
    """Return the first row of each group."""
    found = np.empty(int(codes.max()) + 1 if len(codes) else 0, np.intp)
    # Of several that are put in one place the last one stays.
    found[codes[::-1]] = np.arange(len(codes))[::-1]
    return found


def _codes(rows: pa.Table, keys: Sequence[str]) -> _Codes:
    """Number groups as they come."""
    kinds = [rows.schema.field(name).type for name in keys]
    if len(kinds) == 1 and (pa.types.is_integer(kinds[0]) or pa.types.is_string(kinds[0])):
        column = as_array(rows[keys[0]])  # equal are those that are the same
    else:
        column = encode_keys(rows, keys, encoding=KeyEncoding.GROUP)
    return np.asarray(column.dictionary_encode(null_encoding="encode").indices)


# --- results ------------------------------------------------------------------------------------


@lru_cache(maxsize=256)
def _results(results: tuple[str, ...], having: str | None) -> _Results | None:
    """Return what evaluates the columns of a query and its condition; None if one is not known here."""
    try:
        with known_here():
            made = tuple(compiled(parsed(text)) for text in results)
            return made, None if having is None else compiled(parsed(having))
    except Elsewhere:
        return None


def _with_results(
    made: Accumulation, rows: pa.Table, expressions: _Results, kinds: Sequence[pa.DataType]
) -> pa.Table:
    """Add the result of each group; null where it has none, of which nothing is evaluated."""
    made_of, having = expressions
    there = np.arange(rows.num_rows)
    if not made.is_global:
        there = there[np.asarray(as_array(rows[ROWS])) > 0]
    if having is not None:
        holds = all_rows(having(_columns(rows, there)), len(there))
        there = there[np.asarray(pc.fill_null(holds, False)).astype(bool)]
    given = _columns(rows, there)
    arrays = [all_rows(evaluate(given), len(there)) for evaluate in made_of]
    if [array.type for array in arrays] != list(kinds):
        raise Elsewhere
    struct = pa.StructArray.from_arrays(arrays, [f"c{at}" for at in range(len(arrays))])
    if len(there) < rows.num_rows:
        places = np.full(rows.num_rows, -1)
        places[there] = np.arange(len(there))
        struct = struct.take(pa.array(places, mask=places < 0))
    return rows.append_column(RESULT, struct)


def _columns(rows: pa.Table, there: npt.NDArray[np.intp]) -> Columns:
    return by_name(rows if len(there) == rows.num_rows else rows.take(pa.array(there)))
