"""Expressions of canonical queries in this process: Arrow's kernels give the bits that Spark gives.

A job of Spark costs more than the few rows of an increment. Only what is certain to be equal is known here;
whatever else, numbers that do not fit and errors included, is `Elsewhere`: Spark computes it, or says what is
wrong in its own words.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from decimal import Decimal
from inspect import signature
from typing import Final, TypeAlias

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from sqlglot import exp

from trueline.kernel.limbs import BITS, rounded
from trueline.kernel.power_sums import sums_from_limbs
from trueline.kernel.sorted_keys import as_array
from trueline.workspace.derive.exact import FROM_LIMBS
from trueline.workspace.derive.spark_sql import called, written

# An expression over columns, by their names in small letters: arrays of equal length, or one value for all
# rows. What was computed is put beside the columns by its text: limbs have most of their parts in common.
Evaluated: TypeAlias = pa.Array | pa.Scalar
Columns: TypeAlias = dict[str | tuple[str], Evaluated]
Evaluation: TypeAlias = Callable[[Columns], Evaluated]

_INT, _LONG, _DOUBLE = pa.int32(), pa.int64(), pa.float64()
_TYPES: Final = {"INT": _INT, "BIGINT": _LONG, "DOUBLE": _DOUBLE}
_NUMBER: Final = re.compile(r"[+-]?([0-9]+(\.[0-9]+)?([eE][+-]?[0-9]+)?|NaN|Infinity)")
# Where the whole numbers of 64 bits end.
_END: Final = 2.0**63


class Elsewhere(Exception):
    """That something cannot be computed here with the bits that Spark gives."""


@contextmanager
def known_here() -> Iterator[None]:
    """Leave to Spark what fails here, for whatever reason: it computes it, or says what is wrong."""
    try:
        yield
    except (pa.ArrowException, ArithmeticError, LookupError, TypeError, ValueError, RecursionError) as error:
        raise Elsewhere from error


def compiled(part: exp.Expr) -> Evaluation:
    """Return what evaluates an expression; `Elsewhere` if one of its parts is not known here.

    >>> from trueline.workspace.derive.spark_sql import parsed
    >>> compiled(parsed("a / NULLIF(CAST(n AS DOUBLE), 0)"))(
    ...     {"a": pa.array([3.0, 1.0]), "n": pa.array([2, 0])}
    ... )
    <pyarrow.lib.DoubleArray object at ...>
    [
      1.5,
      null
    ]
    """
    if isinstance(part, exp.Paren):
        return compiled(part.this)
    if isinstance(part, exp.Column):
        return _column(part.name)
    if isinstance(part, exp.Null):
        return _always(pa.scalar(None))
    if isinstance(part, exp.Literal):
        return _literal(part)
    if isinstance(part, exp.And | exp.Or):
        # One after another: there may be hundreds.
        return _connected(pc.and_kleene if isinstance(part, exp.And) else pc.or_kleene, list(part.flatten()))
    return _once(written(part), _compiled(part))


def columns_of(part: exp.Expr) -> set[str]:
    """Return the names of the columns that an expression reads, in small letters."""
    return {column.name.lower() for column in part.find_all(exp.Column)}


def by_name(rows: pa.RecordBatch | pa.Table) -> Columns:
    """Return columns for expressions: Spark does not tell large letters of names from small ones."""
    arrays = (each if isinstance(each, pa.Array) else as_array(each) for each in rows.columns)
    return dict(zip(map(str.lower, rows.schema.names), arrays, strict=True))


def all_rows(value: Evaluated, rows: int) -> pa.Array:
    """Return a value for each row."""
    return pa.repeat(value, rows) if isinstance(value, pa.Scalar) else value


def _compiled(part: exp.Expr) -> Evaluation:
    if isinstance(part, exp.Cast) and not part.args.get("safe"):
        return _cast(part)
    if isinstance(part, exp.If):
        return _call(_if, [part.this, part.args["true"], part.args.get("false") or exp.Null()])
    if isinstance(part, exp.Case):
        return _case(part)
    if isinstance(part, exp.Not):
        return _call(_inverted, [part.this])
    if isinstance(part, exp.Is) and isinstance(part.expression, exp.Null):
        return _call(pc.is_null, [part.this])
    if isinstance(part, exp.Binary) and type(part) in _BINARY:
        return _call(_BINARY[type(part)], [part.left, part.right])
    if called(part) == FROM_LIMBS:
        return _from_limbs(part)
    function = _CALLS.get(called(part))
    # Of `floor` there is one with a scale, too.
    if function is None or len(part.expressions) != len(signature(function).parameters):
        raise Elsewhere
    return _call(function, part.expressions)


def _once(text: str, evaluate: Evaluation) -> Evaluation:
    name = (text,)  # no column is called so

    def once(rows: Columns) -> Evaluated:
        if name not in rows:
            rows[name] = evaluate(rows)
        return rows[name]

    return once


def _call(function: Callable[..., Evaluated], arguments: Sequence[exp.Expr]) -> Evaluation:
    made = [compiled(argument) for argument in arguments]
    return lambda rows: function(*(each(rows) for each in made))


def _column(name: str) -> Evaluation:
    return lambda rows: rows[name.lower()]


def _always(value: pa.Scalar) -> Evaluation:
    return lambda _: value


# --- literals and casts -------------------------------------------------------------------------


def _literal(part: exp.Literal) -> Evaluation:
    if part.is_string:
        return _always(pa.scalar(part.this, pa.string()))
    try:
        whole = int(part.this)
    except ValueError:
        if not part.this.replace(".", "", 1).isdigit():
            raise Elsewhere from None
        return _always(pa.scalar(Decimal(part.this)))
    if not -(1 << 31) <= whole < 1 << 31:
        raise Elsewhere
    return _always(pa.scalar(whole, _INT))


def _cast(part: exp.Cast) -> Evaluation:
    """Cast numbers; what does not fit is computed elsewhere, so that it is the same to try."""
    kind = _TYPES.get(part.to.sql("spark").upper())
    inner = part.this
    if kind is None:
        raise Elsewhere
    if isinstance(inner, exp.Literal):
        # Of text what was written as a number; Python reads more than that as one.
        if _NUMBER.fullmatch(inner.this) is None:
            raise Elsewhere
        with known_here():
            return _always(pa.scalar(float(inner.this) if kind == _DOUBLE else int(inner.this), kind))
    if (limbs := _of_digits(inner)) is not None and kind == _DOUBLE:
        return _from_digits(*limbs)
    return _cast_to(kind, compiled(inner))


def _cast_to(kind: pa.DataType, inner: Evaluation) -> Evaluation:
    def cast(rows: Columns) -> Evaluated:
        value = inner(rows)
        is_whole = pa.types.is_signed_integer(value.type)
        if not is_whole and not (kind == _DOUBLE and value.type in (_DOUBLE, pa.float32())):
            raise Elsewhere
        # To doubles as Java does, to the nearest.
        return pc.cast(value, kind, safe=kind != _DOUBLE)

    return cast


# --- what canonical sums end with ---------------------------------------------------------------


def _of_digits(part: exp.Expr) -> tuple[exp.Expr, exp.Expr] | None:
    """Return the limbs of a whole number that `exact.integer_sum` has made a decimal of, the upper first."""
    match part:
        case exp.Add(args={"this": exp.Mul(args={"this": upper, "expression": weight}), "expression": lower}):
            sides = [each.this for each in (upper, lower) if _is_digits(each, 20)]
            if len(sides) == 2 and _is_digits(weight, 10) and weight.this.name == str(1 << BITS):
                return sides[0], sides[1]
    return None


def _is_digits(part: exp.Expr, many: int) -> bool:
    if not isinstance(part, exp.Cast) or part.args.get("safe"):
        return False
    return part.to.sql("spark").upper() == f"DECIMAL({many}, 0)"


def _from_digits(upper: exp.Expr, lower: exp.Expr) -> Evaluation:
    limbs = [compiled(lower), compiled(upper)]

    def whole(rows: Columns) -> Evaluated:
        low, high = (each(rows) for each in limbs)
        numbers = np.stack([_whole(low), _whole(high)])
        none = ~np.asarray(pc.and_(low.is_valid(), high.is_valid())).astype(bool)
        return pa.array(rounded(numbers, 0), mask=none)

    return whole


def _from_limbs(part: exp.Expr) -> Evaluation:
    kind, count, one, two, limbs = part.expressions
    if kind.name != "sum" or called(limbs) != "array":
        raise Elsewhere
    counts = [compiled(each) for each in (count, one, two)]
    parts = [compiled(each) for each in limbs.expressions]

    def sums(rows: Columns) -> Evaluated:
        number, first, second = (_whole(each(rows)) for each in counts)
        whole = np.stack([_whole(each(rows)) for each in parts], axis=1)
        found, none = sums_from_limbs(number, first, second, whole)
        return pa.array(found, mask=none)

    return sums


def _whole(value: Evaluated) -> npt.NDArray[np.int64]:
    if not isinstance(value, pa.Array) or value.type != _LONG:
        raise Elsewhere
    return np.asarray(pc.fill_null(value, 0))


# --- arithmetic and comparisons -----------------------------------------------------------------


def _alike(one: Evaluated, other: Evaluated) -> tuple[Evaluated, Evaluated]:
    """Return two numbers as the wider type of both, as Spark does."""
    kinds = {one.type, other.type}
    if _DOUBLE in kinds:
        return _double(one), _double(other)
    if not kinds <= {_INT, _LONG}:
        raise Elsewhere
    kind = _LONG if _LONG in kinds else _INT
    return one.cast(kind), other.cast(kind)


def _double(value: Evaluated) -> Evaluated:
    if isinstance(value, pa.Decimal128Scalar):
        return pa.scalar(float(value.as_py()), _DOUBLE)
    if value.type not in _TYPES.values():
        raise Elsewhere
    return pc.cast(value, _DOUBLE, safe=False)


def _counted(checked: Callable[..., Evaluated], plain: Callable[..., Evaluated]) -> Callable[..., Evaluated]:
    """Return arithmetic that refuses whole numbers that do not fit."""

    def computed(one: Evaluated, other: Evaluated) -> Evaluated:
        one, other = _alike(one, other)
        return plain(one, other) if one.type == _DOUBLE else checked(one, other)

    return computed


def _divided(one: Evaluated, other: Evaluated) -> Evaluated:
    kinds = {one.type, other.type}
    if _DOUBLE not in kinds and not kinds <= {_INT, _LONG}:
        raise Elsewhere  # of decimals a decimal
    above, below = _double(one), _double(other)
    if _any(pc.and_(pc.equal(below, 0.0), pc.is_valid(above))):
        raise Elsewhere  # Spark says where
    return pc.divide(above, below)


def _compared(function: Callable[..., Evaluated], *, of_text: bool = False) -> Callable[..., Evaluated]:
    def compared(one: Evaluated, other: Evaluated) -> Evaluated:
        if of_text and one.type == other.type == pa.string():
            return function(one, other)
        one, other = _alike(one, other)
        if one.type == _DOUBLE and (_any(pc.is_nan(one)) or _any(pc.is_nan(other))):
            # To Spark NaN equals itself and is the greatest: compared are whether they are, then the numbers.
            nan, others = (pc.cast(pc.is_nan(each), pa.int8()) for each in (one, other))
            numbers = (pc.if_else(pc.is_nan(each), 0.0, each) for each in (one, other))
            return pc.if_else(pc.equal(nan, others), function(*numbers), function(nan, others))
        return function(one, other)

    return compared


def _any(value: Evaluated) -> bool:
    return bool(pc.any(all_rows(value, 1)).as_py())


def _bits(one: Evaluated, other: Evaluated) -> Evaluated:
    one, other = _alike(one, other)
    if one.type == _DOUBLE:
        raise Elsewhere
    return pc.bit_wise_and(one, other)


def _connected(function: Callable[..., Evaluated], parts: Sequence[exp.Expr]) -> Evaluation:
    first, *others = [compiled(part) for part in parts]

    def connected(rows: Columns) -> Evaluated:
        found = _truth(first(rows))
        for each in others:
            found = function(found, _truth(each(rows)))
        return found

    return connected


def _truth(value: Evaluated) -> Evaluated:
    if value.type != pa.bool_():
        raise Elsewhere
    return value


def _inverted(value: Evaluated) -> Evaluated:
    return pc.invert(_truth(value))


_BINARY: Final[dict[type[exp.Expr], Callable[[Evaluated, Evaluated], Evaluated]]] = {
    exp.Add: _counted(pc.add_checked, pc.add),
    exp.Sub: _counted(pc.subtract_checked, pc.subtract),
    exp.Mul: _counted(pc.multiply_checked, pc.multiply),
    exp.Div: _divided,
    exp.EQ: _compared(pc.equal, of_text=True),
    exp.NEQ: _compared(pc.not_equal, of_text=True),
    exp.GT: _compared(pc.greater),
    exp.GTE: _compared(pc.greater_equal),
    exp.LT: _compared(pc.less),
    exp.LTE: _compared(pc.less_equal),
    exp.BitwiseAnd: _bits,
}


# --- functions ----------------------------------------------------------------------------------


def _of_double(function: Callable[[Evaluated], Evaluated]) -> Callable[[Evaluated], Evaluated]:
    def computed(value: Evaluated) -> Evaluated:
        if value.type != _DOUBLE:
            raise Elsewhere
        return function(value)

    return computed


def _floor(value: Evaluated) -> Evaluated:
    """Return a whole number of 64 bits; numbers that are none, or too large, are not seen here."""
    if not isinstance(value, pa.Array):
        raise Elsewhere
    if _any(pc.invert(pc.less(pc.abs(value), _END))):
        raise Elsewhere
    return pc.cast(pc.floor(value), _LONG, safe=False)


def _nearest(value: Evaluated) -> Evaluated:
    return pc.round(value, ndigits=0, round_mode="half_to_even")


def _nanvl(one: Evaluated, other: Evaluated) -> Evaluated:
    if {one.type, other.type} != {_DOUBLE}:
        raise Elsewhere
    return pc.if_else(pc.is_nan(one), other, one)


def _shifted(number: Evaluated, by: Evaluated) -> Evaluated:
    if number.type != _LONG or not isinstance(by, pa.Scalar) or by.type != _INT or not 0 <= by.as_py() < 64:
        raise Elsewhere
    return pc.shift_right(number, pa.scalar(by.as_py(), _LONG))


def _if(condition: Evaluated, one: Evaluated, other: Evaluated) -> Evaluated:
    kinds = {each.type for each in (one, other)} - {pa.null()}
    if len(kinds) != 1:
        raise Elsewhere
    (kind,) = kinds
    return pc.if_else(pc.fill_null(_truth(condition), False), one.cast(kind), other.cast(kind))


def _case(part: exp.Case) -> Evaluation:
    if part.this is not None:
        raise Elsewhere
    ways = [(compiled(each.this), compiled(each.args["true"])) for each in reversed(part.args["ifs"])]
    otherwise = compiled(part.args.get("default") or exp.Null())

    def chosen(rows: Columns) -> Evaluated:
        found = otherwise(rows)
        for condition, value in ways:
            found = _if(condition(rows), value(rows), found)
        return found

    return chosen


def _nullif(one: Evaluated, other: Evaluated) -> Evaluated:
    return _if(_BINARY[exp.EQ](one, other), pa.scalar(None), one)


_CALLS: Final[dict[str, Callable[..., Evaluated]]] = {
    "abs": _of_double(pc.abs),
    "floor": _of_double(_floor),
    "isnan": _of_double(lambda value: pc.fill_null(pc.is_nan(value), False)),
    "nanvl": _nanvl,
    "nullif": _nullif,
    "rint": _of_double(_nearest),
    "shiftright": _shifted,
}
