"""Steps on tables as steps on references: what people write, and what runs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pyarrow as pa

from trueline.errors import InputError
from trueline.run import ERASED, Step
from trueline.workspace.preparing.rows import Rows


class _OnRows(Step):
    """A step on tables, given references: it reads the rows, and keeps others where they differ.

    What is not rows yet, a file that has not been parsed, is left as it is.
    """

    def __init__(self, inner: Step) -> None:
        self.inner = inner
        self.name = inner.name or type(inner).__name__.lower()
        self.eager, self.concurrency = inner.eager, inner.concurrency
        self.batch_size, self.on_error = inner.batch_size, inner.on_error
        super().__init__()

    def match(self, key: Any) -> bool:
        return self.inner.match(key)

    def ready(self) -> bool:
        return self.inner.ready()

    def superseded(self, key: Any) -> None:
        self.inner.superseded(key)

    def _kept(self, rows: Rows, before: pa.Table | None, made: Any) -> Any:
        """Return the reference to what a step made: the one there was, if it made the same."""
        if made is before or made is ERASED:
            return rows if made is before else ERASED
        if isinstance(made, pa.RecordBatch):
            made = pa.Table.from_batches([made])
        if not isinstance(made, pa.Table):
            raise InputError(
                f"the step {self.name} made a {type(made).__name__} of a table",
                remedy="return a pyarrow.Table, the one given if there is nothing to change",
                code="NotATable",
            )
        if before is not None and made.equals(before, check_metadata=True):
            return rows
        return rows.replaced(made)


class _Mapped(_OnRows):
    def map(self, key: Any, value: Any) -> Any:
        if not isinstance(value, Rows):
            return value
        table = value.table()
        return self._kept(value, table, self.inner.map(key, table))


class _FlatMapped(_OnRows):
    def flat_map(self, key: Any, value: Any) -> Iterator[tuple[Any, Any]]:
        if isinstance(value, Rows):
            table = value.table()
            for other, made in self.inner.flat_map(key, table):
                yield other, self._kept(value, table if other == key else None, made)


class _Processed(_OnRows):
    def process(self, items: Sequence[tuple[Any, Any]]) -> Iterator[tuple[Any, Any, Any]]:
        given = {key: value for key, value in items if isinstance(value, Rows)}
        tables = {key: rows.table() for key, rows in given.items()}
        if not given:
            return
        for source, key, made in self.inner.process(list(tables.items())):
            rows = given[source] if source in given else given.get(key, next(iter(given.values())))
            same = rows is given.get(key)
            yield source, key, self._kept(rows, tables[key] if same else None, made)


def on_rows(step: Step) -> Step:
    """Return a step on references that does what a step on tables does."""
    kinds: dict[str, type[_OnRows]] = {"map": _Mapped, "flat_map": _FlatMapped, "process": _Processed}
    return kinds[step.kind](step)
