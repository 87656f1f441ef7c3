"""Queries over the current rows of datasets, answered by Spark."""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

import pyarrow as pa

from trueline.errors import InputError, QueryError
from trueline.view.engine import engine
from trueline.view.expressions.faults import fault_of, placed, pointed, unclosed
from trueline.view.origin import Origin
from trueline.view.plan.sources import Memory
from trueline.view.view import View
from trueline.workspace.names import is_name
from trueline.workspace.query_guard import NOT_A_DATASET, place_of_name, refused, tables_named, unknown_tables
from trueline.workspace.snapshot.find import read_together
from trueline.workspace.snapshot.snapshot import WorkspaceSnapshot

if TYPE_CHECKING:
    from trueline.chain.store.store import Store
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
    names = list(workspace)
    tables = list(tables_of(text, names))
    if not workspace.trusted_sql:
        _refuse_misspelt(text, names, tables)
    read = _read_at(workspace, tables, at)
    views = {table.name: _view(workspace, table, read) for table in tables}
    spark, room = engine(), workspace._spark.first
    read_at = read.shown_cut if isinstance(read, WorkspaceSnapshot) else ""
    origins: dict[str, Origin] = {
        name: origin for name, view in views.items() for origin in view.origins.values()
    }
    # Names that are registered in a session of its own meet no others.
    session = room.new_session()
    try:
        nodes = {name: view.node for name, view in views.items()}
        frame = spark.answer(session, text, parameters, nodes, trusted=workspace.trusted_sql)
        if not frame.columns:
            # All columns of a dataset that has none yet.
            found = pa.table({"": pa.nulls(frame.count())}).select([])
            room.release(session)
            return View(Memory(found), workspace._spark.session)
        source = spark.freeze(frame, None, origins, read_at, _place(workspace, tables))
    except BaseException as error:
        room.release(session)
        if isinstance(error, QueryError) and (empty := [n for n, v in views.items() if not v.columns]):
            hint = f"{empty[0]!r} has no columns yet: append rows to it, or create it with a schema"
            error.remedy = f"{hint}; {error.remedy}" if error.remedy else hint
        elif isinstance(error, QueryError) and (hinted := _hinted(error, names)) is not None:
            raise hinted from None
        raise
    weakref.finalize(source, room.release, session).atexit = False
    return View(source, workspace._spark.session, workspace._spark.choice)


def _place(workspace: Workspace, tables: list[QueryTable]) -> Callable[[], Store] | None:
    """Return what gives the answer a place on a cluster: beside a dataset that it reads."""
    if not tables:
        return None
    room, store = workspace._spark.first, workspace[tables[0].dataset].chain.store

    def seen() -> Store:
        room.check_workers(writes=[store])
        return store

    return seen


def _refuse_misspelt(text: str, names: list[str], tables: list[QueryTable]) -> None:
    """Refuse a table that is almost a dataset at once, and not when Spark has started."""
    for unknown in unknown_tables(text, [table.name for table in tables]):
        if get_close_matches(unknown, names, n=1):
            refusal = refused(
                text, f"`{unknown}`", NOT_A_DATASET, place_of_name(text, unknown), relation=unknown
            )
            raise _hinted(refusal, names) or refusal


def _hinted(error: QueryError, names: list[str]) -> QueryError | None:
    """Name the dataset that may have been meant by a table that is not there."""
    unknown = error.fields.get("relation")
    if unknown is None and error.fields.get("condition") == "TABLE_OR_VIEW_NOT_FOUND":
        unknown = error.fields.get("fragment")
    if not isinstance(unknown, str) or not unknown:
        return None
    close = get_close_matches(unknown.strip("`"), names, n=1)
    known = ", ".join(names[:10]) + (" …" if len(names) > 10 else "")
    remedy = f"did you mean {close[0]!r}?" if close else f"the datasets are: {known or 'none yet'}"
    fields: dict[str, Any] = dict(error.fields)
    _, _, trusted = error.remedy.partition("; ")
    return type(error)(error.problem, remedy=f"{remedy}; {trusted}" if trusted else remedy, **fields)


def _read_at(workspace: Workspace, tables: list[QueryTable], at: Any) -> Any:
    """Return where datasets are read: several of them where they agree, unless it is said where each is."""
    names = list(dict.fromkeys(table.dataset for table in tables if table.at is None))
    return read_together(workspace, names, at) or at


def _view(workspace: Workspace, table: QueryTable, at: Any) -> View:
    if table.at is not None:
        return workspace[table.dataset].view(table.at)
    if isinstance(at, WorkspaceSnapshot):
        return at[table.dataset]
    chosen = at.get(table.dataset) if isinstance(at, Mapping) else at
    return workspace[table.dataset].view(chosen)


def tables_of(text: str, datasets: list[str]) -> Iterator[QueryTable]:
    """Find the datasets a query refers to: by name, or in back-ticks as `name@commit`.

    A column may be called as a dataset is: only tables count, and every word where tables cannot be told.

    >>> [table.name for table in tables_of("select x from sales join `x@ab12` using (k)", ["sales", "x"])]
    ['sales', 'x@ab12']
    """
    by_name = {name.lower(): name for name in datasets} | {name: name for name in datasets}
    words = list(dict.fromkeys(_words(text)))
    tables = tables_named(text)
    for word in words if tables is None else [word for word in words if word.lower() in tables]:
        name, _, at = word.partition("@")
        dataset = by_name.get(name) or by_name.get(name.lower())
        if (not at and "@" in word) or not is_name(name):
            continue
        if dataset is None and not at:
            continue
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
        why, spot = fault_of(text, error)
        shown = "" if spot is None else placed(spot) + pointed(text, spot)
        remedy = "close its quotes and comments" if unclosed(text) else "fix the query there"
        raise InputError(f"cannot read the query: {why}{shown}", remedy=remedy, code="BadQuery") from None
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
