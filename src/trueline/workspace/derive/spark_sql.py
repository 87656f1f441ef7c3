"""Spark SQL as sqlglot reads and writes it here: a call of a function stays the call that was written.

sqlglot knows many functions and writes them as it would itself: `percentile_cont` came back as
`percentile_approx`, `listagg(x)` with a comma. So no function is known to this dialect but those with a
syntax of their own; what a function means is Spark's to say.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any, ClassVar, Final, TypeVar

from sqlglot import exp, parse_one
from sqlglot.dialects.spark import Spark
from sqlglot.parsers.spark import SparkParser

_Part = TypeVar("_Part", bound=exp.Expr)

# Functions with words between their arguments.
_SYNTAX: Final = ["CAST", "TRY_CAST", "EXTRACT", "OVERLAY", "POSITION", "SUBSTRING", "SUBSTR", "TRIM"]
# sqlglot takes `window(` for the clause; in quotes it is a name.
_WINDOW_CALL: Final = re.compile(r"(?i)(?<![\w`.])window(?=\s*\()")


class _Parser(SparkParser):
    """Calls are read as calls."""

    FUNCTIONS: ClassVar[dict[str, Any]] = {}
    FUNCTION_PARSERS: ClassVar[dict[str, Any]] = {
        name: parser for name, parser in SparkParser.FUNCTION_PARSERS.items() if name in _SYNTAX
    }
    NO_PAREN_FUNCTIONS: ClassVar[dict[Any, Any]] = {}


class _SparkSql(Spark):
    """Spark's dialect without functions that are rewritten."""

    Parser = _Parser


def names(text: str) -> frozenset[str]:
    """Return the words of a text."""
    return frozenset(text.split())


def parsed(text: str) -> exp.Expr:
    """Parse a query; `sqlglot.errors.SqlglotError` where it cannot be.

    >>> written(parsed("select Percentile_Cont(0.5) within group (order by x), now() from t"))
    'SELECT Percentile_Cont(0.5) WITHIN GROUP (ORDER BY x), now() FROM t'
    """
    query = parse_one(_with_quoted_windows(text), read=_SparkSql)
    for node in list(query.find_all(exp.Any)):
        # Without a comparison it is the aggregate, not the word between a number and a query.
        if not isinstance(node.parent, exp.Binary):
            inner = node.this.this if isinstance(node.this, exp.Paren) else node.this
            node.replace(call("any", inner))
    return query


def written(part: exp.Expr) -> str:
    """Return the text of a query or a part of one."""
    return part.sql(dialect=_SparkSql, normalize_functions=False)


def qualified(query: exp.Expr, tables: dict[str, object]) -> exp.Expr:
    """Write out stars and the tables of columns; what a name is where sqlglot cannot say stays as it is."""
    from sqlglot.optimizer.qualify import qualify

    return qualify(
        query, dialect=_SparkSql, schema=tables, validate_qualify_columns=False, quote_identifiers=True
    )


def called(part: exp.Expr) -> str:
    """Return the name of the function that a part calls, in small letters; empty if it is not a call."""
    return part.name.lower() if isinstance(part, exp.Anonymous) else ""


def call(name: str, *arguments: exp.Expr) -> exp.Expr:
    """Return a call of a function."""
    return exp.Anonymous(this=name, expressions=list(arguments))


def cast(part: exp.Expr, kind: str) -> exp.Expr:
    """Return a part as another type, which Spark's name says."""
    return exp.Cast(this=part, to=exp.DataType.build(kind, dialect=_SparkSql))


def filled(text: str, **parts: exp.Expr) -> exp.Expr:
    """Return an expression with parts in the place of names; each is in brackets if it needs them.

    >>> written(filled("x * y", x=parsed("a + b"), y=parsed("c")))
    '(a + b) * c'
    """
    made = parsed(text)
    for column in list(made.find_all(exp.Column)):
        part = parts[column.name].copy()
        closed = (
            exp.Paren(this=part) if isinstance(part, exp.Binary | exp.Unary | exp.Not | exp.Case) else part
        )
        if column is made:
            return closed
        column.replace(closed)
    return made


def own(select: exp.Expr, kind: type[_Part]) -> Iterator[_Part]:
    """Yield the parts of one kind that belong to a SELECT itself, not to one inside it, nor to its pivots."""
    for node in select.find_all(kind):
        if node.find_ancestor(exp.Select) is select and node.find_ancestor(exp.Pivot, exp.Select) is select:
            yield node


def own_calls(select: exp.Expr) -> Iterator[exp.Anonymous]:
    """Yield the calls that belong to a SELECT itself."""
    return own(select, exp.Anonymous)


def _with_quoted_windows(text: str) -> str:
    from trueline.workspace.query_guard import tokens

    places = [
        token.at
        for token in tokens(text)
        if token.kind == "word" and token.name == "window" and _WINDOW_CALL.match(text, token.at)
    ]
    for at in reversed(places):
        text = f"{text[:at]}`window`{text[at + len('window') :]}"
    return text
