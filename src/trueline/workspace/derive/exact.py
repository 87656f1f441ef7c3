"""Exact sums as expressions of SQL: numbers cut into limbs of 32 bits, added as whole numbers, rounded once.

A double is cut into five limbs with the weights 2^32, 1, 2^-32, 2^-64 and 2^-96: every step is exact, so any
number of rows in any order have one sum. Numbers outside of that range (from 2^63 on, and those with bits
below 2^-96) are noticed: the fast form then fails with `ESCAPED`, and the wide form gives the answer.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, TypeAlias

from sqlglot import exp, parse_one

# Makes an aggregate of an expression by its name, with the filter or window of the one that was written.
Aggregated: TypeAlias = Callable[[str, exp.Expr], exp.Expr]

# What the fast form fails with where a number is outside of its range.
ESCAPED: Final = "trueline: a number needs the wide form of the exact sum"

_NAN, _INFINITE, _NEGATIVE_INFINITE, _ESCAPE = 1, 2, 4, 8
_BOTH: Final = _INFINITE | _NEGATIVE_INFINITE
_IN_RANGE: Final = "abs(x) < 9.223372036854775E18D AND (abs(x) >= 1.262177448353619E-29D OR x = 0D)"

# Functions of a session in which canonical queries run; later ones use earlier ones.
FUNCTIONS: Final = (
    # The number above its limbs: its whole part is the highest limb, what is left goes on.
    (
        f"tl_first(x DOUBLE) RETURNS DOUBLE RETURN CASE WHEN x IS NULL THEN NULL"
        f" WHEN {_IN_RANGE} THEN x / 4294967296D ELSE 0D END"
    ),
    "tl_next(y DOUBLE) RETURNS DOUBLE RETURN (y - CAST(y AS BIGINT)) * 4294967296D",
    (
        f"tl_flags(x DOUBLE, y DOUBLE) RETURNS INT RETURN CASE WHEN isnan(x) THEN {_NAN}"
        f" WHEN x = double('Infinity') THEN {_INFINITE}"
        f" WHEN x = double('-Infinity') THEN {_NEGATIVE_INFINITE}"
        f" WHEN {_IN_RANGE} AND y = CAST(y AS BIGINT) THEN 0 WHEN x IS NULL THEN 0 ELSE {_ESCAPE} END"
    ),
    # Three limbs and whether anything is below them, as the nearest double.
    (
        "tl_word(a BIGINT, b BIGINT, c BIGINT, below BIGINT) RETURNS DOUBLE RETURN CAST("
        "(CAST(a AS DECIMAL(10, 0)) * 18446744073709551616BD + CAST(b AS DECIMAL(10, 0)) * 4294967296BD"
        " + CAST(c AS DECIMAL(10, 0))) * 2BD + IF(below = 0L, 0BD, 1BD) AS DOUBLE) / 2D"
    ),
    (
        "tl_size(a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT) RETURNS DOUBLE RETURN CASE"
        " WHEN a >= 4294967296L THEN tl_word(shiftright(a, 32), a & 4294967295L, b, c | d | e)"
        " WHEN a > 0L THEN tl_word(a, b, c, d | e) / 4294967296D"
        " WHEN b > 0L THEN tl_word(b, c, d, e) / 18446744073709551616D"
        " ELSE tl_word(c, d, e, 0L) / 79228162514264337593543950336D END"
    ),
    # Limbs from 0 to 2^32 - 1, but for the highest, which has the sign.
    (
        "tl_carried(a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT)"
        " RETURNS STRUCT<a: BIGINT, b: BIGINT, c: BIGINT, d: BIGINT, e: BIGINT> RETURN named_struct("
        "'a', a + shiftright(b + shiftright(c + shiftright(d + shiftright(e, 32), 32), 32), 32),"
        " 'b', (b + shiftright(c + shiftright(d + shiftright(e, 32), 32), 32)) & 4294967295L,"
        " 'c', (c + shiftright(d + shiftright(e, 32), 32)) & 4294967295L,"
        " 'd', (d + shiftright(e, 32)) & 4294967295L, 'e', e & 4294967295L)"
    ),
    (
        "tl_size_of(t STRUCT<a: BIGINT, b: BIGINT, c: BIGINT, d: BIGINT, e: BIGINT>) RETURNS DOUBLE RETURN"
        " tl_size(t.a, t.b, t.c, t.d, t.e)"
    ),
    (
        "tl_signed(sign BIGINT, a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT) RETURNS DOUBLE RETURN"
        " IF(sign < 0L, -tl_size_of(tl_carried(-a, -b, -c, -d, -e)), tl_size_of(tl_carried(a, b, c, d, e)))"
    ),
    (
        "tl_rounded(a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT) RETURNS DOUBLE RETURN"
        " tl_signed(tl_carried(a, b, c, d, e).a, a, b, c, d, e)"
    ),
    (
        f"tl_sum(a BIGINT, b BIGINT, c BIGINT, d BIGINT, e BIGINT, flags INT) RETURNS DOUBLE RETURN CASE"
        f" WHEN a IS NULL THEN NULL"
        f" WHEN flags & {_NAN} != 0 OR flags & {_BOTH} = {_BOTH} THEN double('NaN')"
        f" WHEN flags & {_INFINITE} != 0 THEN double('Infinity')"
        f" WHEN flags & {_NEGATIVE_INFINITE} != 0 THEN double('-Infinity')"
        f" WHEN flags & {_ESCAPE} != 0 THEN raise_error('{ESCAPED}')"
        f" ELSE tl_rounded(a, b, c, d, e) END"
    ),
    # A sum of whole numbers: only the total can be too large.
    (
        "tl_whole(a BIGINT, b BIGINT) RETURNS BIGINT RETURN"
        " CAST(CAST(a + shiftright(b, 32) AS INT) AS BIGINT) * 4294967296L + (b & 4294967295L)"
    ),
    (
        "tl_plain(x DOUBLE) RETURNS DOUBLE RETURN"
        " CASE WHEN isnan(x) THEN double('NaN') WHEN x = 0D THEN 0D ELSE x END"
    ),
)


def double_sum(argument: exp.Expr, aggregated: Aggregated) -> exp.Expr:
    """Return the exact sum of doubles."""
    number = exp.Cast(this=argument.copy(), to=exp.DataType.build("double"))
    above: exp.Expr = _call("tl_first", number)
    limbs = []
    for limb in range(5):
        above = _call("tl_next", above.copy()) if limb else above
        limbs.append(aggregated("sum", exp.Cast(this=above, to=exp.DataType.build("bigint"))))
    flags = aggregated("bit_or", _call("tl_flags", number.copy(), above.copy()))
    return _call("tl_sum", *limbs, flags)


def integer_sum(argument: exp.Expr, aggregated: Aggregated, as_double: bool) -> exp.Expr:
    """Return the sum of whole numbers of 64 bits: it fails only where the total has more."""
    number = exp.Cast(this=argument.copy(), to=exp.DataType.build("bigint"))
    upper = aggregated("sum", _call("shiftright", number, exp.Literal.number(32)))
    lower = aggregated("sum", exp.BitwiseAnd(this=number.copy(), expression=_number("4294967295L")))
    if as_double:
        zeros = [_number("0L") for _ in range(3)]
        return _call("tl_rounded", upper, lower, *zeros)
    return _call("tl_whole", upper, lower)


def normalised(part: exp.Expr, known: str) -> exp.Expr:
    """Return a number whose zero has no sign and whose NaN has one form."""
    made = _call("tl_plain", part)
    return made if known == "double" else exp.Cast(this=made, to=exp.DataType.build(known))


def _call(name: str, *arguments: exp.Expr) -> exp.Expr:
    return exp.Anonymous(this=name, expressions=list(arguments))


def _number(text: str) -> exp.Expr:
    return parse_one(text, read="spark")
