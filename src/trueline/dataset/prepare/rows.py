"""Rows between two steps: a reference to them, so that a run holds none and values are compared by digest."""

from __future__ import annotations

import hashlib
import mmap
import uuid
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, BinaryIO

import pyarrow as pa

from trueline.chain.store.scratch import Scratch
from trueline.errors import InputError
from trueline.readers import ReadStats
from trueline.run import ERASED, Step


@dataclass(frozen=True, slots=True)
class Parsed:
    """What reading a file gave beside its rows: counts, and the cells that could not be read."""

    stats: ReadStats
    cells: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Rows:
    """The rows of a file, or of a table: where they are, how many, and a digest that tells them apart.

    Two are equal if their digests are. Every `keep` writes to a place of its
    own: an attempt that is thrown away has touched nothing another one reads.

    >>> from trueline.chain import MemoryStore
    >>> with MemoryStore().scratch() as scratch:
    ...     rows = Rows.keep(pa.table({"x": [1, 2]}), scratch)
    ...     rows.count, rows.table()["x"].to_pylist(), rows.replaced(pa.table({"x": [1, 2]})) == rows
    ...     rows.schema.names
    (2, [1, 2], True)
    ['x']
    """

    digest: str
    count: int
    scratch: Scratch = field(compare=False, repr=False)
    name: str = field(compare=False, repr=False)
    parsed: Parsed | None = field(default=None, compare=False, repr=False)

    @classmethod
    def keep(cls, table: pa.Table, scratch: Scratch, parsed: Parsed | None = None) -> Rows:
        """Write a table to a place of its own and return the reference."""
        writer = RowsWriter(scratch, table.schema)
        writer.write(table)
        return writer.finish(parsed)

    def table(self) -> pa.Table:
        """Return the rows; in a folder they are mapped, not copied."""
        with self.scratch.open(self.name) as opened:
            source: Any = opened
            if self.scratch.folder is not None:
                source = pa.py_buffer(mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ))
            with pa.ipc.open_file(source) as reader:
                return reader.read_all()

    @property
    def schema(self) -> pa.Schema:
        """The columns of the rows; no row is read."""
        with self.scratch.open(self.name) as opened, pa.ipc.open_file(opened) as reader:
            return reader.schema

    def replaced(self, table: pa.Table) -> Rows:
        """Return a reference to other rows of the same file."""
        return Rows.keep(table, self.scratch, self.parsed)


class RowsWriter:
    """Writes rows to a place of its own, and their digest as they pass."""

    def __init__(self, scratch: Scratch, schema: pa.Schema) -> None:
        self._scratch = scratch
        self._name = f"rows-{uuid.uuid4().hex}.arrow"
        self._file = _Hashed(scratch.create(self._name))
        self._writer = pa.ipc.new_file(pa.PythonFile(self._file, mode="w"), schema)
        self._count = 0

    def write(self, rows: pa.Table) -> None:
        """Add rows."""
        self._count += rows.num_rows
        for batch in rows.combine_chunks().to_batches():
            self._writer.write_batch(batch)

    def finish(self, parsed: Parsed | None = None) -> Rows:
        """Close the file and return the reference."""
        self.close()
        return Rows(self._file.hash.hexdigest(), self._count, self._scratch, self._name, parsed)

    def close(self) -> None:
        """Let go of the file, finished or not."""
        self._writer.close()
        self._file.close()


class _Hashed:
    """A file that hashes what is written to it."""

    closed = False

    def __init__(self, inner: BinaryIO) -> None:
        self._inner = inner
        self.hash = hashlib.blake2b(digest_size=16)

    def write(self, data: Any) -> int:
        self.hash.update(data)
        return self._inner.write(data)

    def tell(self) -> int:
        return self._inner.tell()

    def flush(self) -> None:
        """Closing flushes."""

    def close(self) -> None:
        self.closed = True
        self._inner.close()


def without_texts(parsed: Parsed, columns: frozenset[str]) -> Parsed:
    """Forget the texts of bad cells of some columns, and of whole lines, which may hold them."""
    import pyarrow.compute as pc

    if parsed.cells is None:
        return parsed
    names = pa.array([*sorted(columns), "(line)", "(extra)"], pa.string())
    hidden = pc.is_in(parsed.cells["column"], value_set=names)
    texts = pc.if_else(hidden, pa.scalar(None, pa.string()), parsed.cells["text"])
    place = parsed.cells.schema.get_field_index("text")
    return replace(parsed, cells=parsed.cells.set_column(place, "text", texts))


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
    """Return a step on references that does what a step on tables does.

    >>> from trueline.run import Step
    >>> on_rows(Step(map=lambda key, table: table.slice(0, 1), name="first")).name
    'first'
    """
    kinds: dict[str, type[_OnRows]] = {"map": _Mapped, "flat_map": _FlatMapped, "process": _Processed}
    return kinds[step.kind](step)
