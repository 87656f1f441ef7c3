"""Exact sums as expressions of SQL: numbers cut into limbs of 32 bits, added as whole numbers, rounded once.

In the fast form of a sum a double is cut into five limbs with the weights 2^32, 1, 2^-32, 2^-64 and 2^-96:
every step is exact, so any number of rows in any order have one sum. All that is added are whole numbers, so
what a row added its retraction takes away. Numbers outside of that range (from 2^63 on, and those with bits
below 2^-96) are noticed: the query then fails with `ESCAPED`. `widened` gives the same query in a form that
has room for every double; where both answer, they give the same bits.

What is added is written out as plain expressions: functions of SQL take Spark ten times as long to analyse,
and may not be used everywhere (in ORDER BY over groups). Functions of Python round at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from sqlglot import exp

from trueline.kernel.power_sums import limb_count
from trueline.workspace.derive.spark_sql import call, called, cast, filled, parsed, written

# Makes an aggregate of an expression by its name, with the filter or window of the one that was written.
Aggregated: TypeAlias = Callable[[str, exp.Expr], exp.Expr]

# The functions of Python: one cuts rows into limbs, two finish what SQL has added or collected.
LIMBS_OF: Final = "tl_limbs_of"
FROM_LIMBS: Final = "tl_from_limbs"
FROM_VALUES: Final = "tl_from_values"

# Where the whole numbers of 64 bits end: 2^63.
_END: Final = "9.223372036854775808E18D"
# What a limb of a fraction has in it, times 2^32.
_LIMB: Final = "4294967296D"
_WHOLE: Final = f"floor(rint(CASE WHEN abs(x) < {_END} THEN x ELSE 0D END))"


def _below(rest: str, limbs: int) -> tuple[list[str], str]:
    """Return the next limbs of what is left of a number, the lowest first, and what they leave.

    To round to the nearest whole number and to take that away is exact. `%` would need no second copy of
    what it is applied to, which Spark computes once, and takes Java longer than all the rest.
    """
    found: list[str] = []
    for _ in range(limbs):
        scaled = f"({rest} * {_LIMB})"
        found.insert(0, f"floor(rint({scaled}))")
        rest = f"({scaled} - rint({scaled}))"
    return found, rest


_FRACTION, _LEFT = _below("nanvl(x - rint(x), 0D)", 3)
# The limbs, the lowest first. Of numbers out of range they lack something, which is noticed.
_LIMBS: Final = (*_FRACTION, f"{_WHOLE} & 4294967295L", f"shiftright({_WHOLE}, 32)")
# How many numbers are not finite or out of range: two counts in each, NaN and 2^32 times infinity; negative
# infinity and 2^32 times what escapes.
_STRANGE: Final = (
    (
        "CASE WHEN abs(x) < double('Infinity') THEN 0L WHEN isnan(x) THEN 1L"
        " WHEN x > 0D THEN 4294967296L ELSE 0L END"
    ),
    (
        f"CASE WHEN {_LEFT} = 0D AND abs(x) < {_END} THEN 0L WHEN x = double('-Infinity') THEN 1L"
        " WHEN abs(x) < double('Infinity') THEN 4294967296L ELSE 0L END"
    ),
)


# --- sums ---------------------------------------------------------------------------------------


def double_sum(argument: exp.Expr, aggregated: Aggregated) -> exp.Expr:
    """Return the exact sum of doubles."""
    number = cast(argument.copy(), "double")
    limbs = [aggregated("sum", filled(text, x=number)) for text in _LIMBS]
    strange = [aggregated("sum", filled(text, x=number)) for text in _STRANGE]
    return _from_limbs("sum", aggregated("count", number), strange, limbs)


def integer_sum(argument: exp.Expr, aggregated: Aggregated, as_double: bool, tried: bool = False) -> exp.Expr:
    """Return the sum of whole numbers of 64 bits: it fails (or is null) only where the total has more."""
    number = cast(argument.copy(), "bigint")
    upper = aggregated("sum", filled("shiftright(x, 32)", x=number))
    lower = aggregated("sum", filled("x & 4294967295L", x=number))
    if as_double:
        digits = "CAST(a AS DECIMAL(20, 0)) * 4294967296BD + CAST(b AS DECIMAL(20, 0))"
        return filled(f"CAST({digits} AS DOUBLE)", a=upper, b=lower)
    fitting = "TRY_CAST" if tried else "CAST"
    return filled(
        f"CAST({fitting}(a + shiftright(b, 32) AS INT) AS BIGINT) * 4294967296L + (b & 4294967295L)",
        a=upper,
        b=lower,
    )


def distinct_integer_sum(argument: exp.Expr, aggregated: Aggregated) -> exp.Expr:
    """Return the sum of the different whole numbers, as a decimal of enough digits for any number of them."""
    number = cast(argument.copy(), "decimal(19, 0)")
    return aggregated("sum", exp.Distinct(expressions=[number]))


def distinct_double_sum(argument: exp.Expr, aggregated: Aggregated) -> exp.Expr:
    """Return the exact sum of the different doubles."""
    number = plain(cast(argument.copy(), "double"), "double")
    both = filled("CASE WHEN x IS NOT NULL THEN struct(x, x) END", x=number)
    return _from_values("sum", aggregated("collect_set", both))


# --- moments ------------------------------------------------------------------------------------


def moment(kind: str, arguments: Sequence[exp.Expr], aggregated: Aggregated) -> exp.Expr:
    """Return a variance, standard deviation, covariance or correlation, rounded once."""
    numbers = [cast(argument.copy(), "double") for argument in arguments]
    strange, limbs = _limb_sums(kind, numbers, aggregated)
    # Of rows with a null there are no limbs: they are not counted.
    return _from_limbs(kind, aggregated("count", _cut(kind, numbers)), strange, limbs)


def _limb_sums(
    kind: str, numbers: Sequence[exp.Expr], aggregated: Aggregated
) -> tuple[list[exp.Expr], list[exp.Expr]]:
    """Return the sums of what is strange, and of limbs, as a function of Python has cut them."""
    sums = [
        aggregated("sum", exp.Bracket(this=_cut(kind, numbers), expressions=[exp.Literal.number(at)]))
        for at in range(limb_count(kind) + 2)
    ]
    return sums[:2], sums[2:]


def _cut(kind: str, numbers: Sequence[exp.Expr]) -> exp.Expr:
    return call(LIMBS_OF, exp.Literal.string(kind), numbers[0].copy(), numbers[-1].copy())


def _from_limbs(kind: str, count: exp.Expr, strange: list[exp.Expr], limbs: list[exp.Expr]) -> exp.Expr:
    return call(FROM_LIMBS, exp.Literal.string(kind), count, *strange, call("array", *limbs))


def _from_values(kind: str, values: exp.Expr) -> exp.Expr:
    return call(FROM_VALUES, exp.Literal.string(kind), values)


# --- the wide form ------------------------------------------------------------------------------


def widened(text: str) -> str:
    """Return a canonical query in the form that has room for every double."""
    query = parsed(text)
    for node in list(query.find_all(exp.Anonymous)):
        if called(node) == FROM_LIMBS:
            kind, count = node.expressions[0].name, node.expressions[1]
            node.replace(_wide_sum(count) if kind == "sum" else _wide_moment(kind, count))
    return written(query)


def _wide_sum(count: exp.Expr) -> exp.Expr:
    """Return a sum with a limb for each place that a double can have."""
    number = _aggregate_in(count).expressions[0]
    strange, limbs = _limb_sums("sum", [number], lambda name, part: _like(count, name, part))
    return _from_limbs("sum", count.copy(), strange, limbs)


def _wide_moment(kind: str, count: exp.Expr) -> exp.Expr:
    """Return a moment over the values themselves."""
    _, one, other = _aggregate_in(count).expressions[0].expressions
    both = filled("CASE WHEN a IS NOT NULL AND b IS NOT NULL THEN struct(a, b) END", a=one, b=other)
    return _from_values(kind, _like(count, "collect_list", both))


def _aggregate_in(whole: exp.Expr) -> exp.Expr:
    while isinstance(whole, exp.Filter | exp.Window):
        whole = whole.this
    return whole


def _like(whole: exp.Expr, name: str, argument: exp.Expr) -> exp.Expr:
    """Return another aggregate with the filter and window of one."""
    made = whole.copy()
    inner = _aggregate_in(made)
    if inner is made:
        return call(name, argument)
    inner.replace(call(name, argument))
    return made


# --- one form of equal numbers ------------------------------------------------------------------


def normalised(part: exp.Expr, kind: exp.DataType, depth: int = 0) -> exp.Expr | None:
    """Return a value whose zeros have no sign and whose NaN have one form; None if it has no such numbers.

    Keys of maps are made so by Spark itself.
    """
    if kind.is_type("double", "float"):
        return plain(part, "double" if kind.is_type("double") else "float")
    if kind.is_type("array", "map"):
        inner = kind.expressions[-1]
        names = [exp.to_identifier(f"tl_{letter}{depth}") for letter in "kv"]
        value = exp.column(names[1].copy())
        made = normalised(value, inner, depth + 1)
        if made is None:
            return None
        is_map = kind.is_type("map")
        function = exp.Lambda(this=made, expressions=names if is_map else names[1:])
        return call("transform_values" if is_map else "transform", part, function)
    if kind.is_type("struct"):
        return _normalised_struct(part, kind, depth)
    return None


def plain(number: exp.Expr, kind: str) -> exp.Expr:
    """Return a number whose zero has no sign and whose NaN has one form."""
    zero = "0D" if kind == "double" else "0F"
    return filled(f"nanvl(x + {zero}, {kind}('NaN'))", x=number)


def _normalised_struct(part: exp.Expr, kind: exp.DataType, depth: int) -> exp.Expr | None:
    fields: list[exp.Expr] = []
    changed = False
    for field in kind.expressions:
        value = exp.Dot(this=part.copy(), expression=exp.to_identifier(field.name, quoted=True))
        made = normalised(value, field.args["kind"], depth)
        changed = changed or made is not None
        fields += [exp.Literal.string(field.name), value if made is None else made]
    if not changed:
        return None
    return exp.If(
        this=exp.Is(this=part.copy(), expression=exp.Null()),
        true=exp.Null(),
        false=call("named_struct", *fields),
    )
