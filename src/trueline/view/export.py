"""Views as files for others: whole or not at all, a chunk at a time, and what each format loses is stated.

Parquet and Arrow IPC lose ids (they become row numbers) and hidden columns, and Parquet counts seconds in
milliseconds; values, other types and annotations come back. JSON lines and CSV lose annotations too, and
types unless they are declared when the file is read. In JSON lines times are text, bytes are hex, and NaN is
null. CSV refuses what would not come back: vectors, nested columns, row ids, zero characters, bytes that are
not text, and days outside of the years 1 to 9999.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from glob import escape
from pathlib import Path
from typing import BinaryIO, Final, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq

from trueline import disk
from trueline import types as t
from trueline.console.items import plain
from trueline.errors import (
    InputError,
    SchemaError,
    StoreError,
    check_memory,
)
from trueline.readers.cells import decode
from trueline.view.converting.times import are_writable, text_of_durations
from trueline.view.engine import engine
from trueline.view.execute.dispatch import batches
from trueline.view.plan.node import Node
from trueline.view.plan.on_spark import OnSpark


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: where, how many rows, how many bytes."""

    path: str
    rows: int
    size: int


def export(node: Node, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
    """Write the visible columns to a file; its ending says the format."""
    target = Path(path)
    write = _FORMATS.get(target.suffix.lower())
    if write is None:
        raise InputError(
            f"{target.name!r} names no format", remedy=f"end it with {', '.join(_FORMATS)}", code="BadFormat"
        )
    return write(node, path, overwrite=overwrite)


def write_parquet(node: Node, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
    """Write the visible columns; types and annotations travel with them."""

    schema = node.schema.to_arrow()

    def write(file: BinaryIO, rows: _Counted) -> None:
        with pq.ParquetWriter(file, schema, version="2.6") as writer:
            for batch in rows:
                writer.write_batch(batch)

    return _written(node, path, write, overwrite=overwrite)


def write_arrow(node: Node, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
    """Write the visible columns as a file of Arrow IPC; types and annotations travel with them."""

    schema = node.schema.to_arrow()

    def write(file: BinaryIO, rows: _Counted) -> None:
        with pa.ipc.new_file(file, schema) as writer:
            for batch in rows:
                writer.write_batch(batch)

    return _written(node, path, write, overwrite=overwrite)


def write_json(node: Node, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
    """Write one JSON object a line; times as text, bytes as hex, NaN as null."""

    def write(file: BinaryIO, rows: _Counted) -> None:
        for batch in rows:
            lines = (json.dumps(plain(row), ensure_ascii=False) for row in batch.to_pylist())
            file.writelines(f"{line}\n".encode() for line in lines)

    return _written(node, path, write, overwrite=overwrite)


def write_csv(
    node: Node,
    path: str | os.PathLike[str],
    *,
    separator: str = ",",
    header: bool = True,
    overwrite: bool = False,
) -> Exported:
    """Write the visible columns: null is an empty cell, empty text is two quotes.

    Durations are written as ISO 8601 has them. A value that `read_csv` could not
    read back is an error that names its column and row, and nothing is written.
    """
    _check_csv(node, header=header)
    schema = pa.schema(
        [
            pa.field(each.name, pa.string()) if pa.types.is_duration(each.type) else each
            for each in node.schema.to_arrow()
        ]
    )

    def write(file: BinaryIO, rows: _Counted) -> None:
        options = arrow_csv.WriteOptions(include_header=header, delimiter=separator)
        with arrow_csv.CSVWriter(file, schema, write_options=options) as writer:
            for batch in rows:
                cells = [
                    _cells(array, name, rows.rows - batch.num_rows)
                    for array, name in zip(batch.columns, batch.schema.names, strict=True)
                ]
                writer.write_batch(pa.RecordBatch.from_arrays(cells, schema=schema))

    return _written(node, path, write, overwrite=overwrite)


_Write: TypeAlias = Callable[..., Exported]
_FORMATS: Final[dict[str, _Write]] = {
    ".csv": write_csv,
    ".parquet": write_parquet,
    ".json": write_json,
    ".jsonl": write_json,
    ".arrow": write_arrow,
}


def _check_csv(node: Node, *, header: bool) -> None:
    for column in node.schema.visible:
        if not column.type.is_primitive or isinstance(column.type, t.RowIdentity):
            raise SchemaError(
                f"column {column.name!r} is of type {column.type}, which CSV cannot hold",
                remedy="leave it out, explode it, or write Parquet",
                column=column.name,
            )
        if header and "\0" in column.name:
            raise SchemaError(
                f"the name of column {column.name!r} has a zero character, which CSV cannot hold",
                remedy="rename it, or write no header",
                column=column.name,
            )


def _cells(array: pa.Array, name: str, first: int) -> pa.Array:
    """Return what is written of a column; a value that would not be read back is an error."""
    kind, types = array.type, pa.types
    if types.is_duration(kind):
        return text_of_durations(array)
    wrong, what = None, ""
    if types.is_string(kind) or types.is_large_string(kind) or types.is_binary(kind):
        wrong, what = pc.match_substring(array.cast(pa.binary()), "\0"), "a zero character"
        if types.is_binary(kind) and not pc.any(wrong).as_py():
            wrong, what = decode(array)[1], "bytes that are not text"
    elif types.is_timestamp(kind) or types.is_date(kind):
        wrong, what = ~are_writable(array), "a day outside of the years 1 to 9999"
    at = -1 if wrong is None else pc.index(pa.array(wrong), True).as_py()
    if at < 0:
        return array
    raise SchemaError(
        f"column {name!r} has {what} in row {first + at:,}, which CSV cannot hold",
        remedy="leave the column out, fix the value, or write Parquet",
        column=name,
        row=first + at,
    )


class _Counted:
    """The batches of a view, counted as they pass."""

    def __init__(self, given: Iterable[pa.RecordBatch]) -> None:
        self._given = given
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._given:
            self.rows += batch.num_rows
            yield batch


@dataclass(frozen=True)
class WriteFile:
    """Writes a file under a name that it has until it is whole: here, or in a task of a cluster.

    Each attempt has a name of its own, which begins as those of the others do.
    """

    target: Path
    beginning: str
    write: Callable[[BinaryIO, _Counted], None]

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> tuple[str, int]:
        """Write the rows; return the name, and how many there were."""
        name, counted = f"{self.beginning}{os.urandom(4).hex()}", _Counted(rows)
        with _refusing(self.target), self.target.with_name(name).open("wb") as file:
            self.write(file, counted)
            file.flush()
            disk.fsync(file.fileno())
        return name, counted.rows

    def clear(self) -> None:
        """Remove what attempts have left."""
        with suppress(OSError):
            for left in self.target.parent.glob(f"{escape(self.beginning)}*"):
                left.unlink()


def _written(
    node: Node,
    path: str | os.PathLike[str],
    write: Callable[[BinaryIO, _Counted], None],
    *,
    overwrite: bool,
) -> Exported:
    target = Path(path)
    if not node.schema.visible:
        raise SchemaError(
            "the view has no columns, and a file without columns holds no rows",
            remedy="select a column, or add one: with_row_id('id')",
        )
    if target.exists() and not overwrite:
        raise InputError(
            f"{target} exists", remedy="choose another name, or say overwrite=True", code="FileExists"
        )
    work = WriteFile(target.absolute(), f".{target.name}.{os.urandom(4).hex()}", write)
    try:
        name, rows = _by_a_task(node, work) or work(batches(node, node.schema.visible))
        with _refusing(target):
            target.with_name(name).replace(target)
            disk.sync_folder(target.parent)
    finally:
        work.clear()
    return Exported(str(target), rows, target.stat().st_size)


def _by_a_task(node: Node, work: WriteFile) -> tuple[str, int] | None:
    """Let a task of a cluster write a file; None where this process has to."""
    if not isinstance(node, OnSpark):
        return None
    found = engine().write_whole(node.below, node.session, work.target.parent, work)
    if found is None or (found[0].startswith(work.beginning) and Path(found[0]).name == found[0]):
        return found
    raise StoreError(f"{found[0]!r:.80} is not a name that was given", remedy="try again", path=found[0])


@contextmanager
def _refusing(target: Path) -> Iterator[None]:
    """Turn errors of writing into ours."""
    try:
        yield
    except (pa.ArrowException, MemoryError) as error:
        check_memory(error, f"writing {target.name}")
        raise SchemaError(
            f"{target.name} cannot hold the view: {error}", remedy="leave the column out, or write Parquet"
        ) from None
    except OSError as error:
        raise error if isinstance(error, StoreError) else _refused(error, target) from error


def _refused(error: OSError, target: Path) -> StoreError:
    """Return an error of the operating system as one that names the place and what to do."""
    return disk.storage_error(
        error,
        "write",
        str(target),
        remedy="check that the folder exists, then try again",
        if_full="free some space there, then try again",
        if_read_only="give this user the right to write there, or choose another folder",
    )
