"""The tables that definitions read of their inputs: current rows, events, and rows with their offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from trueline.dataset.definition import strategy_of
from trueline.errors import InputError
from trueline.merge import Append, Ledger
from trueline.workspace.query_guard import tokens, unknown_tables

if TYPE_CHECKING:
    from trueline.chain.head_state import Position
    from trueline.dataset.derivation import Derivation
    from trueline.identity.dataset_id import DatasetId
    from trueline.identity.multihash import Multihash
    from trueline.view.view import View
    from trueline.workspace.dataset import Dataset


class TableKind(Enum):
    """What a table shows of an input; the value says how its name is made from that of the input."""

    ROWS = "{}"
    EVENTS = "changes('{}')"
    # Written `changes('{}', system => true)`: with the columns of the system, of a root `late` among them.
    SYSTEM_EVENTS = "system_changes('{}')"
    # What `first` and `last` are computed from: current rows of an input that only grows, with offsets.
    OFFSETS = "offsets('{}')"

    @property
    def is_events(self) -> bool:
        """Whether its rows are events, which are never taken back."""
        return self in EVENT_KINDS


EVENT_KINDS: Final = (TableKind.EVENTS, TableKind.SYSTEM_EVENTS)
# What may follow the name of a dataset in `changes(…)`.
_SYSTEM: Final = (",", "system", "=", ">", "true")


@dataclass(frozen=True, slots=True)
class InputTable:
    """A table of a query: what of which input it shows.

    >>> InputTable("sales", TableKind.EVENTS).name
    "changes('sales')"
    """

    alias: str
    kind: TableKind = TableKind.ROWS

    @property
    def name(self) -> str:
        """The name that it has in the query."""
        return self.kind.value.format(self.alias)

    def view(self, dataset: Dataset, at: Multihash | None = None) -> View:
        """Return what it shows at a commit."""
        if self.kind.is_events:
            return dataset.changes(upto=at, system=self.kind is TableKind.SYSTEM_EVENTS)
        if self.kind is TableKind.ROWS:
            return dataset.view(at)
        return dataset.view(at, system=True).select(offset_column(dataset), *dataset.view(at).columns)

    def change(self, dataset: Dataset, before: Multihash, after: Multihash) -> View:
        """Return how it changes from one commit to another: with `op` where rows may go."""
        if self.kind.is_events:
            return dataset.changes(before, after, system=self.kind is TableKind.SYSTEM_EVENTS)
        if self.kind is TableKind.ROWS:
            return dataset.diff(before, after)
        columns = offset_column(dataset), *dataset.view(after).columns
        return dataset.changes(before, after).select(*columns)

    def only_grows(self, dataset: Dataset, at: Position | None = None) -> bool:
        """Say whether its rows are never lost or changed."""
        if self.kind.is_events:
            return True
        tail = dataset.chain.tail() if at is None else dataset.chain.tail_at(at.block)
        return tail is not None and not tail.replaces_rows and isinstance(strategy_of(tail), Append | Ledger)


def offset_column(dataset: Dataset) -> str:
    """Return the name of the column of offsets."""
    tail = dataset.chain.tail()
    assert tail is not None
    return str(tail.vocab.offset)


# --- which tables a query reads -------------------------------------------------------------------


def tables_read(texts: Iterable[str], aliases: Iterable[str]) -> tuple[InputTable, ...]:
    """Return the tables of inputs that queries read.

    >>> [table.name for table in tables_read(["select a from t where op > 1"], ["t", "op"])]
    ['t']
    """
    return _tables_read(tuple(texts), tuple(aliases))


@lru_cache(maxsize=256)
def _tables_read(texts: tuple[str, ...], aliases: tuple[str, ...]) -> tuple[InputTable, ...]:
    # Canonical queries are long, and every increment asks.
    named = {name.lower() for text in texts for name in _names_in(text)}
    possible = (InputTable(alias, kind) for alias in aliases for kind in TableKind)
    return tuple(table for table in possible if table.name.lower() in named)


def _names_in(text: str) -> Iterator[str]:
    """Yield the tables of a query; of one that cannot be parsed here, all words, which is more."""
    found = unknown_tables(text, ())
    yield from found or (token.name for token in tokens(text) if token.kind in ("word", "quoted"))


def tables_of(derivation: Derivation) -> tuple[InputTable, ...]:
    """Return the tables that a definition reads; a function is given the current rows of all inputs."""
    aliases = [each.alias or "" for each in derivation.inputs]
    if derivation.function is not None or not derivation.canonical:
        return tuple(map(InputTable, aliases))
    return tables_read(derivation.canonical, aliases)


def only_grow(
    tables: Iterable[tuple[InputTable, Dataset]], positions: Mapping[DatasetId, Position] | None = None
) -> bool:
    """Say whether no row of tables, each given with the dataset that it shows, is ever lost or changed."""
    at = positions or {}
    return all(table.only_grows(dataset, at.get(dataset.id)) for table, dataset in tables)


def views_at(
    derivation: Derivation, inputs: Mapping[str, Dataset], positions: Mapping[DatasetId, Position]
) -> dict[str, View]:
    """Return what the tables of a definition show where its inputs are taken, by the names they have."""
    return {
        table.name: table.view(inputs[table.alias], positions[inputs[table.alias].id].block)
        for table in tables_of(derivation)
    }


# --- what stars stand for -------------------------------------------------------------------------


def not_taken(
    derivation: Derivation, written: Iterable[str], inputs: Mapping[str, Sequence[str]]
) -> dict[str, tuple[str, ...]]:
    """Return the columns that inputs, given by their names in queries, have and no star stands for.

    Stars are written out when a dataset is defined; columns that come later are not among them.
    """
    starred = {table for text in written if "*" in text for table in starred_tables(text)}
    if derivation.function is not None or not starred:
        return {}
    texts = [*written, *(step.query for step in derivation.queries)]
    words = {token.name.lower() for text in texts for token in tokens(text)}
    found = {
        alias: tuple(name for name in columns if name.lower() not in words)
        for alias, columns in inputs.items()
        if alias.lower() in starred
    }
    return {alias: names for alias, names in found.items() if names}


@lru_cache(maxsize=256)
def starred_tables(text: str) -> frozenset[str]:
    """Return the tables whose columns a query selects by a star; none where it cannot be read.

    >>> sorted(starred_tables("select a.*, count(*) as n from t as a join u on a.id = u.id"))
    ['t']
    """
    from sqlglot import exp
    from sqlglot.errors import SqlglotError

    from trueline.workspace.derive.spark_sql import parsed

    found: set[str] = set()
    try:
        selects = list(parsed(with_changes(text)).find_all(exp.Select))
    except SqlglotError:
        return frozenset()
    for select in selects:
        sources = [select.args.get("from_") or select.args.get("from"), *select.args.get("joins", ())]
        tables = [each.this for each in sources if each is not None and isinstance(each.this, exp.Table)]
        for star in filter(_is_star, select.expressions):
            name = star.table if isinstance(star, exp.Column) else ""
            found |= {table.name.lower() for table in tables if name in ("", table.alias_or_name)}
    return frozenset(found)


def _is_star(part: Any) -> bool:
    from sqlglot import exp

    return isinstance(part, exp.Star) or (isinstance(part, exp.Column) and isinstance(part.this, exp.Star))


# --- changes('x') ---------------------------------------------------------------------------------


def with_changes(text: str) -> str:
    """Return a query in which `changes('x')` is the name of a table.

    >>> with_changes("select * from changes('sales') where op = 'insert'")
    "select * from `changes('sales')` where op = 'insert'"
    >>> with_changes("select late from changes('sales', system=>true)")
    "select late from `system_changes('sales')`"
    """
    found = list(tokens(text))
    places: list[tuple[int, int, str]] = []
    for at, token in enumerate(found[:-3]):
        opening, name, *rest = found[at + 1 : at + 9]
        if token.kind != "word" or token.name != "changes" or opening.name != "(":
            continue
        said = tuple(each.name for each in rest[: len(_SYSTEM)])
        kind = TableKind.SYSTEM_EVENTS if said == _SYSTEM else TableKind.EVENTS
        rest = rest[len(_SYSTEM) :] if kind is TableKind.SYSTEM_EVENTS else rest
        if name.kind != "string" or not rest or rest[0].name != ")" or "`" in name.name:
            raise InputError(
                "changes() takes the name of a dataset in quotes, and perhaps system => true",
                remedy="put the name into single quotes",
                code="BadQuery",
            )
        written = text[name.at + 1 : found[at + 3].at].rstrip()[:-1]
        places.append((token.at, rest[0].at + 1, InputTable(written, kind).name))
    for start, end, table in reversed(places):
        text = f"{text[:start]}`{table}`{text[end:]}"
    return text


def events_named(text: str) -> list[str]:
    """Return the datasets whose events a query reads, as `with_changes` writes them.

    >>> events_named("select * from `changes('Sales')` join `system_changes('Costs')`")
    ['Sales', 'Costs']
    """
    found = []
    for token in tokens(text):
        for kind in EVENT_KINDS:
            start, _, end = kind.value.partition("{}")
            if token.kind == "quoted" and token.name.startswith(start) and token.name.endswith(end):
                begin = token.at + 1 + len(start)
                found.append(text[begin : token.at + 1 + len(token.name) - len(end)])
                break
    return list(dict.fromkeys(found))
