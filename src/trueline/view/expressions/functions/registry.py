"""The functions of the language: what each takes, what it means, and how it compares with Spark's.

`docs/expressions.md` lists them from here. A function is found by its name
when an expression is read, checks the types of what it takes before a row is
read, and gives no error for any value: what has no answer is null.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cache
from typing import Any, Final, TypeAlias

import pyarrow as pa

from trueline.errors import InputError, SchemaError
from trueline.view.expressions.hints import FUNCTIONS
from trueline.view.expressions.operands import Operand, as_array, is_number, plain

Kernel: TypeAlias = Callable[..., Any]

# What would not be the same each time a view is read.
UNREPEATABLE: Final = frozenset(
    [
        "rand",
        "random",
        "randn",
        "uuid",
        "now",
        "current_date",
        "current_timestamp",
        "curdate",
        "localtimestamp",
        "shuffle",
        "monotonically_increasing_id",
        "spark_partition_id",
        "input_file_name",
        "current_user",
        "user",
    ]
)
AGGREGATES: Final = frozenset(
    [
        "count",
        "sum",
        "avg",
        "mean",
        "min",
        "max",
        "first",
        "last",
        "any_value",
        "stddev",
        "variance",
        "collect_list",
        "collect_set",
        "row_number",
        "rank",
        "dense_rank",
        "lag",
        "lead",
        "median",
        "percentile",
        "quantile",
        "count_distinct",
        "n_unique",
        "collect",
        "std",
        "var",
    ]
)
# What takes vectors in the encoding they come in.
TAKES_SPARSE: Final = frozenset({"size", "item", "element_at", "isnull", "isnotnull"})
ALIASES: Final = {
    "char_length": "length",
    "character_length": "length",
    "substr": "substring",
    "startswith": "starts_with",
    "endswith": "ends_with",
    "pow": "power",
    "ceiling": "ceil",
    "signum": "sign",
    "log": "ln",
    "dayofmonth": "day",
    "week": "weekofyear",
    "unix_timestamp": "unix_seconds",
    "ifnull": "coalesce",
    "nvl": "coalesce",
    "regexp_like": "rlike",
    "regexp": "rlike",
    "dateadd": "date_add",
}


@dataclass(frozen=True)
class Function:
    """One function: what it takes (see `KINDS`; `?` may be left out, `*` any number) and what it does."""

    name: str
    takes: tuple[str, ...]
    says: str
    spark: str  # how it differs from Spark's; empty if it does not, "–" if Spark has none
    run: Kernel

    @property
    def written(self) -> str:
        """How it is called."""
        shown = [kind.rstrip("?*") for kind in self.takes]
        marks = [
            f"[{s}]" if k.endswith("?") else f"{s}, …" if k.endswith("*") else s
            for s, k in zip(shown, self.takes, strict=True)
        ]
        return f"{self.name}({', '.join(marks)})"


_FOUND: Final[dict[str, Function]] = {}


def function(name: str, *takes: str, says: str, spark: str = "") -> Callable[[Kernel], Kernel]:
    """Add a function to the language."""

    def added(run: Kernel) -> Kernel:
        _FOUND[name] = Function(name, takes, says, spark, run)
        return run

    return added


@cache
def functions() -> dict[str, Function]:
    """Return all functions by name."""
    from trueline.view.expressions.functions import (
        conditional,
        date_format,
        numeric,
        regexp,
        string,
        temporal,
        vector,
    )

    assert all((conditional, date_format, numeric, regexp, string, temporal, vector))
    return dict(sorted(_FOUND.items()))


def known(name: str, count: int, text: str) -> str:
    """Return the name under which a function is known here, or say what is wrong with the call."""
    name = ALIASES.get(name.lower(), name.lower())
    found = functions().get(name)
    if found is None:
        raise InputError(
            f"there is no function {name} in the language of expressions: {text:.200}",
            remedy=_instead(name),
            code="BadExpression",
            function=name,
        )
    least = sum(not kind.endswith(("?", "*")) for kind in found.takes)
    most = None if any(kind.endswith("*") for kind in found.takes) else len(found.takes)
    if count < least or (most is not None and count > most):
        raise InputError(
            f"{name} is given {count} arguments: {text:.200}",
            remedy=f"write {found.written}",
            code="BadExpression",
            function=name,
        )
    return name


def _instead(name: str) -> str:
    if name in UNREPEATABLE:
        return "it would not be the same each time: give the value as a parameter"
    if name in AGGREGATES:
        return "it is about several rows: use group_by(…).agg(…) or window(…)"
    if name in FUNCTIONS:
        return f"write {FUNCTIONS[name]}"
    near = get_close_matches(name, functions(), n=1, cutoff=0.7)
    return f"did you mean {near[0]}?" if near else "docs/expressions.md lists the functions"


def call(name: str, sides: list[Operand]) -> Operand:
    """Evaluate a function; types that it does not take are refused, also where there are no rows."""
    found = functions()[name]
    kinds = list(found.takes)
    if kinds and kinds[-1].endswith("*"):
        kinds += [kinds[-1]] * (len(sides) - len(kinds))
    taken = [_taken(found, kind.rstrip("?*"), side) for kind, side in zip(kinds, sides, strict=False)]
    if any(kind.rstrip("?*") == "values" for kind in kinds):
        return found.run(*taken)  # they choose among sides, and handle both kinds themselves
    rows = next((len(side) for side in taken if isinstance(side, pa.Array | pa.ChunkedArray)), None)
    wide = 1 if rows is None else rows
    given = [
        as_array(side, wide) if isinstance(side, pa.Scalar) and not _is_constant(kind) else side
        for side, kind in zip(taken, kinds, strict=False)
    ]
    result = found.run(*given)
    return result[0] if rows is None else result


def _is_constant(kind: str) -> bool:
    return kind.startswith("const") or kind.rstrip("?*") == "pattern"


def _taken(found: Function, kind: str, side: Operand) -> Any:
    """Check what a function is given, and bring it to the form it takes."""
    check, meant, become = KINDS[kind]
    side = plain(side)
    if pa.types.is_null(side.type) and become is not None:
        side = side.cast(become)
    if not check(side.type):
        raise SchemaError(
            f"{found.name} takes {meant}, not {side.type}",
            remedy=f"write {found.written}; cast(x as …) makes one of another type",
            code="TypeMismatch",
            function=found.name,
        )
    if not kind.startswith("const"):
        return side
    if not isinstance(side, pa.Scalar) or not side.is_valid:
        raise InputError(
            f"{found.name} needs a constant there, the same for all rows",
            remedy=f"write {found.written} with a value or a :parameter",
            code="BadExpression",
            function=found.name,
        )
    return side.as_py()


def _is_moment(kind: pa.DataType) -> bool:
    return bool(pa.types.is_timestamp(kind) or pa.types.is_date(kind))


def _is_clock(kind: pa.DataType) -> bool:
    return bool(_is_moment(kind) or pa.types.is_time(kind))


def _is_vector(kind: pa.DataType) -> bool:
    sparse = pa.types.is_struct(kind) and [each.name for each in kind] == ["size", "indices", "values"]
    return bool(pa.types.is_list(kind) or pa.types.is_fixed_size_list(kind) or sparse)


def _is_readable(kind: pa.DataType) -> bool:
    return bool(_is_moment(kind) or pa.types.is_string(kind))


def _anything(_: pa.DataType) -> bool:
    return True


# kind → (which types it is, how it is said, what a bare null becomes)
KINDS: Final[dict[str, tuple[Callable[[pa.DataType], bool], str, pa.DataType | None]]] = {
    "text": (pa.types.is_string, "text", pa.string()),
    "pattern": (pa.types.is_string, "text", pa.string()),
    "const text": (pa.types.is_string, "text", pa.string()),
    "number": (is_number, "a number", pa.float64()),
    "float": (pa.types.is_floating, "a float", pa.float64()),
    "whole": (pa.types.is_integer, "a whole number", pa.int64()),
    "const whole": (pa.types.is_integer, "a whole number", pa.int64()),
    "moment": (_is_moment, "a date or a timestamp", pa.timestamp("us", "UTC")),
    "clock": (_is_clock, "a date, a timestamp or a time of day", pa.timestamp("us", "UTC")),
    "readable": (_is_readable, "text, a date or a timestamp", pa.string()),
    "vector": (_is_vector, "a vector", None),
    "values": (_anything, "anything", None),
}
