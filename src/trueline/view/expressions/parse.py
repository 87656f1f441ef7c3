"""From text to the parts of an expression; what is not in the language is refused by name and place."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import date, datetime, time
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa
import sqlglot
from sqlglot import expressions as sql
from sqlglot.errors import SqlglotError

from trueline import types
from trueline.errors import InputError
from trueline.view.expressions import tree as t
from trueline.view.expressions.dialect import Language
from trueline.view.expressions.faults import Spot, fault_of, part_of, placed, pointed
from trueline.view.expressions.functions.registry import known
from trueline.view.expressions.hints import of_part, of_text
from trueline.view.expressions.literals import as_date, as_timestamp, span

_LONGEST: Final = 100_000
_DEEPEST: Final = 200
_ESCAPED: Final = re.compile(r"([\\%_])")
_COMPARE: Final[dict[type, t.Comparing]] = {
    sql.EQ: "=",
    sql.NEQ: "<>",
    sql.LT: "<",
    sql.LTE: "<=",
    sql.GT: ">",
    sql.GTE: ">=",
}
_ARITHMETIC: Final[dict[type, t.ArithmeticOp]] = {
    sql.Add: "+",
    sql.Sub: "-",
    sql.Mul: "*",
    sql.Div: "/",
    sql.Mod: "%",
}
# What the parser may say of a part beside `this` and `expression`.
_KNOWN: Final[dict[type, tuple[str, ...]]] = {
    sql.Between: ("low", "high", "symmetric"),
    sql.In: ("expressions", "field", "query", "unnest"),
    sql.Like: ("negate",),
    sql.ILike: ("negate",),
    sql.Literal: ("is_string",),
    sql.Cast: ("to",),
    sql.TryCast: ("to",),
    sql.Column: ("table", "db", "catalog"),
    sql.Div: ("typed", "safe"),
    sql.DPipe: ("safe",),
    sql.Anonymous: ("expressions",),
    sql.If: ("true", "false"),
    sql.Case: ("ifs", "default"),
    sql.Bracket: ("expressions",),
    sql.Interval: ("unit",),
}
LANGUAGE: Final = "docs/expressions.md describes the language"


def parse(text: object, parameters: Mapping[str, object]) -> t.Expr:
    """Read an expression; every parameter given must be used, and every one used given."""
    if not isinstance(text, str) or not text.strip():
        raise InputError(
            f"the expression is {text!r:.80}", remedy='write one, as in "x > :a"', code="BadExpression"
        )
    if len(text) > _LONGEST:
        raise InputError(
            f"an expression of {len(text):,} characters is too long",
            remedy="give long lists as a parameter: x in :wanted",
            code="BadExpression",
        )
    try:
        found = sqlglot.parse_one(text, read=Language, into=sql.Condition)
    except (SqlglotError, RecursionError, LookupError, AttributeError, TypeError, ValueError) as error:
        # The parser itself stumbles over some texts that break off.
        raise _unreadable(text, error) from None
    reader = _Reader(text, parameters)
    node = reader.read(found, 0)
    unused = sorted(set(parameters) - reader.used)
    if unused:
        raise InputError(
            f"the expression has no parameter {unused[0]!r}: {text:.200}",
            remedy=f"write :{unused[0]} where its value is meant, or leave it out",
            code="UnknownParameter",
            parameter=unused[0],
        )
    return node


def _unreadable(text: str, error: Exception) -> InputError:
    why, spot = fault_of(text, error)
    return InputError(
        f"cannot read the expression: {why}{_shown(text, spot)}",
        remedy=of_text(text) or LANGUAGE,
        code="BadExpression",
        expression=text,
        line=spot.line if spot else None,
        column=spot.column if spot else None,
    )


def _shown(text: str, spot: Spot | None) -> str:
    """The place in a text, or the text where that is not known."""
    return f": {text:.200}" if spot is None else f"{placed(spot)}{pointed(text, spot)}"


_NOTHING: Final = t.Value(pa.scalar(None))


class _Reader:
    """Turns what the parser found into our parts."""

    def __init__(self, text: str, parameters: Mapping[str, object]) -> None:
        self.text = text
        self.parameters = parameters
        self.used: set[str] = set()

    def read(self, found: Any, depth: int) -> t.Expr:
        if depth > _DEEPEST:
            raise self.refused("more than 200 levels of nesting")
        kind = type(found)
        self.check(found)

        def part(each: Any) -> t.Expr:
            return self.read(each, depth + 1)

        if kind in _COMPARE:
            return t.Compare(_COMPARE[kind], part(found.this), part(found.expression))
        if kind in _ARITHMETIC:
            return t.Arithmetic(_ARITHMETIC[kind], part(found.this), part(found.expression))
        match found:
            case sql.Paren():
                return part(found.this)
            case sql.And() | sql.Or():
                return self.logic(found, depth)
            case sql.Not():
                return t.Not(part(found.this))
            case sql.Neg():
                return self.negated(found, depth)
            case sql.NullSafeEQ() | sql.NullSafeNEQ():
                return t.Distinct(part(found.this), part(found.expression), kind is sql.NullSafeEQ)
            case sql.Column():
                return self.column(found)
        return self.predicate(found, depth) or self.computed(found, depth) or t.Value(self.constant(found))

    def computed(self, found: Any, depth: int) -> t.Expr | None:
        """Calls, cases and spans; None for anything else."""

        def part(each: Any) -> t.Expr:
            return self.read(each, depth + 1)

        match found:
            case sql.Anonymous():
                return self.call(found, depth)
            case sql.If():
                otherwise = found.args.get("false")
                return t.Case(
                    (part(found.this),),
                    (part(found.args["true"]), part(otherwise) if otherwise is not None else _NOTHING),
                )
            case sql.Case():
                return self.case(found, depth)
            case sql.DPipe():
                return t.Call("concat", (part(found.this), part(found.expression)))
            case sql.Bracket() if len(found.expressions) == 1:
                return t.Call("item", (part(found.this), part(found.expressions[0])))
            case sql.RegexpLike():
                return t.Call("rlike", (part(found.this), part(found.expression)))
            case sql.IntDiv():
                return t.Call("div", (part(found.this), part(found.expression)))
            case sql.Extract():
                name = known(str(found.this.this), 1, self.text)
                return t.Call(name, (part(found.expression),))
            case sql.Interval():
                return self.interval(found)
        return None

    def call(self, found: Any, depth: int) -> t.Expr:
        if not isinstance(found.this, str):
            raise self.refused(found)
        arguments = found.expressions
        if found.this.lower() == "cast" and len(arguments) == 2:
            # The type is text that the dialect has cut out.
            return t.Cast(self.read(arguments[0], depth + 1), types.parse(str(arguments[1].this)))
        name = known(found.this, len(arguments), self.text)
        if name == "coalesce" and found.this.lower() in ("nvl", "ifnull") and len(arguments) != 2:
            raise self.refused(found)
        return t.Call(name, tuple(self.read(each, depth + 1) for each in arguments))

    def case(self, found: Any, depth: int) -> t.Expr:
        of = None if found.this is None else self.read(found.this, depth + 1)
        conditions, values = [], []
        for each in found.args["ifs"]:
            truth = self.read(each.this, depth + 1)
            conditions.append(truth if of is None else t.Compare("=", of, truth))
            values.append(self.read(each.args["true"], depth + 1))
        otherwise = found.args.get("default")
        values.append(_NOTHING if otherwise is None else self.read(otherwise, depth + 1))
        return t.Case(tuple(conditions), tuple(values))

    def interval(self, found: Any) -> t.Expr:
        unit = found.args.get("unit")
        if not isinstance(found.this, sql.Literal) or isinstance(unit, sql.IntervalSpan):
            raise self.refused(found)
        return span(str(found.this.this), None if unit is None else str(unit.this))

    def check(self, found: Any) -> None:
        """Refuse what the parser has understood and we would pass over (it says `not like` with a flag)."""
        known = {"this", "expression", *_KNOWN.get(type(found), ())}
        for name, value in found.args.items():
            if name not in known and value:
                raise self.refused(found)

    def predicate(self, found: Any, depth: int) -> t.Expr | None:
        """`between`, `is`, `in` and `like`; None for anything else."""
        match found:
            case sql.Between():
                if found.args.get("symmetric"):
                    raise self.refused("between symmetric")
                of, low, high = (self.read(found.args[name], depth + 1) for name in ("this", "low", "high"))
                return t.And(t.Compare(">=", of, low), t.Compare("<=", of, high))
            case sql.Is():
                return self.is_(found, depth)
            case sql.In():
                return t.In(self.read(found.this, depth + 1), self.values(found, depth))
            case sql.Like() | sql.ILike() | sql.Escape():
                return self.like(found, depth)
        return None

    def logic(self, found: Any, depth: int) -> t.Expr:
        """Long chains of `and` are deep to the left; they are read without going down."""
        kind, parts = type(found), []
        while isinstance(found, kind):
            parts.append(found.expression)
            found = found.this
        node = self.read(found, depth + 1)
        nodes = [node, *(self.read(each, depth + 1) for each in reversed(parts))]
        while len(nodes) > 1:
            # Joined in pairs, so that evaluating does not go down far either.
            pairs = [nodes[at : at + 2] for at in range(0, len(nodes), 2)]
            join = t.And if kind is sql.And else t.Or
            nodes = [join(*pair) if len(pair) == 2 else pair[0] for pair in pairs]
        return nodes[0]

    def negated(self, found: Any, depth: int) -> t.Expr:
        # The smallest int64 has no positive counterpart: its sign is part of it.
        if isinstance(found.this, sql.Literal) and not found.this.is_string:
            return t.Value(_number(f"-{found.this.this}"))
        return t.Negate(self.read(found.this, depth + 1))

    def is_(self, found: Any, depth: int) -> t.Expr:
        of = self.read(found.this, depth + 1)
        if isinstance(found.expression, sql.Null):
            return t.IsNull(of)
        if isinstance(found.expression, sql.Boolean):
            return t.IsTruth(of, bool(found.expression.this))
        raise self.refused(found)

    def values(self, found: Any, depth: int) -> tuple[t.Value, ...]:
        if found.args.get("query") is not None or found.args.get("unnest") is not None:
            raise self.refused("a query inside an expression")
        listed = [found.args["field"]] if found.args.get("field") is not None else found.expressions
        values: list[t.Value] = []
        for each in listed:
            if isinstance(each, sql.Placeholder) and isinstance(
                given := self.given(each), list | tuple | set | frozenset
            ):
                values += [t.Value(self.scalar(item, each.name)) for item in given]
                continue
            node = self.read(each, depth + 1)
            if not isinstance(node, t.Value):
                raise self.refused(each, "{} in a list")
            values.append(node)
        return tuple(values)

    def like(self, found: Any, depth: int) -> t.Expr:
        escape = "\\"
        if isinstance(found, sql.Escape):
            escape, found = str(found.expression.this), found.this
        if not isinstance(found, sql.Like | sql.ILike):
            raise self.refused(found)
        pattern = self.read(found.expression, depth + 1)
        if not isinstance(pattern, t.Value) or len(escape) != 1:
            raise self.refused(found)
        text = pattern.scalar.as_py()
        if text is not None and not isinstance(text, str):
            raise self.refused(f"the pattern {text!r}")
        if text is not None and escape != "\\":
            text = _with_backslash(text, escape)
        of = self.read(found.this, depth + 1)
        node = t.Like(of, t.Value(pa.scalar(text, pa.string())), isinstance(found, sql.ILike))
        return t.Not(node) if found.args.get("negate") else node

    def column(self, found: Any) -> t.Expr:
        if not isinstance(found.this, sql.Identifier):
            raise self.refused(found)
        if found.table:
            raise self.refused(found, "{} (a name with a dot goes in back-ticks)")
        return t.Name(found.this.this)

    def constant(self, found: Any) -> pa.Scalar:
        match found:
            case sql.Literal() if found.is_string:
                return pa.scalar(found.this)
            case sql.Literal():
                return _number(found.this)
            case sql.Boolean():
                return pa.scalar(bool(found.this))
            case sql.Null():
                return pa.scalar(None)
            case sql.HexString():
                return pa.scalar(bytes.fromhex(found.this))
            case sql.Placeholder():
                return self.scalar(self.given(found), found.name)
            case sql.Cast() if isinstance(found.this, sql.Literal):  # TryCast is one too
                return self.typed(found)
        raise self.refused(found if isinstance(found, sql.Expression) else "this")

    def typed(self, found: Any) -> pa.Scalar:
        """`date'…'`, `timestamp'…'`, and numbers with a letter behind them."""
        text, kind = str(found.this.this), found.to.this
        if found.this.is_string and kind == sql.DataType.Type.DATE:
            return as_date(text)
        if found.this.is_string and kind in (
            sql.DataType.Type.TIMESTAMP,
            sql.DataType.Type.TIMESTAMPTZ,
            sql.DataType.Type.TIMESTAMPLTZ,
            sql.DataType.Type.TIMESTAMPNTZ,
        ):
            return as_timestamp(text)
        if not found.this.is_string and kind in (sql.DataType.Type.DOUBLE, sql.DataType.Type.BIGINT):
            return pa.scalar(float(text)) if kind == sql.DataType.Type.DOUBLE else _number(text)
        raise self.refused(found)

    def given(self, found: Any) -> object:
        name = found.name
        if not name or name == "?":
            raise self.refused("a parameter without a name")
        if name not in self.parameters:
            raise InputError(
                f"no value for the parameter :{name} in {self.text:.200}",
                remedy=f"give it: {name}=…",
                code="MissingParameter",
                parameter=name,
            )
        self.used.add(name)
        return self.parameters[name]

    def scalar(self, value: object, name: str) -> pa.Scalar:
        if isinstance(value, pa.Scalar):
            return value
        if hasattr(value, "item") and callable(value.item):  # a numpy scalar
            value = value.item()
        if isinstance(value, int) and not isinstance(value, bool):
            return _number(str(value))
        if value is None or isinstance(value, bool | float | str | bytes | datetime | date | time | Decimal):
            return pa.scalar(value)
        raise InputError(
            f"the parameter :{name} is a {type(value).__name__}, which expressions do not have",
            remedy="give a number, text, a date, a time, a boolean, bytes, None, or for `in` a list of them",
            code="BadParameter",
            parameter=name,
        )

    def refused(self, what: str | sql.Expression, shown: str = "{}") -> InputError:
        """The error of something that is not in the language: a part of the text, or what it is called."""
        called, spot = (what, None) if isinstance(what, str) else part_of(self.text, what)
        return InputError(
            f"{shown.format(called):.200} is not in the language of expressions{_shown(self.text, spot)}",
            remedy=of_part(what, self.text) or of_text(self.text) or LANGUAGE,
            code="BadExpression",
            expression=self.text,
            line=spot.line if spot else None,
            column=spot.column if spot else None,
        )


def _number(text: str) -> pa.Scalar:
    """Whole numbers are int64, larger ones decimals; others are doubles."""
    if re.fullmatch(r"-?\d+", text):
        value = int(text) if len(text) < 80 else None
        if value is not None and -(1 << 63) <= value < 1 << 63:
            return pa.scalar(value, pa.int64())
        if value is not None and len(text.lstrip("-")) <= 38:
            return pa.scalar(Decimal(text), pa.decimal128(38, 0))
        return pa.scalar(float(text))
    return pa.scalar(float(text))


def _with_backslash(pattern: str, escape: str) -> str:
    """Rewrite a pattern whose escape character is another one."""
    found, following = "", iter(pattern)
    for character in following:
        if character == escape:
            found += _ESCAPED.sub(r"\\\1", next(following, escape))
        else:
            found += "\\\\" if character == "\\" else character
    return found
