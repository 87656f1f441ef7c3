"""The types of parts of a query: Spark says them, when it is asked for a query that shows those parts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from sqlglot import exp
from sqlglot.errors import SqlglotError

from trueline.workspace.derive import exact
from trueline.workspace.derive.spark_sql import own_calls, parsed, written

# The columns of a query with Spark's names of their types; the query is analysed, not run.
Types: TypeAlias = Callable[[str], Mapping[str, str]]

_INTEGERS: Final = ("tinyint", "smallint", "int", "bigint")
_FLOAT_WORD: Final = re.compile(r"\b(double|float)\b")
_UNORDERED_WORD: Final = re.compile(r"\b(map<|variant\b|geometry\b|geography\b|calendarinterval\b)")
_COLLATED: Final = re.compile(r"\bcollate (?!utf8_binary\b)", re.IGNORECASE)
_FROM: Final = ("from_", "from", "joins", "laterals", "with_", "with")


class NotCanonical(Exception):
    """What a query has that no canonical form is known for: a stable code, a sentence, what to write."""

    def __init__(self, code: str, reason: str, remedy: str = "") -> None:
        super().__init__(reason)
        self.code = code
        self.reason = reason
        self.remedy = remedy or "write it with sum, count, min, max or avg"


@dataclass(frozen=True, slots=True)
class PartType:
    """A type by Spark's name of it."""

    name: str

    @property
    def is_float(self) -> bool:
        """Whether it is a floating-point number."""
        return self.name in ("double", "float")

    @property
    def is_integer(self) -> bool:
        """Whether it is a whole number."""
        return self.name in _INTEGERS

    @property
    def is_decimal(self) -> bool:
        """Whether it is a decimal."""
        return self.name.startswith("decimal")

    @property
    def digits(self) -> int:
        """How many digits a decimal has."""
        return int(self.name[len("decimal(") :].partition(",")[0])

    @property
    def scale(self) -> int:
        """How many of the digits of a decimal come after the point."""
        return int(self.name.rstrip(")").partition(",")[2])

    @property
    def is_orderable(self) -> bool:
        """Whether values of it have an order."""
        return _UNORDERED_WORD.search(self.name) is None

    @property
    def is_nested(self) -> bool:
        """Whether its values are made of others."""
        return self.name.startswith(("array<", "struct<", "map<"))

    @property
    def is_collated(self) -> bool:
        """Whether texts of other bytes may be equal."""
        return _COLLATED.search(self.name) is not None

    def normalised(self, part: exp.Expr) -> exp.Expr | None:
        """Return a part of this type with one form of equal numbers; None if it stays as it is."""
        if _FLOAT_WORD.search(self.name) is None:
            return None
        try:
            kind = exp.DataType.build(self.name, dialect="spark")
        except (SqlglotError, ValueError):
            raise NotCanonical("types_unknown", f"the type {self.name} cannot be read") from None
        return exact.normalised(part.copy(), kind)


class PartTypes:
    """The types of the parts of one SELECT that were asked for, while it is rewritten."""

    def __init__(self) -> None:
        # Parts are kept: the identity of what is gone may be that of something new.
        self._found: dict[int, tuple[exp.Expr, PartType]] = {}

    def get(self, part: exp.Expr) -> PartType | None:
        """Return the type of a part; None for what was not there when types were asked for."""
        found = self._found.get(id(part))
        return None if found is None else found[1]

    def put(self, part: exp.Expr, kind: PartType) -> None:
        """Say the type of a part."""
        self._found[id(part)] = part, kind


def types_in(
    select: exp.Select, parts: Sequence[exp.Expr], aggregates: frozenset[str], ask: Types
) -> PartTypes:
    """Return the types of parts of one SELECT; `aggregates` are the functions that need its groups."""
    found = PartTypes()

    def is_aggregate(part: exp.Expr) -> bool:
        calls = (node for node in part.find_all(exp.Anonymous) if node.find_ancestor(exp.Select) is select)
        return any(call.name.lower() in aggregates for call in calls)

    grouped = [part for part in parts if is_aggregate(part)]
    plain = [part for part in parts if not is_aggregate(part)]
    for some, groups in ((plain, False), (grouped, True)):
        _ask(select, some, groups, ask, found)
    return found


def _ask(select: exp.Select, parts: Sequence[exp.Expr], grouped: bool, ask: Types, found: PartTypes) -> None:
    if not parts:
        return
    texts = list(dict.fromkeys(written(part) for part in parts))
    named = {text: f"c{at}" for at, text in enumerate(texts)}
    known = _asked(select, {name: text for text, name in named.items()}, grouped, ask)
    for part in parts:
        found.put(part, PartType(known[named[written(part)]]))


def _asked(select: exp.Select, named: Mapping[str, str], grouped: bool, ask: Types) -> Mapping[str, str]:
    """Ask for the types of expressions that a SELECT could show, where it must be beside its outer one."""
    kept = {*_FROM, *(("group",) if grouped else ())}
    probe = _with_sources(select, kept)
    probe.set("expressions", [exp.alias_(parsed(text), name) for name, text in named.items()])
    try:
        return ask(written(_with_outer(select, probe)))
    except Exception as error:
        outer = select.find_ancestor(exp.Select)
        if outer is not None:
            beside = _with_sources(outer, set(_FROM))
            lateral = exp.Lateral(
                this=exp.Subquery(this=probe), alias=exp.TableAlias(this=exp.to_identifier("tl"))
            )
            beside.append("joins", exp.Join(this=lateral, kind="CROSS"))
            beside.set("expressions", [exp.column(name) for name in named])
            try:
                return ask(written(_with_outer(outer, beside)))
            except Exception:  # noqa: BLE001, S110 (what is said is the first one)
                pass
        shown = next(iter(named.values()))
        raise NotCanonical("types_unknown", f"the type of {shown} cannot be found") from error


def _with_sources(select: exp.Select, kept: set[str]) -> exp.Select:
    taken = {name: value for name, value in select.args.items() if name in kept and value}
    return exp.Select(**{name: _copied(value) for name, value in taken.items()})


def _copied(value: Any) -> Any:
    return [item.copy() for item in value] if isinstance(value, list) else value.copy()


def _with_outer(select: exp.Select, probe: exp.Select) -> exp.Select:
    for outer in _outer_withs(select):
        probe = _with_before(outer, probe)
    return probe


def _outer_withs(select: exp.Select) -> Iterator[exp.With]:
    """Yield the WITH clauses that a part of a query sees, the nearest first."""
    node: Any = select
    while node.parent is not None:
        outer = node.parent
        if isinstance(outer, exp.With):
            before = outer.copy()
            before.set("expressions", before.expressions[: outer.expressions.index(node)])
            if before.expressions:
                yield before
            node = outer.parent
            continue
        found = outer.args.get("with_") or outer.args.get("with")
        if found is not None and found is not node:
            yield found.copy()
        node = outer


def _with_before(outer: exp.With, probe: exp.Select) -> exp.Select:
    name = "with_" if "with_" in exp.Select.arg_types else "with"
    inner = probe.args.get(name)
    if inner is not None:
        outer.set("expressions", [*outer.expressions, *inner.expressions])
    probe.set(name, outer)
    return probe


def calls_of(select: exp.Select, names: frozenset[str]) -> list[exp.Anonymous]:
    """Return the calls of some functions that belong to a SELECT itself, inner ones first."""
    found = [call for call in own_calls(select) if call.name.lower() in names]
    return found[::-1]
