"""Files read into pieces: which columns they have, of which types, and again where these turn out others.

A type is for ever, and the first rows are only a beginning. So in the commit that fixes the schema, cells
that do not fit a type that was inferred are not lost: the column is looked at as a whole and read again with
the type that holds every cell. Where only text would, the commit is refused.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from shlex import quote
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.chain.head_state import Tail
from trueline.chain.schema import to_arrow
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.incoming import (
    FileRead,
    FileTask,
    ReadFiles,
    columns_in,
    read_all,
    read_file,
    schema_of,
    typed_for,
)
from trueline.dataset.append.intake import user_fields
from trueline.dataset.append.new_columns import NewColumns, refuse_case_twins, refuse_unknown, unknown_columns
from trueline.dataset.commit import Advice
from trueline.errors import SchemaError
from trueline.kernel.tasks import Tasks, apply
from trueline.readers import Reader, ReadStats, Source, looks_wrong
from trueline.readers.profile import Profile
from trueline.readers.rules import CellRules, is_text
from trueline.readers.text_columns import PLACEHOLDERS, BetterOption, better_options

# One to find columns that only later rows have, one for wider types, one for columns that stay text.
_ROUNDS: Final = 8
_SHOWN: Final = 3
_SHOWN_COLUMNS: Final = 5
_WHY_TEXT: Final = {
    "nulls": "text only because of words for null",
    "decimal": "text, and every cell is a number with a decimal comma",
    "date_format": "text, and every cell is a date or a time",
    "timestamp_format": "text, and every cell is a date or a time",
}
# What a reader says of itself that nobody gave, or that does not matter for what cells are.
_NOT_SHOWN: Final = ("kind", "max_listed", "max_columns", "max_record_bytes", "block_bytes")


# --- columns ----------------------------------------------------------------------------


def without_twins(schema: pa.Schema, known: Sequence[str]) -> pa.Schema:
    """Leave out columns that differ only by case from known ones, or from others before them."""
    names: dict[str, str] = {name.casefold(): name for name in known}
    kept = [c for c in schema if c.name in known or names.setdefault(c.name.casefold(), c.name) == c.name]
    return pa.schema(kept)


def known_columns(tail: Tail) -> list[str]:
    """Name the columns of a dataset that files may have."""
    return [column.name for column in user_fields(schema_of(tail), tail.vocab)]


def columns_for(
    tail: Tail,
    sources: Sequence[Source],
    reader: Reader,
    op: str | None,
    new: NewColumns,
    *,
    strange: bool = False,
) -> pa.Schema:
    """Return the columns to read: with the types the dataset has, else with those the files suggest.

    `op` names the column of operations, where the strategy takes them. Files
    that are `strange` may have no column of the dataset: steps will make some.
    Of others, columns that the dataset does not have are read only if they are
    to be added.
    """
    schema = schema_of(tail)
    # The event time has its type even where no data has brought it yet.
    types = [column for column in to_arrow(schema) if column.name not in tail.vocab.names[:3]]
    if op is not None:
        types.append(pa.field(op, pa.int32()))
    found = reader.infer(sources, known=pa.schema(types))
    if not strange and tail.schema is not None:
        known = known_columns(tail)
        for source in sources if not any(name in known for name in found.names) else ():
            names = [name for name in reader.infer([source]).names if name != tail.vocab.event_time]
            unknown_columns(names, known, new, place=source.path)
    declared = {column.name: column for column in types}
    if not strange:
        # Left out here, a column that differs from another only by case is found in the file that has it.
        found = without_twins(found, list(declared))
    if not strange and tail.schema is not None and new != "add":
        found = pa.schema([column for column in found if column.name in declared])
    return pa.schema([declared.get(column.name, column) for column in found])


# --- types that were inferred ---------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class FileColumns:
    """What reading a file showed of its columns."""

    source: Source
    stats: ReadStats
    cells: pa.Table | None = None


@dataclass(frozen=True, slots=True)
class Inferred:
    """The columns whose types are not declared, and what has been made of them so far.

    `revised` have the type that the whole column suggests, `kept` may have cells that become null: the caller
    allows bad cells. No first row had a cell of those that are `late`.
    """

    names: frozenset[str]
    reader: Reader
    event_time: str
    lenient: bool
    revised: frozenset[str] = frozenset()
    kept: frozenset[str] = frozenset()
    late: frozenset[str] = frozenset()

    @classmethod
    def of(
        cls, columns: pa.Schema, known: Iterable[str], reader: Reader, event_time: str, *, lenient: bool
    ) -> Inferred:
        """Return what is inferred among columns: all that neither dataset nor reader declares."""
        declared = {name for name, _ in getattr(reader, "types", ())} | set(known)
        return cls(frozenset(columns.names) - declared, reader, event_time, lenient)

    def with_new(self, names: Iterable[str]) -> Inferred:
        """Take columns along that only showed while files were read."""
        return replace(self, names=self.names.union(names), late=self.late.union(names))

    def doubtful(self, columns: pa.Schema, files: Sequence[FileColumns]) -> list[str]:
        """Name the columns that have cells which do not fit, or that lose digits of a second."""
        found = []
        for name in columns.names:
            kind = columns.field(name).type
            # Text holds everything, and what is nested has no other type that would.
            if name not in self.names or name in self.kept or is_text(kind) or pa.types.is_nested(kind):
                continue
            rounds = name != self.event_time and any(file.stats.rounded.get(name) for file in files)
            if rounds or any(file.stats.bad.get(name) for file in files):
                found.append(name)
        return found

    def revise(
        self, columns: pa.Schema, files: Sequence[FileColumns], tasks: Tasks
    ) -> tuple[Inferred, pa.Schema]:
        """Return the columns with types that hold every cell; refuse where only text would."""
        doubtful = self.doubtful(columns, files)
        if not doubtful:
            return self, columns
        profiles = profiles_of(doubtful, self.reader, files, tasks)
        kinds: dict[str, pa.DataType] = {}
        kept = set(self.kept)
        for name in doubtful:
            kind, before = profiles[name].kind, columns.field(name).type
            if profiles[name].cells == _read_as_they_are(name, files):
                # What is bad has no text of any type: a record that is too short, bytes that are not text.
                kept.add(name)
                continue
            if name in self.late and (name in self.revised or kind.equals(before)):
                kind = pa.string()
            elif name in self.revised or is_text(kind) or kind.equals(before):
                if not self.lenient:
                    raise _only_text(name, before, files, self.reader)
                kept.add(name)
                kind = _for_most(before, profiles[name])
            kinds[name] = kind
        fields = [field.with_type(kinds.get(field.name, field.type)) for field in columns]
        return replace(self, revised=self.revised.union(doubtful), kept=frozenset(kept)), pa.schema(fields)


def _read_as_they_are(name: str, files: Sequence[FileColumns]) -> int:
    """Count the cells of a column that were read without loss; -1 if some were rounded."""
    if any(file.stats.rounded.get(name) for file in files):
        return -1
    return sum(file.stats.filled.get(name, 0) for file in files)


def _for_most(kind: pa.DataType, profile: Profile) -> pa.DataType:
    """Return the type for the cells that can be values; the others become null, which the caller allows."""
    if pa.types.is_integer(kind) or pa.types.is_floating(kind):
        return profile.number or kind
    if pa.types.is_temporal(kind):
        return profile.moment or kind
    return kind


# --- whole columns ----------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Look:
    """Columns of a file to be looked at as a whole."""

    source: Source
    reader: Reader
    names: tuple[str, ...]


def look(task: Look) -> dict[str, Profile]:
    """Profile columns of a file, read as text; runs where there is room for it."""
    schema = pa.schema([(name, pa.string()) for name in task.names])
    rules = getattr(task.reader, "rules", CellRules(nulls=()))
    found = dict.fromkeys(task.names, Profile())
    for batch in task.reader.read(task.source, schema, columns=task.names):
        for name in task.names:
            found[name] += Profile.of(batch.table[name], rules)
    return found


def profiles_of(
    names: Sequence[str], reader: Reader, files: Sequence[FileColumns], tasks: Tasks
) -> dict[str, Profile]:
    """Profile columns over all files that have them."""
    found = dict.fromkeys(names, Profile())
    work = []
    for file in files:
        stats = file.stats
        there = tuple(
            name
            for name in names
            if name in stats.unknown or (name in stats.filled and name not in stats.absent)
        )
        if there:
            work.append(Look(file.source, reader, there))
    for _, profiles in tasks.map(look, work, label="look at columns"):
        for name, profile in profiles.items():
            found[name] += profile
    return found


# --- what people are to hear ----------------------------------------------------------------


def _only_text(name: str, kind: pa.DataType, files: Sequence[FileColumns], reader: Reader) -> SchemaError:
    bad = sum(file.stats.bad.get(name, 0) for file in files)
    every = sum(sum(file.stats.bad.values()) for file in files)
    cells = [cell for file in files for cell in _cells(file, name)]
    texts = {cell["text"] for cell in cells}
    shown = "; ".join(
        f"{cell['text']!r:.60} ({cell['file']}" + (f", line {cell['line']:,})" if cell["line"] else ")")
        for cell in cells[:_SHOWN]
    )
    reasons = [reason for file in files if (reason := looks_wrong(file.stats.counts)) is not None]
    typed = quote(f"{name}=text")
    ways = f'reader=trueline.{reader.kind}(types={{"{name}": "text"}}) (--types {typed}) keeps them as text'
    if not hasattr(reader, "types"):
        ways = "create(..., schema=...) declares the type"
    nulls = getattr(reader, "nulls", None)
    if nulls is not None and texts and texts.issubset(PLACEHOLDERS):
        flags = " ".join(f"--nulls {quote(text)}" for text in sorted(texts))
        ways += f", nulls={[*nulls, *sorted(texts)]!r} ({flags}) reads them as null"
    return SchemaError(
        f"column {name!r} is {kind} in the first rows, and {bad:,} later cell{'s' * (bad != 1)} "
        f"cannot be read as that: {shown}" + (f"\n    {reasons[0]}" if reasons else ""),
        remedy=f"a type is for ever, so choose: {ways}, max_bad={max(every, 1)} (--max-bad {max(every, 1)}) "
        "lets them be null",
        code="TypeNotCertain",
        column=name,
        bad=bad,
    )


def _cells(file: FileColumns, name: str) -> list[dict[str, Any]]:
    if file.cells is None:
        return []
    rows = file.cells.filter(pc.equal(file.cells["column"], name)).slice(0, _SHOWN)
    return [{**row, "text": row["text"] or ""} for row in rows.to_pylist()]


def text_advice(columns: pa.Schema, inferred: Inferred, sources: Sequence[Source]) -> tuple[Advice, ...]:
    """Name the columns that are text only because of how cells are written, with the option to give."""
    if one := _one_column(columns, inferred.reader):
        return (one,)
    texts = pa.schema([column for column in columns if column.name in inferred.names])
    return tuple(_advice(each, inferred.reader) for each in better_options(inferred.reader, texts, sources))


def _one_column(columns: pa.Schema, reader: Reader) -> Advice | None:
    """Say that a file was read as one column though its header has what separates columns elsewhere."""
    name = columns.names[0] if len(columns) == 1 and reader.kind == "csv" else ""
    mark = next((each for each in ";\t|" if each in name), None)
    if mark is None:
        return None
    given = {option: value for option, value in reader.to_dict().items() if option not in _NOT_SHOWN}
    options = ", ".join(f"{option}={value!r}" for option, value in {**given, "separator": mark}.items())
    shown = "$'\\t'" if mark == "\t" else quote(mark)
    return Advice(
        "OneColumn",
        f"there is one column, {name!r}: cells seem to be separated by {mark!r}",
        f"a column is for ever: append to a new dataset with reader=trueline.csv({options})",
        in_shell=f"a column is for ever: ingest into a new dataset with --delimiter {shown}",
    )


def _advice(better: BetterOption, reader: Reader) -> Advice:
    is_words, names = better.kind == "nulls", list(better.types)
    shown = ", ".join(
        f"{name!r} (else {better.types[name]}) {'because of' if is_words else 'as in'} "
        + ", ".join(map(repr, better.cells[name]))
        for name in names[:_SHOWN_COLUMNS]
    ) + (" …" if len(names) > _SHOWN_COLUMNS else "")
    many = "a column is" if len(names) == 1 else f"{len(names)} columns are"
    problem = f"{many} {_WHY_TEXT[better.kind]}: {shown}"
    if better.loses:
        call = f"to_{'date' if better.kind == 'date_format' else 'timestamp'}(`{names[0]}`, {better.value!r})"
        if better.kind == "decimal":
            call = f"cast(replace(`{names[0]}`, ',', '.') as double)"
        remedy = f'leave it text, and read it with view.with_columns({{{names[0]!r}: "{call}"}})'
        return Advice("TextColumns", problem, remedy)
    given = {name: value for name, value in reader.to_dict().items() if name not in _NOT_SHOWN}
    given[better.kind] = list(better.value) if is_words else better.value
    options = ", ".join(f"{name}={each!r}" for name, each in given.items())
    words: list[str] = [better.value]
    if is_words:
        words = [word for word in better.value if word not in getattr(reader, "nulls", ())]
    flags = " ".join(f"--{better.kind.replace('_', '-')} {quote(word)}" for word in words)
    other = f" (or {' or '.join(better.others)}, if that is meant)" if better.others else ""
    call = f"reader=trueline.{reader.kind}({options}){other}"
    remedy = f"a type is for ever: to have the other, append to a new dataset with {call}"
    in_shell = f"a type is for ever: to have the other, ingest into a new dataset with {flags}{other}"
    return Advice("TextColumns", problem, remedy, in_shell=in_shell)


# --- reading ----------------------------------------------------------------------------


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
                size=file.size,
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


def _noticed(task: tuple[pa.Schema, Inferred, Sequence[Source]]) -> list[tuple[str, ...]]:
    return [tuple(each) for each in text_advice(*task)]


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
