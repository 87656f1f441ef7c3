"""Aggregates as they are written in `agg` and in `window`: `sum(price)`, `sum(a) / count(*)`.

An aggregate is a call; what it is applied to is a column or an expression, which is computed first. Around
the calls there may be an expression, which is computed from their results.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from fractions import Fraction
from itertools import pairwise
from typing import Final

import pyarrow as pa

from trueline import types as t
from trueline.errors import InputError, SchemaError
from trueline.kernel import aggregates as s
from trueline.kernel import moments, order_statistics
from trueline.kernel.partial_aggregates import PartialAggregate, partial_aggregate
from trueline.view.expressions import named_in
from trueline.view.plan.node import Node
from trueline.view.plan.with_columns import with_columns
from trueline.view.schema import Column, Field

_NAME: Final = re.compile(r"`((?:[^`]|``)+)`|([^\W\d]\w*)")
# What is quoted or a comment is passed over as a whole.
_TOKEN: Final = re.compile(
    r"""(?P<quoted>'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/)"""
    r"""|(?P<word>[^\W\d]\w*)|(?P<number>\d[\w.]*)|(?P<mark>\S)""",
    re.DOTALL,
)
_DISTINCT: Final = re.compile(r"\s*distinct\b\s*", re.IGNORECASE)
_DIRECTION: Final = re.compile(r"(.*\S)\s+(asc|desc)\s*", re.IGNORECASE | re.DOTALL)
_FRACTION: Final = re.compile(r"[01]?\.?\d{0,9}")
# How many rows before or after a row can be asked for.
_FARTHEST: Final = 1 << 31


@dataclass(frozen=True)
class Aggregate:
    """One aggregate: what it makes of which types, where it may stand, and what may follow its argument."""

    make: s.AggregateKernel
    result: Callable[[t.Type], t.Type | None]
    takes: str
    groups: bool = True
    windows: bool = True
    second: str = ""  # "steps": a number of rows; "fraction": from 0 to 1; "direction": asc or desc


@dataclass(frozen=True)
class AggregateCall:
    """An aggregate that was asked for: its name, of which column of the input, with which result.

    `k` is what follows the argument: the rows of a lag, the place of a quantile in billionths, 1 for a rank
    from the largest value down. `given` is the type of the column.
    """

    name: str
    text: str
    column: int | None
    kind: Aggregate
    type: t.Type
    k: int = 0
    given: t.Type | None = None

    @property
    def partial(self) -> PartialAggregate | None:
        """How it is made in parts; None where it needs all rows of a group at once."""
        return partial_aggregate(self.kind.make, None if self.given is None else self.given.arrow)

    @property
    def field(self) -> Field:
        """The column it makes; what counts rows is never null."""
        counts = (s.count, s.count_distinct, s.row_number, order_statistics.rank)
        return Field(self.name, self.type, nullable=self.kind.make not in counts)

    def of(self, values: pa.Array | None, spans: s.Spans) -> pa.Array:
        """Return its values."""
        return self.kind.make(values, spans, self.type, self.k)


# --- types ----------------------------------------------------------------------------------


def _sum_type(kind: t.Type) -> t.Type | None:
    if isinstance(kind, t.Decimal):
        return t.Decimal(38 if kind.precision <= 38 else 76, kind.scale)
    if kind in t.FLOATS:
        return t.float64
    if kind in t.NUMBERS:
        return t.uint64 if pa.types.is_unsigned_integer(kind.arrow) else t.int64
    return kind if isinstance(kind, t.Duration) else None


def _average_type(kind: t.Type) -> t.Type | None:
    if isinstance(kind, t.Decimal):
        most = 38 if kind.precision <= 38 else 76
        scale = min(kind.scale + 4, most)
        return t.Decimal(most, scale)
    return t.float64 if kind in t.NUMBERS else kind if isinstance(kind, t.Duration) else None


def _number(_kind: t.Type) -> t.Type | None:
    return t.int64


def _number_of_single(kind: t.Type) -> t.Type | None:
    return t.int64 if kind.is_primitive else None


def _same(kind: t.Type) -> t.Type | None:
    return kind


def _ordered(kind: t.Type) -> t.Type | None:
    return kind if kind.has_order else None


def _rank_type(kind: t.Type) -> t.Type | None:
    return t.int64 if kind.has_order else None


