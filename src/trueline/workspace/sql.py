"""Queries over the current rows of datasets, answered by Spark."""

from __future__ import annotations

import weakref
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from trueline.errors import InputError
from trueline.view.engine import engine
from trueline.view.origin import Origin
from trueline.view.view import View
from trueline.workspace.names import is_name

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

_BEGINNINGS: Final = frozenset({"SELECT", "WITH", "FROM", "VALUES", "TABLE", "("})
_CHANGING: Final = frozenset({"INSERT", "MERGE", "UPDATE", "DELETE"})
_LONGEST: Final = 1_000_000


@dataclass(frozen=True, slots=True)
class QueryTable:
    """A table of a query: its name there, the dataset, and what follows the `@`."""

    name: str
    dataset: str
    at: str | None


def query(workspace: Workspace, text: str, at: Any, parameters: Mapping[str, object]) -> View:
    """Answer a query; it is checked now and computed when its rows are first read."""
    tables = list(tables_of(text, list(workspace)))
    views = {table.name: _view(workspace, table, at) for table in tables}
    spark, room = engine(), workspace._spark.first
    origins: dict[str, Origin] = {
        name: origin for name, view in views.items() for origin in view.origins.values()
    }
    # Names that are registered in a session of its own meet no others.
    session = room.new_session()
    try:
        for name, view in views.items():
            spark.register(session, name, view.node)
        allowed = None if workspace.trusted_sql else list(views)
        source = spark.freeze(spark.answer(session, text, parameters, allowed), None, origins)
    except BaseException:
        room.release(session)
        raise
    weakref.finalize(source, room.release, session).atexit = False
    return View(source, workspace._spark.session, workspace._spark.choice)


def _view(workspace: Workspace, table: QueryTable, at: Any) -> View:
    if table.at is not None:
        return workspace[table.dataset].view(table.at)
    chosen = at.get(table.dataset) if isinstance(at, Mapping) else at
    return workspace[table.dataset].view(chosen)


def tables_of(text: str, datasets: list[str]) -> Iterator[QueryTable]:
    """Find the datasets a query refers to: by name, or in back-ticks as `name@commit`.

    A word that is a dataset's name counts wherever it is; a table that is
    not used costs a look at its head, nothing more.

    >>> [table.name for table in tables_of("select * from sales join `x@ab12` using (k)", ["sales", "x"])]
    ['sales', 'x@ab12']
    """
    by_name = {name.lower(): name for name in datasets} | {name: name for name in datasets}
    seen: set[str] = set()
    for word in _words(text):
        name, _, at = word.partition("@")
        dataset = by_name.get(name) or by_name.get(name.lower())
        if word in seen or (not at and "@" in word) or not is_name(name):
            continue
        if dataset is None and not at:
            continue
        seen.add(word)
        yield QueryTable(word, dataset or name, at or None)


def _words(text: object) -> Iterator[str]:
    """Yield the names in a query; refuse what is not a query."""
    from sqlglot import TokenType, tokenize
    from sqlglot.errors import SqlglotError

    if not isinstance(text, str) or not text.strip() or len(text) > _LONGEST:
        raise InputError("a query is text, at most a million characters of it", remedy="write: select …")
    try:
        tokens = tokenize(text, read="spark")
    except (SqlglotError, RecursionError) as error:
        raise InputError(
            f"cannot parse the query: {error}", remedy="close its quotes and comments", code="BadQuery"
        ) from None
    words = [token.text.upper() for token in tokens]
    is_changing = any(
        word in _CHANGING and token.token_type not in (TokenType.STRING, TokenType.IDENTIFIER)
        for word, token in zip(words, tokens, strict=True)
    )
    if not words or words[0] not in _BEGINNINGS or (words[0] != "SELECT" and is_changing):
        raise InputError(
            f"not a query: {text.strip():.80}",
            remedy="only queries are answered: select …, with …, from …; rows are added with append",
            code="NotAQuery",
        )
    for token in tokens:
        # A dataset may be called by a word of the language, such as `date`.
        if token.token_type not in (TokenType.STRING, TokenType.NUMBER):
            yield token.text
