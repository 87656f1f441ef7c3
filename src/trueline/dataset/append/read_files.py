"""Files read into pieces: again where their columns or types turn out other than their first rows said."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import pyarrow as pa

from trueline.chain.head_state import Tail
from trueline.chain.schema import to_arrow
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.file_columns import columns_for, columns_in, known_columns
from trueline.dataset.append.incoming import (
    FileRead,
    FileTask,
    ReadFiles,
    read_all,
    read_file,
    schema_of,
    typed_for,
)
from trueline.dataset.append.inferred import FileColumns, Inferred, placeholder_advice, profiles_of
from trueline.dataset.append.new_columns import NewColumns, refuse_case_twins, refuse_unknown, unknown_columns
from trueline.dataset.commit import Advice
from trueline.errors import SchemaError
from trueline.kernel.tasks import Tasks, apply
from trueline.readers import Reader, Source

# One to find columns that only later rows have, one for wider types, one for columns that stay text.
_ROUNDS: Final = 8


@dataclass(frozen=True, slots=True)
class ReadRequest:
    """Files to be read for a dataset: how, and what is allowed of their columns and cells.

    `op` names the column of operations, where the strategy takes them.
    """

    files: Sequence[Source]
    reader: Reader
    tail: Tail
    op: str | None
    new: NewColumns
    lenient: bool

    @property
    def known(self) -> tuple[str, ...] | None:
        """The columns that files may have, None where they decide them."""
        if self.tail.schema is None:
            return None
        return (*known_columns(self.tail), *(() if self.op is None else (self.op,)))

    def inferred(self, columns: pa.Schema) -> Inferred:
        """Return the columns whose types come from the first rows."""
        known = [*to_arrow(schema_of(self.tail)).names, self.op or ""]
        return Inferred.of(columns, known, self.reader, self.tail.vocab.event_time, lenient=self.lenient)


def read_files(request: ReadRequest, *, scratch: Scratch, tasks: Tasks) -> ReadFiles | None:
    """Read files straight into pieces; None if they have no columns."""
    files, reader, tail, op = request.files, request.reader, request.tail, request.op
    columns = apply(tasks, first_columns, request, label="look at the first rows")
    if not columns.names:
        return None
    inferred = request.inferred(columns)
    max_listed = reader.options["max_listed"]
    assert isinstance(max_listed, int)  # every reader has it
    for attempt in range(_ROUNDS):
        with_op = op is not None and op in columns.names
        typed = typed_for(pa.schema([c for c in columns if c.name != op]), tail, request.new)
        work = [
            FileTask(
                file,
                reader,
                columns,
                typed,
                scratch,
                f"file-{attempt}-{number}.arrow",
                with_op,
                new=request.new,
                known=request.known,
            )
            for number, file in enumerate(files)
        ]
        reads = read_all(read_file, work, tasks, max_listed=max_listed)
        seen = [FileColumns(f, read.stats, read.cells) for f, read in zip(files, reads, strict=True)]
        settled = _settled(request, columns, seen)
        added = [name for name in settled if name not in columns.names]
        inferred = inferred.with_new(added)
        revised = _with_types(request, columns, settled, added, seen=seen, tasks=tasks)
        if revised.names == columns.names:
            inferred, revised = inferred.revise(columns, seen, tasks)
        if revised.equals(columns):
            noticed = apply(tasks, _noticed, (columns, inferred, files), label="look for words for null")
            advice = tuple(Advice(*each) for each in noticed)
            ignored = _ignored(reads) if request.new == "ignore" else ()
            return ReadFiles(tuple(reads), typed, with_op, advice=advice, ignored=ignored)
        columns = revised
    raise SchemaError(
        "the columns of the files change each time they are read", remedy="append them when they are complete"
    )


def first_columns(request: ReadRequest) -> pa.Schema:
    """Return the columns that the first rows of files suggest."""
    return columns_for(request.tail, request.files, request.reader, request.op, request.new)


def _noticed(task: tuple[pa.Schema, Inferred, Sequence[Source]]) -> list[tuple[str, str, str]]:
    return [(each.code, each.problem, each.remedy) for each in placeholder_advice(*task)]


def _ignored(reads: Iterable[FileRead]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for read in reads for name in read.stats.unknown))


def _settled(request: ReadRequest, columns: pa.Schema, seen: Sequence[FileColumns]) -> list[str]:
    """Return the columns to read, given those every file has; refuse files that have others by name.

    Where the dataset has no columns yet, the first file that has some decides them.
    """
    if request.known is not None:
        missed = dict.fromkeys(name for file in seen for name in file.stats.unknown)
        known = (*request.known, request.tail.vocab.event_time)
        allowed = [name for name in missed if request.new == "add" or name in known]
        return [*columns.names, *allowed]
    settled: list[str] = []
    for file in seen:
        given = columns_in(columns, file.stats, request.reader)
        if not settled:
            refuse_case_twins(given, place=file.source.path)
            settled = given
            continue
        unknown = unknown_columns(given, settled, request.new, place=file.source.path)
        if request.new == "error":
            refuse_unknown(given, settled, place=file.source.path)
        elif request.new == "add":
            settled = [*settled, *unknown]
    return [name for name in columns.names if name in settled] + [
        name for name in settled if name not in columns.names
    ] or list(columns.names)


def _with_types(
    request: ReadRequest,
    columns: pa.Schema,
    settled: Sequence[str],
    added: Sequence[str],
    *,
    seen: Sequence[FileColumns],
    tasks: Tasks,
) -> pa.Schema:
    """Return the columns to read with their types: of new ones, what the whole column suggests."""
    types = {column.name: column for column in (*to_arrow(schema_of(request.tail)), *columns)}
    if request.op is not None:
        types[request.op] = pa.field(request.op, pa.int32())
    new = [name for name in added if name not in types]
    profiles = profiles_of(new, request.reader, seen, tasks) if new else {}
    types |= {name: pa.field(name, profile.kind) for name, profile in profiles.items()}
    return pa.schema([types[name] for name in settled])
