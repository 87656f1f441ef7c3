"""A ready-made step that mends columns."""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from trueline.errors import InputError
from trueline.run import Step
from trueline.run.step import OnError


class Repair(Step):
    """Mends columns; made by `repair`."""

    name = "repair"

    def __init__(self, columns: dict[str, str], on_error: OnError) -> None:
        if not columns:
            raise InputError("there is nothing to repair", remedy='give columns: repair(city="trim(city)")')
        super().__init__(on_error=on_error)
        self.columns = columns

    def map(self, key: Any, value: pa.Table) -> pa.Table:
        """Return the rows with mended columns; where nothing changes, as they are."""
        from trueline.view import View

        wanted = {name: text for name, text in self.columns.items() if name in value.column_names}
        if not wanted:
            return value
        found = View.from_arrow(value).with_columns(wanted).to_arrow()
        for name in wanted:
            place = value.schema.get_field_index(name)
            column, before = found[name], value.column(place)
            if column.type != before.type or not column.equals(before):
                made = pa.field(name, column.type, metadata=value.schema.field(place).metadata)
                value = value.set_column(place, made, column)
        return value


def repair(
    mapping: dict[str, str] | None = None, /, *, on_error: OnError = "fail_run", **columns: str
) -> Repair:
    """Mend columns by expressions over the row, all of them over the row as it came.

    A file without a column, or whose values are right already, stays as it is.

    >>> import pyarrow as pa
    >>> step = repair(city="trim(city)", price="abs(price)")
    >>> step.map("a.csv", pa.table({"city": [" Bern", "Basel "]})).to_pydict()
    {'city': ['Bern', 'Basel']}
    """
    return Repair({**(mapping or {}), **columns}, on_error)
