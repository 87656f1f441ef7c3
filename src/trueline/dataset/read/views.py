"""What `Dataset` offers to readers."""

from __future__ import annotations

from collections.abc import Sequence

from trueline.chain.chain import Chain
from trueline.chain.events import DatasetKind
from trueline.chain.head_state import Position
from trueline.dataset.at import Tags, resolve
from trueline.dataset.dataset_at import Standing
from trueline.dataset.read.changes import Changes
from trueline.dataset.read.current import CurrentRows
from trueline.dataset.read.diff import Difference
from trueline.dataset.read.events import Events
from trueline.dataset.read.get import Row, find_row
from trueline.errors import InputError
from trueline.identity.multihash import Multihash
from trueline.view.schema import Schema
from trueline.view.source import RowSource
from trueline.view.view import View


def view_of(name: str, chain: Chain, at: object, *, system: bool, tags: Tags | None = None) -> View:
    """Return the current rows at a commit: all records, or the newest of each key."""
    standing = Standing.of(name, chain, resolve(chain, at, tags))
    return _current(standing, _all_columns(standing) if system else standing.data_columns)


def current_columns(name: str, chain: Chain, at: object, columns: Sequence[str]) -> View:
    """Return columns of the current rows at a commit, those that readers do not see too."""
    return _current(Standing.of(name, chain, resolve(chain, at)), tuple(columns))


def _current(standing: Standing, columns: tuple[str, ...]) -> View:
    source: RowSource = CurrentRows(standing, columns) if standing.is_keyed else Events(standing, columns)
    return View(source)


def changes_of(
    name: str, chain: Chain, after: object, upto: object, *, system: bool, tags: Tags | None = None
) -> View:
    """Return the events in (after, upto]."""
    start = None if after is None else resolve(chain, after, tags)
    end = resolve(chain, upto, tags)
    _check_order(chain, start, end)
    standing = Standing.of(name, chain, end)
    columns = changed_columns(standing)
    if system:
        columns = tuple(dict.fromkeys((*columns[:3], *_all_columns(standing))))
    first = 0 if start is None or start.offset is None else start.offset + 1
    # Late is decided once, for each record of a root, and what is derived follows that decision.
    late = system and standing.tail.dataset_kind is DatasetKind.Root
    return View(Changes(Events(standing, columns, first, start.block if start else None), late))


def diff_of(name: str, chain: Chain, a: object, b: object, *, tags: Tags | None = None) -> View:
    """Return the net change from one commit to another."""
    start, end = resolve(chain, a, tags), resolve(chain, b, tags)
    _check_order(chain, start, end)
    before, after = Standing.of(name, chain, start), Standing.of(name, chain, end)
    columns = after.data_columns
    if after.is_keyed:
        return View(Difference(before, after, columns))
    events = Events(after, (after.vocab.op, *columns) if columns else (), before.last_offset + 1, start.block)
    return View(Changes(events))


def schema_of(name: str, chain: Chain, *, system: bool = False) -> Schema | None:
    """Return the columns at the head as a view has them, None before the first data."""
    standing = Standing.of(name, chain, resolve(chain, None))
    if standing.tail.schema is None:
        return None
    found = Schema.from_arrow(standing.schema)
    return found if system else Schema(found[name].field for name in standing.data_columns)


def row_of(name: str, chain: Chain, key: object, at: object, *, tags: Tags | None = None) -> Row | None:
    """Return the current row of a key, None if there is none."""
    return find_row(Standing.of(name, chain, resolve(chain, at, tags)), key)


def _all_columns(standing: Standing) -> tuple[str, ...]:
    """The columns of the system and those people gave, without the hidden ones."""
    return tuple(name for name in standing.schema.names if name not in standing.hidden_columns)


def changed_columns(standing: Standing) -> tuple[str, ...]:
    """Return the columns of changes: those of the system that tell events apart, and the data."""
    system = standing.vocab.names[:3]
    return (*_system(standing), *(name for name in standing.data_columns if name not in system))


def _system(standing: Standing) -> tuple[str, ...]:
    return tuple(name for name in standing.vocab.names[:3] if name in standing.schema.names)


def _check_order(chain: Chain, start: Position | None, end: Position) -> None:
    if start is None or chain.is_ancestor(start.block, end.block):
        return
    raise InputError(
        f"commit {_short(start.block)} comes after commit {_short(end.block)}",
        remedy="swap them",
        code="BadInterval",
    )


def _short(block: Multihash) -> str:
    return block.short
