"""JSON: one object per line, an array of objects, or objects one after another."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, ClassVar, Self

import pyarrow as pa

from trueline.errors import BrokenFile, InputError
from trueline.limits import CELLS
from trueline.readers import json_values
from trueline.readers.batch import BATCH_ROWS, MAX_LISTED, ParsedRows, Reading, ReadStats
from trueline.readers.blocks import BLOCK, Lines, RecordBlock, blocks
from trueline.readers.column_types import ColumnTypes
from trueline.readers.inference import moment, number
from trueline.readers.json_block import LineParser, UnknownKeys
from trueline.readers.json_layout import Ahead, Records, ValueBlock, has_lines, value_blocks
from trueline.readers.parts import PART_BYTES, WHOLE, CountedBlock, Part, after_line, counted_parts, cut_text
from trueline.readers.reader import NO_TYPES, NOTHING, SAMPLE_BYTES, SAMPLE_ROWS, Reader, chosen, guessed
from trueline.readers.rules import CellRules, check_readable
from trueline.readers.source import Source
from trueline.readers.stream import can_be_cut, encoding_name, opened

# Few write a letter that needs no escape as one.
_PLAIN_ESCAPED = re.compile(rb"\\u00[2-7]")
# Bytes of the beginning that an error shows where nothing is an object.
_SHOWN = 1_000
_NO_OBJECT: dict[str, Any] = {}
_STEP = {"encoding": "encoding", "dateFormat": "date_format", "timestampFormat": "timestamp_format"}


@dataclass(frozen=True)
class JsonReader(Reader):
    r"""Reads JSON lines, arrays and objects one after another; `docs/reference/readers.md` says exactly how.

    >>> file = Source.memory(b'{"a": 1}\n{"a": "x", "b": [1, 2]}\nnonsense\n')
    >>> batch = next(JsonReader().read(file, pa.schema({"a": pa.int64(), "b": pa.string()})))
    >>> batch.table.to_pydict()
    {'a': [1, None, None], 'b': [None, '[1,2]', None]}
    >>> batch.bad["column"].to_pylist()
    ['a', '(line)']
    >>> array = Source.memory(b'[{"a": 1},\n {"a": 2}]')
    >>> next(JsonReader().read(array, pa.schema({"a": pa.int64()}))).table["a"].to_pylist()
    [1, 2]
    """

    kind: ClassVar[str] = "json"

    encoding: str = "utf-8"
    date_format: str | None = None
    timestamp_format: str | None = None
    timezone: str = "UTC"
    types: Mapping[str, Any] | ColumnTypes = NO_TYPES
    member: str | None = None
    max_listed: int = MAX_LISTED
    max_columns: int | None = None
    max_record_bytes: int | None = None
    block_bytes: int = BLOCK

    def __post_init__(self) -> None:
        object.__setattr__(self, "encoding", encoding_name(self.encoding))
        object.__setattr__(self, "types", ColumnTypes.of(self.types))
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
        # Who names the columns wants these and no others; who does not is to hear of others.
        keys = UnknownKeys(frozenset(schema.names), self.limits.columns) if columns is None else None
        parser = LineParser(self.rules, chosen(schema, columns), typed=typed, keys=keys)
        pieces = self._pieces(source, schema, parser, stats, part)
        return Reading(pieces, stats, batch_rows=batch_rows, max_listed=self.max_listed)

    def _pieces(
        self, source: Source, schema: pa.Schema, parser: LineParser, stats: ReadStats, part: Part
    ) -> Iterator[ParsedRows]:
        first: dict[str, Any] | None = {} if part.start else None
        unseen = list(schema.names)
        # Rows of a file that may not be JSON at all wait for the first object, as long as they are few.
        waiting: list[ParsedRows] = []
        for block in self._blocks(source, part):
            if first is None:
                # The keys of the first object show a schema that belongs to another file.
                first = next(_objects(block), None)
                unknown = (key for key in first or () if schema.get_field_index(key) < 0)
                stats.unknown += islice(unknown, self.limits.columns)
            unseen = unseen_keys(block, unseen)
            waiting += parser.pieces(block, stats)
            if parser.objects or part.row is not None or sum(map(_cells, waiting)) > CELLS:
                yield from waiting
                waiting = []
            if part.stop is not None:
                stats.lines = block.line - 1 + block.text.count(b"\n")
        stats.absent += unseen
        rows = stats.rows + sum(piece.table.num_rows for piece in waiting)
        if rows and not parser.objects and part.row is None:
            raise _not_json(source, self.encoding, self.member)
        yield from waiting

    def parts(self, source: Source, *, size: int = PART_BYTES) -> list[Part]:
        """Cut text in UTF-8 behind lines, where each is a record."""
        if not can_be_cut(source, self.encoding, size):
            return [WHOLE]
        with opened(source) as stream:
            if not has_lines(Ahead(stream), self.limits.record_bytes):
                return [WHOLE]
        return cut_text(source, size, after_line)

    def counted(self, source: Source, schema: pa.Schema, *, count: int) -> list[Part]:
        """Cut text in UTF-8 between records, lines or not."""
        if not can_be_cut(source, self.encoding, 1):
            return super().counted(source, schema, count=count)
        found, has_object = [], False
        for block in self._blocks(source):
            inside = block.inside if isinstance(block, ValueBlock) else None
            has_object = has_object or any(each is not _NO_OBJECT for each in _objects(block))
            found.append(CountedBlock(len(block.text), len(Records(block)), inside))
        if not has_object and any(block.rows for block in found):
            raise _not_json(source, self.encoding, self.member)
        return counted_parts(source, found, count)

    def _blocks(self, source: Source, part: Part = WHOLE) -> Iterator[RecordBlock]:
        size, limit, ends = self.block_bytes, self.limits.record_bytes, part.ends
        with opened(source, self.encoding, part, member=self.member) as stream:
            ahead = Ahead(stream)
            # Values are cut into parts only where they were counted.
            values = not has_lines(ahead, limit) if part == WHOLE else part.inside is not None
            if values:
                inside = bool(part.inside)
                last = part.stop is None
                yield from value_blocks(ahead, source, size=size, limit=limit, inside=inside, ends=last)
            else:
                yield from blocks(ahead, source, Lines(universal=False), size=size, limit=limit, ends=ends)

    def infer(
        self, sources: Sequence[Source], *, rows: int = SAMPLE_ROWS, known: pa.Schema = NOTHING
    ) -> pa.Schema:
        """All keys of the first rows, each with the narrowest type that loses nothing of them."""
        sample: dict[str, list[Any]] = {}
        room = SAMPLE_BYTES
        for source in sources:
            records = objects = 0
            for block in self._blocks(source) if rows > 0 else ():
                for found in _objects(block):
                    records, objects = records + 1, objects + (found is not _NO_OBJECT)
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
            if records and not objects:
                raise _not_json(source, self.encoding, self.member)
        types = ColumnTypes.of(self.types)
        return guessed(sample, known, lambda values: _guess(values, self.rules), types)

    def to_read_step(self) -> dict[str, object]:
        step = {theirs: getattr(self, ours) for theirs, ours in _STEP.items()}
        return {"kind": "NdJson", **{name: value for name, value in step.items() if value is not None}}

    @classmethod
    def from_read_step(cls, step: Mapping[str, Any]) -> Self:
        if step.get("kind") != "NdJson":
            super().from_read_step(step)
        return cls(**{ours: step[theirs] for theirs, ours in _STEP.items() if step.get(theirs) is not None})


def unseen_keys(block: RecordBlock, names: list[str]) -> list[str]:
    """Return those names that are not a key of any object of a block."""
    # Records are parsed only where the text says that a key might be there.
    doubtful = {name for name in names if _may_have(block.text, name)}
    missing = set(names) - doubtful
    found = _objects(block)
    while doubtful and (one := next(found, None)) is not None:
        doubtful.difference_update(one)
    return [name for name in names if name in missing or name in doubtful]


def _may_have(text: bytes, name: str) -> bool:
    """Say whether a text may have a key: as it is, or with letters of it written as escapes."""
    if name.isascii() and name.isidentifier():
        return f'"{name}"'.encode() in text or (b"\\u" in text and _PLAIN_ESCAPED.search(text) is not None)
    return b"\\" in text or json.dumps(name, ensure_ascii=False).encode() in text


def _objects(block: RecordBlock) -> Iterator[dict[str, Any]]:
    """The objects of a block; a record that is not one counts as an empty one."""
    records = Records(block)
    for place in range(len(records)):
        try:
            yield json_values.parse(records.record(place))
        except json_values.NotAnObject:
            yield _NO_OBJECT


def _cells(piece: ParsedRows) -> int:
    cells: int = piece.table.num_rows * max(piece.table.num_columns, 1)
    return cells


def _not_json(source: Source, encoding: str, member: str | None) -> BrokenFile:
    """The error of a file in which nothing is an object."""
    with opened(source, encoding, member=member) as stream:
        begin = Ahead(stream).look(_SHOWN).decode("utf-8", "replace")
    text = " ".join(begin.split())[:60]
    if text.startswith("<"):
        remedy = "it looks like a web page: fetch the file itself (is a login needed?)"
    elif text[:1] in ("[", '"') or text[:1].isdigit():
        remedy = 'write each value as an object, {"value": 1}, or read the lines: reader=trueline.text()'
    else:
        remedy = "give reader=trueline.csv(...) or reader=trueline.text() if it is text, else fetch it again"
    return BrokenFile(
        f"{source.path} is not JSON: nothing in it is an object; it begins with {text!r}",
        remedy=remedy,
        code="NotJson",
        path=source.path,
    )


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