def _truth(kind: t.Type) -> t.Type | None:
    return kind if kind == t.boolean else None


def _vector(kind: t.Type) -> t.Type | None:
    return t.Vector(kind) if kind.is_primitive else None


def _double(kind: t.Type) -> t.Type | None:
    return t.float64 if kind in t.NUMBERS or isinstance(kind, t.Decimal) else None


_NUMBERS: Final = "numbers and decimals"
_KINDS: Final[Mapping[str, Aggregate]] = {
    "count": Aggregate(s.count, _number, "any column"),
    "count_distinct": Aggregate(s.count_distinct, _number_of_single, "single values", windows=False),
    "sum": Aggregate(s.total, _sum_type, "numbers, decimals and durations"),
    "avg": Aggregate(s.average, _average_type, "numbers, decimals and durations"),
    "stddev": Aggregate(moments.deviation, _double, _NUMBERS),
    "variance": Aggregate(moments.variance, _double, _NUMBERS),
    "median": Aggregate(order_statistics.median, _double, _NUMBERS),
    "quantile": Aggregate(order_statistics.quantile, _double, _NUMBERS, second="fraction"),
    "min": Aggregate(s.smallest, _ordered, "single values"),
    "max": Aggregate(s.largest, _ordered, "single values"),
    "first": Aggregate(s.first, _same, "any column"),
    "last": Aggregate(s.last, _same, "any column"),
    "collect": Aggregate(s.collect, _vector, "single values"),
    "any": Aggregate(s.any_true, _truth, "booleans"),
    "all": Aggregate(s.all_true, _truth, "booleans"),
    "row_number": Aggregate(s.row_number, _number, "nothing", groups=False),
    "rank": Aggregate(order_statistics.rank, _rank_type, "single values", groups=False, second="direction"),
    "lag": Aggregate(s.lag, _same, "any column", groups=False, second="steps"),
    "lead": Aggregate(s.lead, _same, "any column", groups=False, second="steps"),
}
_ALIASES: Final = {
    "mean": "avg",
    "std": "stddev",
    "stddev_samp": "stddev",
    "var": "variance",
    "var_samp": "variance",
    "percentile": "quantile",
    "n_unique": "count_distinct",
    "nunique": "count_distinct",
    "collect_list": "collect",
    "bool_or": "any",
    "bool_and": "all",
    "every": "all",
}
# What is not an aggregate here, and what to write.
_INSTEAD: Final = {
    "percentile_approx": "quantile(x, 0.5) is exact",
    "approx_percentile": "quantile(x, 0.5) is exact",
    "any_value": "first(x)",
    "size": "count(*)",
    "len": "count(*)",
}
_IN_GROUPS: Final = _INSTEAD | {
    "approx_count_distinct": "count_distinct(x) is exact",
    "collect_set": "collect(x), after distinct()",
    "mode": "group by it, then sort by count(*)",
    "stddev_pop": "stddev(x) * sqrt((count(x) - 1) / count(x))",
    "var_pop": "variance(x) * (count(x) - 1) / count(x)",
}
_IN_WINDOWS: Final = _INSTEAD | {"dense_rank": "rank(x), which leaves gaps"}


def needs_all_rows(call: AggregateCall) -> bool:
    """Say whether it depends on all rows with an equal key, however far from a row they are."""
    return call.kind.make is order_statistics.rank


# --- reading --------------------------------------------------------------------------------


@dataclass(frozen=True)
class WrittenCall:
    """A call in a text: from where to where, of which aggregate, of what."""

    start: int
    stop: int
    word: str
    arguments: tuple[str, ...]
    distinct: bool = False


@dataclass
class _Open:
    """A bracket that is not closed yet; `word` if it is that of an aggregate."""

    word: str | None
    start: int
    parts: list[int] = field(default_factory=list)


