"""One current row by its key."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trueline.dataset.dataset_at import Standing
from trueline.dataset.derivation import COPY
from trueline.dataset.merge.result import TAKES_AWAY
from trueline.dataset.read.current import CurrentRows
from trueline.dataset.read.events import Events
from trueline.errors import InputError, SchemaError, check_memory
from trueline.kernel.key_encoding import MergeKey
from trueline.merge import KeyEquality
from trueline.view.plan.node import Interval

Row = dict[str, Any]


def find_row(standing: Standing, key: object) -> Row | None:
    """Return the current row of a key, None if it has none.

    The state is asked if there is one; else slices are read from the newest
    backwards, the key columns alone until the row is found.
    """
    if standing.tail.schema is None:
        return None  # nothing was ever appended, so any column may be meant
    wanted = _wanted(standing, key)
    if standing.last_offset < 0:
        return None
    columns, offset = standing.data_columns, standing.vocab.offset
    current = CurrentRows(standing, columns)
    if standing.key and current.kept(columns) is not None:
        rows = current.lookup(standing.merge_key.encode(wanted), columns).select(list(columns)).to_pylist()
        return rows[0] if rows else None
    if standing.key and current.kept([offset]) is not None:
        places = current.lookup(standing.merge_key.encode(wanted), [offset])[offset].to_pylist()
        return _at_offset(standing, places[0]) if places else None
    return _backwards(standing, wanted)


def _at_offset(standing: Standing, offset: int) -> Row | None:
    """Read one record: one group of rows of one slice."""
    bounds = {standing.vocab.offset: Interval(offset, offset)}
    for batch in Events(standing, standing.data_columns).batches(standing.data_columns, bounds):
        return dict(batch.to_pylist()[0])
    return None


def _backwards(standing: Standing, wanted: pa.Table) -> Row | None:
    vocab = standing.vocab
    names = tuple(wanted.column_names)
    events = Events(standing, (*names, vocab.offset, vocab.op))
    # Without a key the columns asked for are one.
    key = MergeKey(names, standing.merge_key.equality)
    matching = key.encode(wanted)[0]
    is_group = key.equality is KeyEquality.GROUP
    for entry in events.entries(0, standing.last_offset, backwards=True):
        file = events.file(entry)
        place: tuple[int, int] | None = None
        for batch in file.read(events.schema, vocab.offset, first=0, last=standing.last_offset):
            # Null is a value of what is derived: nothing says that rows of a group have a key.
            there = batch if is_group else batch.filter(_complete(batch, names))
            hits = there.filter(pc.equal(key.encode(there), matching))
            if hits.num_rows:
                last = hits.slice(hits.num_rows - 1)
                place = (last.column(vocab.offset)[0].as_py(), last.column(vocab.op)[0].as_py())
        if place is None:
            continue
        offset, op = place
        if op in TAKES_AWAY:
            return None
        return _at_offset(standing, offset)
    return None


def _complete(batch: pa.RecordBatch, names: Sequence[str]) -> pa.Array:
    """Say which rows have all parts of the key."""
    found = pc.is_valid(batch.column(names[0]))
    for name in names[1:]:
        found = pc.and_(found, pc.is_valid(batch.column(name)))
    return found


def _wanted(standing: Standing, key: object) -> pa.Table:
    """Return the key as one row of the columns it is made of."""
    values = _by_name(standing, key)
    columns = {}
    copy = standing.key[-1:] if _is_bag(standing) else ()
    for name, value in values.items():
        if name not in standing.data_columns:
            raise SchemaError(
                f"dataset {standing.name!r} has no column {name!r}",
                remedy=f"its columns are {', '.join(standing.data_columns)}",
                column=name,
            )
        kind = standing.schema.field(name).type
        try:
            columns[name] = pa.array([value], kind)
        except (pa.ArrowException, OverflowError, TypeError, ValueError) as error:
            check_memory(error, "looking a key up")
            raise InputError(
                f"{value!r:.80} is not a value of the key column {name!r} ({kind}): {error}",
                remedy="give a value of its type",
                code="BadKeyValue",
                column=name,
            ) from None
    # Of equal rows the first one stands for all.
    numbers = {name: pa.array([1], standing.schema.field(name).type) for name in copy}
    return pa.table(columns | numbers)


def _is_bag(standing: Standing) -> bool:
    """Say whether rows are told apart by a number of the copy, which readers do not see."""
    return standing.key[-1:] == (COPY,) and COPY in standing.hidden_columns


def _by_name(standing: Standing, key: object) -> Mapping[str, object]:
    names = standing.key[:-1] if _is_bag(standing) else standing.key
    if isinstance(key, Mapping):
        if names and set(key) != set(names):
            raise InputError(
                f"the key of dataset {standing.name!r} is {', '.join(names)}, given are {', '.join(key)}",
                remedy="give each column of the key",
                code="BadKeyValue",
            )
        if not key:
            raise InputError("no column is given", remedy="give a column and its value", code="BadKeyValue")
        return {name: key[name] for name in names} if names else dict(key)
    if not names:
        raise InputError(
            f"dataset {standing.name!r} has no key: it merges by append()",
            remedy='say which column is meant: get({"city": "Bern"}) returns the newest such row',
            code="NoKey",
        )
    values = tuple(key) if isinstance(key, tuple | list) else (key,)
    if len(values) != len(names):
        raise InputError(
            f"the key of dataset {standing.name!r} has {len(names)} columns ({', '.join(names)}), "
            f"given are {len(values)} values",
            remedy="give one value for each, in this order",
            code="BadKeyValue",
        )
    return dict(zip(names, values, strict=True))
