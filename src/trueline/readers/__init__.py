r"""Readers of CSV, JSON, Parquet, Arrow and plain text: a bad cell is null and counted, no row is lost.

>>> import pyarrow as pa
>>> reader, files = csv(separator=";"), find(b"day;price\n2026-11-13;9.5\n2026-02-30;9\n")
>>> schema = pa.schema({"day": pa.date32(), "price": pa.float64()})
>>> reading = reader.read(files[0], schema)
>>> [batch.bad.to_pylist() for batch in reading]
[[{'row': 1, 'line': 3, 'column': 'day', 'text': '2026-02-30'}]]
>>> reading.stats.counts.shares
{'day': 0.5}

A reader is a value, and says what it would do:

>>> isinstance(reader, Reader), reader.to_dict(), reader.options["separator"]
(True, {'kind': 'csv', 'separator': ';'}, ';')
>>> Reader.from_dict(reader.to_dict()) == reader, reader.from_read_step(reader.to_read_step()) == reader
(True, True)
>>> reader.infer(files).names, reader.parts(files[0]), reader.count_rows(files[0])
(['day', 'price'], [...], None)
>>> reader.counted(files[0], schema, count=2)
[Part(start=0, stop=None, names=None, row=None, inside=None)]
>>> reader.limits.columns, reader.within(Limits(columns=5)).limits.columns
(10000, 5)
>>> type(reader.rules).__name__, type(json().rules).__name__
('CellRules', 'CellRules')
>>> isinstance(reading, Reading), isinstance(next(iter(reader.read(files[0], schema))), Batch)
(True, True)
>>> reading.stats.counts.total, ReadStats.from_dict(reading.stats.to_dict()) == reading.stats
(1, True)
>>> Limits(batch_bytes=1000).too_large("a.parquet", "a page", 5000).code
'LimitExceeded'
>>> import tempfile
>>> with tempfile.NamedTemporaryFile(suffix=".csv") as file:
...     Source.file(file.name).size
0
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import PurePosixPath

from trueline.errors import InputError
from trueline.limits import Limits
from trueline.readers.archive import member_name
from trueline.readers.arrow_reader import ArrowReader
from trueline.readers.batch import (
    BAD_CELLS,
    BATCH_ROWS,
    EXTRA,
    LINE,
    MAX_LISTED,
    BadCounts,
    Batch,
    Reading,
    ReadStats,
)
from trueline.readers.csv_reader import CsvReader
from trueline.readers.diagnosis import looks_wrong
from trueline.readers.json_reader import JsonReader
from trueline.readers.parquet_reader import ParquetReader
from trueline.readers.reader import Reader
from trueline.readers.source import Source, find
from trueline.readers.text_reader import TextReader

__all__ = [
    "BAD_CELLS",
    "BATCH_ROWS",
    "EXTRA",
    "LINE",
    "MAX_LISTED",
    "ArrowReader",
    "BadCounts",
    "Batch",
    "CsvReader",
    "JsonReader",
    "Limits",
    "ParquetReader",
    "ReadStats",
    "Reader",
    "Reading",
    "Source",
    "TextReader",
    "arrow",
    "csv",
    "find",
    "is_known_by_name",
    "json",
    "looks_wrong",
    "parquet",
    "reader_for",
    "text",
]

arrow = ArrowReader
csv = CsvReader
json = JsonReader
parquet = ParquetReader
text = TextReader

# Made when they are asked for: making one loads pandas, where it is installed.
_BY_ENDING: dict[str, Callable[[], Reader]] = {
    ".arrow": arrow,
    ".csv": csv,
    ".feather": arrow,
    ".ipc": arrow,
    ".tsv": partial(csv, separator="\t"),
    ".json": json,
    ".jsonl": json,
    ".ndjson": json,
    ".parquet": parquet,
    ".txt": text,
}


def reader_for(sources: Sequence[Source]) -> Reader:
    """Choose a reader by the ending of the names; `.gz` and `.zip` are looked through.

    >>> reader_for([Source.memory(b"", "sales.csv.gz")]).to_dict()["kind"]
    'csv'
    """
    endings = {_ending(source) for source in sources}
    if len(endings) == 1 and (make := _BY_ENDING.get(next(iter(endings)))) is not None:
        return make()
    shown = ", ".join(sorted(ending or "(none)" for ending in endings))
    raise InputError(
        f"no reader is known for files ending in {shown}",
        remedy="give reader=trueline.csv(...), .json(...), .parquet(...), .arrow(...) or .text(...)",
        code="UnknownFormat",
    )


def is_known_by_name(path: str) -> bool:
    """Whether the ending of a name alone says how a file is read.

    >>> is_known_by_name("inbox/*.csv.zip"), is_known_by_name("inbox/*.zip")
    (True, False)
    """
    return _ending_of(path) in _BY_ENDING


def _ending(source: Source) -> str:
    """The ending of a file's name; of an archive whose own name does not say, that of its member."""
    found = _ending_of(source.path)
    if found == ".zip" and (member := member_name(source)) is not None:
        return _ending_of(member)
    return found


def _ending_of(path: str) -> str:
    name = PurePosixPath(path)
    ending = name.suffix.lower()
    if ending not in (".gz", ".zip"):
        return ending
    inner = PurePosixPath(name.stem).suffix.lower()
    return inner if ending == ".gz" or inner in _BY_ENDING else ending
