"""One file looked at: is it there, has it its size, does it hash to its name, does it hold what it should."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from hashlib import sha3_256
from typing import Any, BinaryIO, Final, cast

import pyarrow as pa

from trueline.chain.checkpoint import MAX_CHECKPOINT_BYTES, CheckpointFile, is_ours
from trueline.chain.datatypes import DataField
from trueline.chain.schema import differences, from_arrow
from trueline.chain.store.store import Folder, Store
from trueline.chain.verify import Problem, ProblemKind
from trueline.dataset.verify.rows import Expected, RowCheck
from trueline.errors import (
    CorruptionError,
    InputError,
    LimitExceeded,
    NotPortable,
    ObjectMissing,
    TruelineError,
    check_memory,
)
from trueline.identity.logical import LogicalHasher
from trueline.identity.multihash import Multihash
from trueline.limits import DEFAULT
from trueline.readers import Limits
from trueline.readers.parquet_file import BoundedFile

_CHUNK: Final = 4 << 20
_BATCH_ROWS: Final = 65_536
# Objects that are not on a local disk are fetched once, and kept in memory up to this size.
_IN_MEMORY: Final = 32 << 20


@dataclass(frozen=True, slots=True)
class ExpectedRows:
    """What the rows of a Parquet file have to be; `logical` is None where it is not recorded."""

    fields: tuple[DataField, ...]
    expected: Expected
    logical: Multihash | None
    count: int | None


@dataclass(frozen=True, slots=True)
class Task:
    """One file to look at, and what is in it if it holds rows."""

    store: Store
    subject: Subject
    rows: ExpectedRows | None = None
    limits: Limits = DEFAULT


@dataclass(frozen=True, slots=True)
class Checked:
    """What looking at a file found; `closes` and `opens` are halves of change pairs at its ends."""

    bytes: int = 0
    problems: tuple[DataProblem, ...] = ()
    not_checked: tuple[str, ...] = ()
    closes: pa.Table | None = None
    opens: pa.Table | None = None
    has_rows: bool = False


@dataclass(slots=True)
class _Notes:
    """What is noted while a file is looked at."""

    subject: Subject
    problems: list[DataProblem] = field(default_factory=list)
    not_checked: list[str] = field(default_factory=list)

    def corrupt(self, what: str, expected: object = None, actual: object = None) -> None:
        self.problems.append(self.subject.corrupt(what, expected, actual))


def check_file(task: Task) -> Checked:
    """Look at one file. Memory is bounded by a batch of rows, whatever the size of the file."""
    subject = task.subject
    try:
        size = task.store.size(subject.folder, subject.hash)
        if size is None:
            return Checked(problems=(_missing(task),))
        if subject.size is not None and size != subject.size:
            what = f"has {size:,} bytes, the block says {subject.size:,}"
            return Checked(problems=(subject.corrupt(what, subject.size, size),))
        with task.store.open(subject.folder, subject.hash) as file:
            return _opened(task, file, size)
    except ObjectMissing:
        return Checked(problems=(_missing(task),))
    except CorruptionError as error:
        return Checked(problems=(subject.corrupt(f"cannot be read: {error.problem}"),))


def _missing(task: Task) -> DataProblem:
    what = f"is not in {task.store.location}"
    return task.subject.problem(ProblemKind.MISSING, what, task.subject.size, "absent")


def _opened(task: Task, file: BinaryIO, size: int) -> Checked:
    with _hashed(file, size) as (actual, again):
        if actual != task.subject.hash:
            problem = task.subject.corrupt(f"hashes to {actual}", task.subject.hash, actual)
            return Checked(size, (problem,))
        if task.rows is not None:
            return _check_rows(task, task.rows, again, size)
        if task.subject.role == "checkpoint":
            return Checked(size, tuple(_check_listing(task, again, size)))
        return Checked(size)


@contextmanager
def _hashed(file: BinaryIO, size: int) -> Iterator[tuple[Multihash, BinaryIO]]:
    """Hash a file, and return it for a second reading: itself, or a copy of what had to be fetched."""
    hasher = sha3_256()
    try:
        file.fileno()
        copy: Any = None
    except OSError:
        copy = tempfile.SpooledTemporaryFile(max_size=_IN_MEMORY)  # noqa: SIM115 (closed below)
    try:
        left = size
        while left and (chunk := file.read(min(_CHUNK, left))):
            left -= len(chunk)
            hasher.update(chunk)
            if copy is not None:
                copy.write(chunk)
        again = cast("BinaryIO", copy if copy is not None else file)
        again.seek(0)
        yield Multihash.sha3_256(hasher.digest()), again
    finally:
        if copy is not None:
            copy.close()


# --- checkpoints ----------------------------------------------------------------


def _check_listing(task: Task, file: BinaryIO, size: int) -> Iterator[DataProblem]:
    """Check that the files a checkpoint of ours lists make up states."""
    if size > MAX_CHECKPOINT_BYTES or not is_ours(raw := file.read()):
        return
    from trueline.dataset.state.state import State

    try:
        checkpoint = CheckpointFile.from_bytes(raw)
        names = {name for item in checkpoint.files if isinstance(name := item.notes.get("state"), str)}
        for name in sorted(names):
            State.open(task.store, checkpoint, name)
    except LimitExceeded:
        raise
    except (InputError, CorruptionError) as error:
        yield task.subject.corrupt(f"cannot be followed: {error.problem}")


# --- rows -----------------------------------------------------------------------


def _check_rows(task: Task, wanted: ExpectedRows, file: BinaryIO, size: int) -> Checked:
    notes = _Notes(task.subject)
    check = RowCheck(wanted.expected)
    try:
        path = f"{task.subject.folder}/{task.subject.hash}"
        with closing(BoundedFile(file, path, task.limits)) as parquet:
            if _same_columns(parquet.schema_arrow, wanted, notes):
                _read(parquet, wanted, check, notes)
    except TruelineError:
        raise
    except (
        pa.ArrowException,
        MemoryError,
        OSError,
        ValueError,
        KeyError,
        TypeError,
        IndexError,
    ) as error:
        check_memory(error, f"verifying {task.subject.folder}/{task.subject.hash}")
        notes.corrupt(f"cannot be read as Parquet: {str(error).partition(chr(10))[0]}")
    found = tuple(notes.problems)
    return Checked(size, found, tuple(notes.not_checked), check.closes, check.opens, bool(check.rows))


def _same_columns(schema: pa.Schema, wanted: ExpectedRows, notes: _Notes) -> bool:
    """Compare a file's columns with the schema in force; only optionality may differ."""
    try:
        found = from_arrow(schema).fields
    except InputError as error:
        notes.corrupt(f"has columns that no schema has: {error.problem}")
        return False
    names, expected = [column.name for column in found], [column.name for column in wanted.fields]
    if names != expected:
        shown = f"has the columns {', '.join(names)}, the schema in force is {', '.join(expected)}"
        notes.corrupt(shown, expected, names)
        return False
    other = list(differences(wanted.fields, found, "", optionality=False))
    for difference in other:
        notes.corrupt(f"does not have the schema in force: {difference}")
    return not other


