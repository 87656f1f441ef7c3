"""Rows on their way into a merge: checked, keyed and put in order."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.events import SetVocab
from trueline.dataset.merge.result import Op
from trueline.errors import InputError, SchemaError
from trueline.kernel.key_encoding import KEY, RANK, MergeKey, null_key
from trueline.kernel.sorted_keys import Bools, Ints, as_array, repeats, sorting, unified

NullKeys = Literal["refuse", "quarantine"]
_SHOWN = 10


@dataclass(frozen=True)
class KeyedRows:
    """New rows in key order (rows of one key in the order of the source), or all in that of the source."""

    rows: pa.Table
    keys: pa.BinaryArray
    ranks: Ints
    ops: Ints | None
    quarantined: pa.Table

    @property
    def first_of_key(self) -> Bools:
        return ~repeats(self.keys)

    @property
    def last_of_key(self) -> Bools:
        again = repeats(self.keys)
        return ~np.append(again[1:], [False])[: len(again)]

    def take(self, which: Bools) -> KeyedRows:
        """Return some of the rows."""
        mask = pa.array(which)
        ops = None if self.ops is None else self.ops[which]
        return KeyedRows(
            self.rows.filter(mask), self.keys.filter(mask), self.ranks[which], ops, self.quarantined
        )


def in_source_order(new: pa.Table) -> pa.Table:
    """Return rows ordered by `_rank`, which is added where it is not given."""
    if RANK not in new.column_names:
        return new.append_column(RANK, pa.array(np.arange(new.num_rows, dtype=np.int64)))
    if new.schema.field(RANK).type != pa.int64() or new[RANK].null_count:
        raise InputError(f"column {RANK!r} is not a rank", remedy="give every row a 64-bit number")
    ranks = np.asarray(as_array(new[RANK]))
    if (ranks[1:] > ranks[:-1]).all():
        return new
    order = np.argsort(ranks, kind="stable")
    if (np.diff(ranks[order]) == 0).any():
        raise InputError(
            "two rows have the same rank", remedy="number the rows of the source one after another"
        )
    return new.take(pa.array(order))


def data_columns(new: pa.Table, vocab: SetVocab) -> list[str]:
    """Name the columns that are the user's."""
    names = [name for name in new.column_names if name not in (RANK, KEY, vocab.op)]
    if len(set(names)) != len(names):
        raise SchemaError("two columns have the same name", remedy="rename one of them")
    return names


def keyed(new: pa.Table, key: MergeKey, vocab: SetVocab, null_keys: NullKeys) -> KeyedRows:
    """Return new rows in key order, each with its key; rows without one are refused or quarantined."""
    new = in_source_order(new)
    columns = data_columns(new, vocab)
    quarantined = new.slice(0, 0)
    if KEY not in new.column_names:
        missing = key.missing(new)
        if missing.any():
            if null_keys == "refuse":
                raise null_key(key.columns, np.asarray(as_array(new[RANK]))[missing])
            quarantined, new = new.filter(pa.array(missing)), new.filter(pa.array(~missing))
        keys = key.encode(new)
    else:
        keys = as_array(new[KEY])
    ops = _ops(new, vocab)
    order = sorting(keys)
    if order is not None:
        keys, new = keys.take(pa.array(order)), new.combine_chunks().take(pa.array(order))
        ops = None if ops is None else ops[order]
    ranks = np.asarray(as_array(new[RANK]))
    return KeyedRows(new.select(columns), keys, ranks, ops, quarantined)


def _ops(new: pa.Table, vocab: SetVocab) -> Ints | None:
    """The operations as numbers; a null one is an append."""
    if vocab.op not in new.column_names:
        return None
    column = as_array(new[vocab.op])
    if not pa.types.is_integer(column.type) and not pa.types.is_null(column.type):
        raise SchemaError(
            f"column {vocab.op!r} is {column.type}, operations are whole numbers",
            remedy="use 0 append, 1 retract, 2 correct from, 3 correct to",
            column=vocab.op,
        )
    return np.asarray(pc.fill_null(column.cast(pa.int64()), int(Op.APPEND)), dtype=np.int64)


def no_ops(new: pa.Table, vocab: SetVocab, strategy: str) -> None:
    """Refuse a column of operations where the strategy finds them itself."""
    if vocab.op in new.column_names:
        raise SchemaError(
            f"column {vocab.op!r} has the name of the column of operations, which {strategy} sets itself",
            remedy="rename the column, or merge by changelog or upsert",
            column=vocab.op,
        )


def current(old: pa.Table | None, rows: pa.Table, key: MergeKey) -> tuple[pa.Table, pa.BinaryArray]:
    """Return the current rows with the columns of the new ones, in key order, and their keys."""
    if old is None:
        return rows.schema.empty_table(), pa.array([], type=pa.binary())
    for field in rows.schema:
        if field.name in old.column_names and old.schema.field(field.name).type != field.type:
            raise SchemaError(
                f"column {field.name!r} is {field.type}, the current rows have"
                f" {old.schema.field(field.name).type}",
                remedy="bring the new rows to the types of the dataset first",
                column=field.name,
            )
    keys = as_array(old[KEY]) if KEY in old.column_names else key.encode(old)
    order = sorting(keys)
    if order is not None:
        keys, old = keys.take(pa.array(order)), old.take(pa.array(order))
    if repeats(keys).any():
        raise InputError("a key occurs twice among the current rows", remedy="give current rows, not events")
    return unified(old, rows.schema), keys


def two_rows(rows: pa.Table, other: pa.Table | None = None) -> list[dict[str, object]]:
    """Two rows as people read them, which show why a key does not identify rows."""
    names = [name for name in rows.column_names if name != RANK]
    found: list[dict[str, object]] = [] if other is None else other.select(names).to_pylist()
    return [*found, *rows.select(names).slice(0, 2).to_pylist()][:2]


def shown_keys(rows: pa.Table, key: Sequence[str]) -> list[dict[str, object]]:
    """Some keys as people read them."""
    found: list[dict[str, object]] = rows.slice(0, _SHOWN).select(list(key)).to_pylist()
    return found
