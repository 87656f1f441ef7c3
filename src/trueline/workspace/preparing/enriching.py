"""A ready-made step that looks things up."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError, SchemaError, check_memory
from trueline.run import Step
from trueline.run.step import OnError


class Enrich(Step):
    """Adds columns of a lookup table; made by `enrich`."""

    name = "enrich"

    def __init__(
        self, lookup: pa.Table, on: tuple[str, ...], columns: tuple[str, ...], on_error: OnError
    ) -> None:
        super().__init__(on_error=on_error)
        self.lookup, self.on, self.columns = lookup, on, columns

    def map(self, key: Any, value: pa.Table) -> pa.Table:
        """Return the rows with what is known of them; a file without the key stays as it is."""
        if not set(self.on) <= set(value.column_names):
            return value
        places = self._places(value)
        for name in self.columns:
            found = pc.take(self.lookup[name], places)
            if name not in value.column_names:
                value = value.append_column(pa.field(name, found.type), found)
                continue
            place = value.schema.get_field_index(name)
            before = value.column(place)
            if before.null_count:
                try:
                    filled = pc.coalesce(before, found.cast(before.type))
                except pa.ArrowException as error:
                    check_memory(error, "enriching the rows")
                    raise _unlike(name, error) from None
                value = value.set_column(place, value.schema.field(place), filled)
        return value

    def _places(self, table: pa.Table) -> Any:
        """Return the row of the lookup table for each row, missing where there is none."""
        try:
            keys = [self.lookup[name].cast(table[name].type) for name in self.on]
        except pa.ArrowException as error:
            check_memory(error, "enriching the rows")
            raise _unlike(", ".join(self.on), error) from None
        if len(keys) == 1:
            return pc.index_in(table[self.on[0]], value_set=keys[0].combine_chunks(), skip_nulls=True)
        known = {row: place for place, row in enumerate(zip(*(k.to_pylist() for k in keys), strict=True))}
        asked = zip(*(table[name].to_pylist() for name in self.on), strict=True)
        return pa.array([None if None in row else known.get(row) for row in asked], pa.int32())


def enrich(
    lookup: Any,
    on: str | Sequence[str],
    columns: Sequence[str] | None = None,
    *,
    on_error: OnError = "fail_run",
) -> Enrich:
    """Add columns of a small table by a key that both have; columns that are there are filled where missing.

    `lookup` is an Arrow table, a frame, a list of dictionaries or a view
    (`ws["cities"].view(at=…)`); its keys are unique. Rows whose key is not in
    it stay, without the columns.

    >>> import pyarrow as pa
    >>> step = enrich([{"city": "Bern", "canton": "BE"}], on="city")
    >>> step.map("a.csv", pa.table({"city": ["Bern", "Paris"]}))["canton"].to_pylist()
    ['BE', None]
    """
    table = pa.Table.from_pylist(list(lookup)) if isinstance(lookup, list) else pa.table(lookup)
    keys = (on,) if isinstance(on, str) else tuple(on)
    chosen = tuple(columns) if columns is not None else tuple(n for n in table.column_names if n not in keys)
    missing = [name for name in (*keys, *chosen) if name not in table.column_names]
    if missing or not keys or not chosen:
        raise SchemaError(
            f"the lookup table has no column {missing[0]!r}" if missing else "nothing is to be looked up",
            remedy=f"it has {', '.join(table.column_names)}",
        )
    counted = table.group_by(list(keys)).aggregate([([], "count_all")])
    if counted.num_rows < table.num_rows:
        raise InputError(
            f"the lookup table has {table.num_rows - counted.num_rows:,} rows whose {', '.join(keys)} "
            "is that of another",
            remedy="leave one row for each key",
            code="DuplicateKey",
        )
    return Enrich(table.combine_chunks(), keys, chosen, on_error)


def _unlike(names: str, error: Exception) -> SchemaError:
    return SchemaError(
        f"{names}: the lookup table and the file differ in type: {error}", remedy="cast the lookup table"
    )
