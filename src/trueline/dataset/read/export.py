"""Writing a view to one file for others: CSV, Parquet, JSON lines."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from trueline.chain.store.files import refusal, sync_folder
from trueline.console.items import plain
from trueline.errors import InputError, SchemaError, TruelineError, check_memory
from trueline.view.view import View

_Write = Callable[[BinaryIO, pa.Schema, Iterable[pa.RecordBatch]], None]


@dataclass(frozen=True, slots=True)
class Exported:
    """What was written: where, how many rows, how many bytes."""

    path: str
    rows: int
    size: int


def export(view: View, path: str | os.PathLike[str], *, overwrite: bool = False) -> Exported:
    """Write a view to a file, whole or not at all; the ending says the format.

    A batch at a time, so that a large dataset needs little memory.
    """
    target = Path(path)
    write = _FORMATS.get(target.suffix.lower())
    if write is None:
        raise InputError(
            f"{target.name!r} names no format", remedy=f"end it with {', '.join(_FORMATS)}", code="BadFormat"
        )
    if target.exists() and not overwrite:
        raise InputError(
            f"{target} exists", remedy="choose another name, or say overwrite", code="FileExists"
        )
    counted = _Counted(view)
    staged = target.with_name(f".{target.name}.{os.urandom(4).hex()}")
    try:
        with staged.open("wb") as file:
            write(file, view.schema.to_arrow(), counted)
            file.flush()
            os.fsync(file.fileno())
        staged.replace(target)
        sync_folder(target.parent)
    except TruelineError:
        raise
    except (pa.ArrowException, MemoryError) as error:
        check_memory(error, f"writing {target.name}")
        raise SchemaError(
            f"{target.suffix} cannot hold the view: {error}",
            remedy="leave the column out, or export .parquet",
        ) from None
    except OSError as error:
        raise refusal(error, "write", str(target)) from error
    finally:
        with suppress(OSError):
            staged.unlink()
    return Exported(str(target), counted.rows, target.stat().st_size)


class _Counted:
    """The batches of a view, counted as they pass."""

    def __init__(self, view: View) -> None:
        self._view = view
        self.rows = 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._view.batches():
            self.rows += batch.num_rows
            yield batch


def _csv(file: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """Missing is an empty cell, empty text is two quotes."""
    with pyarrow.csv.CSVWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _parquet(file: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    with pq.ParquetWriter(file, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _json(file: BinaryIO, schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> None:
    """One object a line; times as text, bytes as hex, NaN as null."""
    del schema
    for batch in batches:
        lines = (json.dumps(plain(row), ensure_ascii=False) for row in batch.to_pylist())
        file.writelines(f"{line}\n".encode() for line in lines)


_FORMATS: Final[dict[str, _Write]] = {".csv": _csv, ".parquet": _parquet, ".json": _json, ".jsonl": _json}