def written(text: str) -> Iterator[WrittenCall]:
    """Yield the aggregates in a text, those inside of others too; what is quoted holds none.

    >>> [(call.word, call.arguments) for call in written("sum(a) / quantile(b + 1, 0.9)")]
    [('sum', ('a',)), ('quantile', ('b + 1', '0.9'))]
    """
    open_: list[_Open] = []
    before: re.Match[str] | None = None
    for token in _TOKEN.finditer(text):
        if token["mark"] == "(":
            word = before["word"].lower() if before is not None and before["word"] else ""
            name = _ALIASES.get(word, word)
            known = before is not None and name in _KINDS
            open_.append(_Open(name if known else None, before.start() if before else 0, [token.end()]))
        elif token["mark"] == "," and open_:
            open_[-1].parts += [token.start(), token.end()]
        elif token["mark"] == ")" and open_:
            closed = open_.pop()
            if closed.word is not None:
                ends = [*closed.parts, token.start()]
                parts = [text[a:b].strip() for a, b in zip(ends[::2], ends[1::2], strict=True)]
                yield _call(closed, parts, token.end())
        before = token


def _call(found: _Open, parts: list[str], stop: int) -> WrittenCall:
    assert found.word is not None
    distinct = _DISTINCT.match(parts[0])
    if distinct and parts[0][distinct.end() :]:
        return WrittenCall(
            found.start, stop, found.word, (parts[0][distinct.end() :], *parts[1:]), distinct=True
        )
    return WrittenCall(found.start, stop, found.word, () if parts == [""] else tuple(parts))


@dataclass(frozen=True)
class ParsedAggregate:
    """A text of `agg` or `window`: the aggregates in it, and the expression that is computed from them."""

    name: str
    text: str
    calls: tuple[WrittenCall, ...]

    @property
    def is_one_call(self) -> bool:
        """Whether it is an aggregate and nothing else."""
        only = len(self.calls) == 1
        return only and not (self.text[: self.calls[0].start] + self.text[self.calls[0].stop :]).strip()

    def expression(self, names: Mapping[str, str]) -> str:
        """Return it with the columns that hold the aggregates in their places, by their texts."""
        found, at = "", 0
        for call in self.calls:
            name = names[self.text[call.start : call.stop]].replace("`", "``")
            found += f"{self.text[at : call.start]}`{name}`"
            at = call.stop
        return found + self.text[at:]


def read(name: str, text: object, *, window: bool) -> ParsedAggregate:
    """Find the aggregates of a text; one that is not there, or is inside another, is an error."""
    calls = sorted(written(text), key=lambda call: call.start) if isinstance(text, str) else []
    if not isinstance(text, str) or not calls:
        raise _not_an_aggregate(name, text, window=window)
    for outer, inner in pairwise(calls):
        if inner.start < outer.stop:
            raise _bad(
                f"{name} = {text:.200}: {inner.word} is inside {outer.word}",
                "aggregate twice: group_by(…).agg(…), then group_by(…).agg(…) of that",
                text,
            )
    found = ParsedAggregate(name, text, tuple(calls))
    if window and not found.is_one_call:
        raise _not_an_aggregate(name, text, window=True)
    return found


def _not_an_aggregate(name: str, text: object, *, window: bool) -> InputError:
    known = [word for word, each in _KINDS.items() if (each.windows if window else each.groups)]
    word = match[1].lower() if isinstance(text, str) and (match := re.match(r"\s*(\w+)", text)) else ""
    near = get_close_matches(word, known, n=1, cutoff=0.75)
    instead = _IN_WINDOWS if window else _IN_GROUPS
    if word in instead:
        remedy = f"instead of {word}: {instead[word]}"
    elif near and near[0] != word:
        remedy = f"did you mean {near[0]}?"
    else:
        remedy = (
            f"write one of {', '.join(known)} of a column or an expression, as in sum(x * 2)"
            f"{'; compute with the results in with_columns()' if window else ''}"
        )
    return _bad(
        f"{name} = {text!r:.200} is not an aggregate of {'a window' if window else 'groups'}", remedy, text
    )


def _bad(problem: str, remedy: str, text: object) -> InputError:
    return InputError(problem, remedy=remedy, code="BadExpression", expression=str(text))


# --- binding --------------------------------------------------------------------------------


