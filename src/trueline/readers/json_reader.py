"""JSON, one object per line."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Self

import pyarrow as pa

from trueline.errors import InputError
from trueline.readers import json_values
from trueline.readers.batch import BATCH_ROWS, MAX_LISTED, ParsedRows, Reading, ReadStats
from trueline.readers.blocks import BLOCK, Lines, RecordBlock, blocks
from trueline.readers.inference import moment, number
from trueline.readers.json_block import LineParser
from trueline.readers.parts import PART_BYTES, WHOLE, Part, after_line, cut_text
from trueline.readers.reader import NOTHING, SAMPLE_BYTES, SAMPLE_ROWS, Reader, chosen, guessed
from trueline.readers.rules import CellRules, check_readable
from trueline.readers.source import Source
from trueline.readers.stream import can_be_cut, encoding_name, opened

_STEP = {"encoding": "encoding", "dateFormat": "date_format", "timestampFormat": "timestamp_format"}


@dataclass(frozen=True)
class JsonReader(Reader):
    r"""Reads JSON lines; `docs/reference/readers.md` says exactly how.

    >>> file = Source.memory(b'{"a": 1}\n{"a": "x", "b": [1, 2]}\nnonsense\n')
    >>> batch = next(JsonReader().read(file, pa.schema({"a": pa.int64(), "b": pa.string()})))
    >>> batch.table.to_pydict()
    {'a': [1, None, None], 'b': [None, '[1,2]', None]}
    >>> batch.bad["column"].to_pylist()
    ['a', '(line)']
    """

    kind: ClassVar[str] = "json"

    encoding: str = "utf-8"
    date_format: str | None = None
    timestamp_format: str | None = None
    timezone: str = "UTC"
    max_listed: int = MAX_LISTED
    max_columns: int | None = None
    max_record_bytes: int | None = None
    block_bytes: int = BLOCK

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", encoding_name(self.encoding))
        _ = self.limits
        if self.block_bytes < 1 or self.max_listed < 0:
            raise InputError("block_bytes or max_listed is too small", remedy="give a larger number")
        _ = self.rules

    @property
    def rules(self) -> CellRules:
        """How text becomes dates and times."""
        return CellRules(
            nulls=(),
            date_format=self.date_format,
            timestamp_format=self.timestamp_format,
            timezone=self.timezone,
        )

    def read(
        self,
        source: Source,
        schema: pa.Schema,
        *,
        columns: Sequence[str] | None = None,
        batch_rows: int = BATCH_ROWS,
        part: Part = WHOLE,
        typed: bool = True,
    ) -> Reading:
        """Read one file; `typed=False` goes the slow way, with the same result."""
        check_readable(schema, "a JSON file", nested=True)
        stats = ReadStats()
        parser = LineParser(self.rules, chosen(schema, columns), typed=typed)
        pieces = self._pieces(source, schema, parser, stats, part)
        return Reading(pieces, stats, batch_rows=batch_rows, max_listed=self.max_listed)

    def _pieces(
        self, source: Source, schema: pa.Schema, parser: LineParser, stats: ReadStats, part: Part
    ) -> Iterator[ParsedRows]:
        first: dict[str, Any] | None = {} if part.start else None
        for block in self._blocks(source, part):
            if first is None:
                # The keys of the first object show a schema that belongs to another file.
                first = next(_objects(block), None)
                unknown = (key for key in first or () if schema.get_field_index(key) < 0)
                stats.unknown += islice(unknown, self.limits.columns)
            yield from parser.pieces(block, stats)
            if part.stop is not None:
                stats.lines = block.line - 1 + block.text.count(b"\n")

    def parts(self, source: Source, *, size: int = PART_BYTES) -> list[Part]:
        """Cut text in UTF-8 behind lines, each of which is a record."""
        return cut_text(source, size, after_line) if can_be_cut(source, self.encoding, size) else [WHOLE]

    def _blocks(self, source: Source, part: Part = WHOLE) -> Iterator[RecordBlock]:
        size, limit, ends = self.block_bytes, self.limits.record_bytes, part.stop is None
        with opened(source, self.encoding, part) as stream:
            yield from blocks(stream, source, Lines(universal=False), size=size, limit=limit, ends=ends)

    def infer(
        self, sources: Sequence[Source], *, rows: int = SAMPLE_ROWS, known: pa.Schema = NOTHING
    ) -> pa.Schema:
        """All keys of the first rows, each with the narrowest type that loses nothing of them."""
        sample: dict[str, list[Any]] = {}
        room = SAMPLE_BYTES
        for source in sources:
            for block in self._blocks(source) if rows > 0 else ():
                for found in _objects(block):
                    for key, value in found.items():
                        sample.setdefault(key, []).append(value)
                    self.limits.check_columns(source.path, len(sample), block.line)
                    rows -= 1
                    if rows <= 0:
                        break
                room -= len(block.text)
                if rows <= 0 or room <= 0:
                    rows = 0
                    break
        return guessed(sample, known, lambda values: _guess(values, self.rules))

    def to_read_step(self) -> dict[str, object]:
        step = {theirs: getattr(self, ours) for theirs, ours in _STEP.items()}
        return {"kind": "NdJson", **{name: value for name, value in step.items() if value is not None}}

    @classmethod
    def from_read_step(cls, step: Mapping[str, Any]) -> Self:
        if step.get("kind") != "NdJson":
            super().from_read_step(step)
        return cls(**{ours: step[theirs] for theirs, ours in _STEP.items() if step.get(theirs) is not None})


def _objects(block: RecordBlock) -> Iterator[dict[str, Any]]:
    """The objects of a block; a line that is not one counts as an empty one."""
    for line in block.text.split(b"\n"):
        if line.strip(b" \t\r"):
            try:
                yield json_values.parse(line)
            except json_values.NotAnObject:
                yield {}


def _guess(values: Sequence[Any], rules: CellRules) -> pa.DataType:
    """Numbers, booleans, dates and timestamps where every value is one; else text."""
    there = [value for value in values if value is not None]
    if not there:
        return pa.string()
    if all(isinstance(value, bool) for value in there):
        return pa.bool_()
    if all(isinstance(value, json_values.Number) for value in there):
        return number(pa.array([str(value) for value in there], pa.string()), rules) or pa.string()
    texts = [value for value in there if isinstance(value, str) and not isinstance(value, json_values.Number)]
    if len(texts) < len(there):
        return pa.string()
    try:
        text = pa.array(texts, pa.string())
    except UnicodeEncodeError:
        return pa.string()
    return moment(text, rules) or pa.string()
