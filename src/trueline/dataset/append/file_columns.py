"""The columns of files: which are read for a dataset, with which types, and which a file has."""

from __future__ import annotations

from collections.abc import Sequence

import pyarrow as pa

from trueline.chain.datatypes import DataSchema
from trueline.chain.head_state import Tail
from trueline.chain.schema import fields_of, to_arrow
from trueline.dataset.append.intake import user_fields
from trueline.dataset.append.new_columns import NewColumns, unknown_columns
from trueline.readers import Reader, ReadStats, Source


def _stored(tail: Tail) -> DataSchema:
    return DataSchema(fields_of(tail.schema) if tail.schema is not None else ())


def without_twins(schema: pa.Schema, known: Sequence[str]) -> pa.Schema:
    """Leave out columns that differ only by case from known ones, or from others before them."""
    names: dict[str, str] = {name.casefold(): name for name in known}
    kept = [c for c in schema if c.name in known or names.setdefault(c.name.casefold(), c.name) == c.name]
    return pa.schema(kept)


def known_columns(tail: Tail) -> list[str]:
    """Name the columns of a dataset that files may have."""
    return [column.name for column in user_fields(_stored(tail), tail.vocab)]


def columns_in(columns: pa.Schema, stats: ReadStats, reader: Reader) -> list[str]:
    """Name the columns that a file had, of those it was read for and others; a key of JSON has to be used."""
    absent = set(stats.absent)
    if reader.kind == "json":
        absent |= {name for name in columns.names if not stats.filled.get(name) and not stats.bad.get(name)}
    return [*(name for name in columns.names if name not in absent), *stats.unknown]


def columns_for(
    tail: Tail,
    sources: Sequence[Source],
    reader: Reader,
    op: str | None,
    new: NewColumns,
    *,
    strange: bool = False,
) -> pa.Schema:
    """Return the columns to read: with the types the dataset has, else with those the files suggest.

    `op` names the column of operations, where the strategy takes them. Files
    that are `strange` may have no column of the dataset: steps will make some.
    Of others, columns that the dataset does not have are read only if they are
    to be added.
    """
    schema = _stored(tail)
    # The event time has its type even where no data has brought it yet.
    types = [column for column in to_arrow(schema) if column.name not in tail.vocab.names[:3]]
    if op is not None:
        types.append(pa.field(op, pa.int32()))
    found = reader.infer(sources, known=pa.schema(types))
    if not strange and tail.schema is not None:
        known = known_columns(tail)
        for source in sources if not any(name in known for name in found.names) else ():
            names = [name for name in reader.infer([source]).names if name != tail.vocab.event_time]
            unknown_columns(names, known, new, place=source.path)
    declared = {column.name: column for column in types}
    if not strange:
        # Left out here, a column that differs from another only by case is found in the file that has it.
        found = without_twins(found, list(declared))
    if not strange and tail.schema is not None and new != "add":
        found = pa.schema([column for column in found if column.name in declared])
    return pa.schema([declared.get(column.name, column) for column in found])