def bound(
    below: Node, texts: Mapping[str, str], parameters: Mapping[str, object], *, window: bool
) -> tuple[Node, list[AggregateCall]]:
    """Bind aggregates to columns of the input, to which what they compute first is added."""
    computed: dict[str, str] = {}
    parsed = []
    for name, text in texts.items():
        (call,) = read(name, text, window=window).calls
        kind, argument, k = _asked(name, text, call, window=window)
        if argument is not None and _column(argument) is None:
            computed.setdefault(argument, _unused(argument, below))
        parsed.append((name, text, kind, argument, k))
    node = below
    if computed:
        used = {each for text in computed for each in named_in(text)}
        given = {each: value for each, value in parameters.items() if each in used}
        node = with_columns(below, {name: text for text, name in computed.items()}, given)
    found = []
    for name, text, kind, argument, k in parsed:
        plain = None if argument is None else _column(argument)
        column = None if argument is None else node.schema[plain or computed[argument]]
        found.append(_typed(name, text, kind, column, k))
    return node, found


def _unused(argument: str, below: Node) -> str:
    """Name what is computed first as it is written; no column of the input must be hidden by it."""
    name = argument
    while name in below.schema:
        name += "'"
    return name


def _asked(name: str, text: str, call: WrittenCall, *, window: bool) -> tuple[Aggregate, str | None, int]:
    """Return the aggregate, what it is applied to (None: rows), and what follows."""
    word = "count_distinct" if call.distinct and call.word == "count" else call.word
    kind = _KINDS[word]
    if not (kind.windows if window else kind.groups) or (call.distinct and word != "count_distinct"):
        raise _not_an_aggregate(name, text, window=window)
    arguments = list(call.arguments)
    if word == "row_number" or (word == "count" and arguments in ([], ["*"])):
        if arguments not in ([], ["*"]):
            raise _bad(f"{name} = {text:.200}: row_number takes nothing", "write row_number()", text)
        return kind, None, 0
    k = _second(name, text, kind, arguments)
    if len(arguments) != 1 or arguments[0] in ("", "*"):
        raise _bad(f"{name} = {text!r:.200} is not {word} of one column", f"write {_form(word, kind)}", text)
    return kind, arguments[0], k


def _form(word: str, kind: Aggregate) -> str:
    more = {"steps": ", 1", "fraction": ", 0.5", "direction": " desc"}.get(kind.second, "")
    return f"{word}(x{more})"


def _second(name: str, text: str, kind: Aggregate, arguments: list[str]) -> int:
    """Take what follows the argument out of the arguments."""
    if kind.second == "direction" and len(arguments) == 1:
        direction = _DIRECTION.fullmatch(arguments[0])
        if direction is None:
            return 0
        arguments[0] = direction[1]
        return int(direction[2].lower() == "desc")
    if kind.second == "steps":
        if len(arguments) < 2:
            return 1
        given = arguments.pop()
        if not given.isdecimal() or int(given) >= _FARTHEST:
            raise _bad(f"{name} = {text:.200}: {given:.40} is not a number of rows", "write lag(x, 1)", text)
        return int(given)
    if kind.second == "fraction" and len(arguments) == 2:
        given = arguments.pop()
        if not _FRACTION.fullmatch(given) or not any(map(str.isdigit, given)) or Fraction(given) > 1:
            raise _bad(
                f"{name} = {text:.200}: {given:.40} is not a number from 0 to 1 of at most nine digits",
                "write quantile(x, 0.9)",
                text,
            )
        return int(Fraction(given) * order_statistics.WHOLE)
    if kind.second == "fraction":
        raise _bad(f"{name} = {text:.200} does not say which quantile", "write quantile(x, 0.9)", text)
    return 0


def _column(argument: str) -> str | None:
    """Return the name if the argument is nothing but a column."""
    found = _NAME.fullmatch(argument)
    if found is None or argument.lower() in ("null", "true", "false"):
        return None
    return found[2] or found[1].replace("``", "`")


def _typed(name: str, text: str, kind: Aggregate, column: Column | None, k: int) -> AggregateCall:
    given = t.int64 if column is None else column.type
    result = kind.result(given)
    if result is None:
        raise SchemaError(
            f"{name} = {text} is applied to type {given}; it takes {kind.takes}",
            remedy="choose another column, or convert it first",
            code="TypeMismatch",
            found=str(given),
        )
    if column is None:
        return AggregateCall(name, text, None, kind, result, k)
    return AggregateCall(name, text, column.index, kind, result, k, given)


def needed(asked: Sequence[AggregateCall]) -> tuple[int, ...]:
    """Return the columns that aggregates read."""
    return tuple(dict.fromkeys(each.column for each in asked if each.column is not None))