def _read(parquet: BoundedFile, wanted: ExpectedRows, check: RowCheck, notes: _Notes) -> None:
    count = parquet.metadata.num_rows
    if wanted.count is not None and count != wanted.count:
        notes.corrupt(f"has {count:,} rows, the block says {wanted.count:,}", wanted.count, count)
    hasher = _hasher(parquet.schema_arrow, wanted, notes)
    for batch in parquet.all_batches(_BATCH_ROWS):
        for fault in check.add(batch):
            notes.corrupt(*fault)
        try:
            if hasher is not None:
                hasher.update(batch)
        except NotPortable as error:
            notes.not_checked.append(f"logical hash: {error.problem}")
            hasher = None
    if hasher is not None and wanted.logical is not None and (actual := hasher.finish()) != wanted.logical:
        notes.corrupt(
            f"has the logical hash {actual}, the block says {wanted.logical}", wanted.logical, actual
        )


def _hasher(schema: pa.Schema, wanted: ExpectedRows, notes: _Notes) -> LogicalHasher | None:
    if wanted.logical is None:
        return None
    try:
        return LogicalHasher(schema)
    except NotPortable as error:
        notes.not_checked.append(f"logical hash: {error.problem}")
        return None


RESTORE: Final = "restore the file from a copy of the dataset"


@dataclass(frozen=True, slots=True)
class DataProblem(Problem):
    """A problem of one file: `file` is its path in the dataset, the rest what was expected and found."""

    file: str | None = None
    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """The file that is looked at, and the block that names it."""

    block: Multihash
    sequence_number: int
    folder: Folder
    hash: Multihash
    size: int | None
    role: str

    @property
    def shown(self) -> str:
        """What it is called in messages."""
        return f"{self.role} {self.hash}"

    def problem(
        self,
        kind: ProblemKind,
        what: str,
        expected: object = None,
        actual: object = None,
        *,
        remedy: str = RESTORE,
    ) -> DataProblem:
        """Say what is wrong with it."""
        return DataProblem(
            kind,
            f"{self.shown} {what}",
            remedy,
            self.block,
            self.sequence_number,
            None,
            f"{self.folder}/{self.hash}",
            None if expected is None else str(expected),
            None if actual is None else str(actual),
        )

    def corrupt(self, what: str, expected: object = None, actual: object = None) -> DataProblem:
        """Say that it is not what the chain says it is."""
        return self.problem(ProblemKind.CORRUPT, what, expected, actual)
