"""The journal of a run: what each step made of each value, so that an interrupted run goes on where it was.

A SQLite database. Values are JSON text in it, looked up one by one and never read all at once. Each entry
has a checksum. What was begun and did not end is not in it.
"""

from __future__ import annotations

import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from trueline.console.items import safe
from trueline.errors import InputError, TruelineError
from trueline.run.fingerprint import fingerprint, names_in
from trueline.run.generations import Generations
from trueline.run.journal_file import LARGEST, JournalFile, damaged, errors_of
from trueline.run.json_values import digest_of, text_of, value_of
from trueline.run.step import ERASED, Step

# Entries are inserted so many by one statement: each statement hands the interpreter to other threads.
_TOGETHER: Final = (256, 16, 1)
_ROW: Final = "(?,?,?,?,?,?,?,?)"
_INSERT: Final = "INSERT INTO entry (run, step, identity, key, gens, given, made, sum) VALUES "


# What reading text that somebody else made can raise: missing names, other types, numbers of thousands of
# digits, brackets a thousand deep, days and time zones that do not exist. Checksums anybody can make.
_NOT_OURS: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    OSError,
    RecursionError,
)


class _Unlike(ValueError):
    """Something that this module would not have written."""


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """A step's work on a key that ended. `out` equals `given` where nothing changed."""

    run: str
    step: int
    key: Any
    gens: Generations
    given: str
    out: str


@dataclass
class JournalSession:
    """One run that wrote into a journal: its steps, and how many pieces of work of each it finished."""

    run: str
    at: str
    steps: tuple[str, ...]
    identities: tuple[str, ...]
    finished: list[int] = field(default_factory=list)
    changed: list[int] = field(default_factory=list)
    ended: bool = False


class Journal:
    """Give it to a run: `Run(steps, journal=Journal(path))`, or just the path.

    A run that is given a journal looks up every value before it works on it, and writes down what it
    made. `encode` turns a value into a plain one, `decode` turns it back; they are needed for values
    that are not plain. Values are kept whole: of large data let the value be its place and its digest.

    >>> import tempfile
    >>> from trueline.run import Journal, Run, Step
    >>> steps = [Step(map=lambda key, value: value * 2, name="double")]
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     first = Run(steps, journal=f"{folder}/run.journal")
    ...     found = first.execute({"a": 1, "b": 2})
    ...     second = Run(steps, journal=f"{folder}/run.journal")
    ...     found == second.execute({"a": 1, "b": 2}), second.report.steps[0].calls
    (True, 0)

    >>> with tempfile.TemporaryDirectory() as folder:
    ...     journal = Journal(f"{folder}/run.journal")
    ...     _ = Run(steps, journal=journal).execute({"a": 1})
    ...     [session.finished for session in journal.read().sessions]
    ...     [entry.key for entry in journal.entries()]
    ...     journal.open(steps)
    ...     journal.knows(0), journal.find(0, '"b"', "none"), journal.value(journal.text([1]))
    ...     journal.keep(0, [('"b"', (1,), "digest", "2")])
    ...     journal.writes('[[null, "b", 2]]')
    ...     journal.close()
    [[1]]
    ['a']
    (True, (False, None), [1])
    [(None, 'b', 2)]
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        if (encode is None) != (decode is None):
            raise InputError("only one of encode= and decode= is given", remedy="give both")
        self.path = Path(path)
        self.encode = encode
        self.decode = decode
        self.sessions: list[JournalSession] = []
        self.notes: tuple[str, ...] = ()
        """What the journal holds for these steps and cannot be used, and why."""
        self._file: JournalFile | None = None
        self._lock = threading.Lock()
        self._run = 0
        self._identities: list[int] = []
        self._familiar: set[int] = set()  # the identities of which anything is known
        self._is_whole = True  # nothing that was to be written is missing

    # --- looking ----------------------------------------------------------------------

    def entries(self) -> Iterator[JournalEntry]:
        """Yield what is in the file, oldest first."""
        with self._looking() as file:
            if file is None:
                return
            runs = dict(file.sql.execute("SELECT id, name FROM run"))
            rows = file.sql.execute(
                "SELECT id, run, step, identity, key, gens, given, made, sum FROM entry ORDER BY id"
            )
            for place, *row, found in rows:
                with self._reading(place):
                    run, step, identity, key, gens, given, made = row
                    owner = (run, step, identity)
                    _check(found == _sum(owner, key, gens, given, made), "its checksum differs")
                    _check(type(step) is int and isinstance(given, str), "a step or a digest is another type")
                    out = given if made is None else digest_of(made)
                    entry = JournalEntry(runs[run], step, value_of(key), tuple(json.loads(gens)), given, out)
                yield entry

    def read(self) -> Journal:
        """Read which runs wrote the file, and how much each of them finished, if the file is there."""
        self.sessions = []
        with self._looking() as file, self._reading():
            if file is not None:
                self.sessions = _sessions(file)
        return self

    @contextmanager
    def _looking(self) -> Iterator[JournalFile | None]:
        """Open the file to be looked at; None if it is not there, or is the beginning of a journal."""
        if self._file is not None:
            raise InputError(f"{self.path} is being written", remedy="look at it when the run has ended")
        if not os.path.lexists(self.path):
            yield None
            return
        file = JournalFile.open(self.path, write=False)
        try:
            with errors_of(self.path):
                yield file if file.sql.execute("SELECT 1 FROM sqlite_master").fetchone() else None
        finally:
            file.drop()

    @contextmanager
    def _reading(self, place: int = 0) -> Iterator[None]:
        """Whatever cannot be read of what the file holds is damage."""
        try:
            yield
        except TruelineError:
            raise
        except _NOT_OURS as error:
            where = f"entry {place}" if place else "what it says of its runs"
            why = str(error) if isinstance(error, _Unlike) else type(error).__name__
            raise damaged(self.path, f"{where} cannot be read: {why}", place) from None

    # --- while a run goes on ----------------------------------------------------------

    def open(self, steps: Sequence[Step]) -> None:
        """Begin a run: lock the file, find out what is known, write down who goes on."""
        if self._file is not None:
            raise InputError(f"{self.path} is in use by another run", remedy="give each run its own journal")
        names = [step.name or type(step).__name__ for step in steps]
        digests = [fingerprint(step, index) for index, step in enumerate(steps)]
        classes = [names_in(step) for step in steps]
        self._file = JournalFile.open(self.path, write=True)
        self._is_whole = True
        try:
            with errors_of(self.path), self._reading():
                self._begin(self._file, names, digests, classes)
        except BaseException:
            self._release()
            raise

    def _begin(
        self, file: JournalFile, names: list[str], digests: list[str], classes: list[list[str]]
    ) -> None:
        sql = file.sql
        self.notes = tuple(dict.fromkeys(_renamed(file, names, digests, classes)))
        sql.execute("BEGIN IMMEDIATE")
        made = (uuid4().hex[:16], datetime.now(UTC).isoformat(timespec="seconds"))
        self._run = sql.execute("INSERT INTO run (name, at, ended) VALUES (?, ?, 0)", made).lastrowid or 0
        self._identities = []
        for index, (name, digest) in enumerate(zip(names, digests, strict=True)):
            known = sql.execute("SELECT id FROM identity WHERE digest = ?", (digest,)).fetchone()
            if known is None:
                about = (digest, json.dumps(classes[index]))
                known = (sql.execute("INSERT INTO identity (digest, names) VALUES (?, ?)", about).lastrowid,)
            self._identities.append(known[0])
            sql.execute("INSERT INTO step VALUES (?, ?, ?, ?)", (self._run, index, name, known[0]))
        sql.execute("COMMIT")
        some = "SELECT 1 FROM entry WHERE identity = ? LIMIT 1"
        self._familiar = {each for each in self._identities if sql.execute(some, (each,)).fetchone()}

    def close(self) -> None:
        """End a run; everything is on the disk when it returns."""
        file = self._file
        if file is None:
            return
        try:
            # Where there was no room for an entry there is none for the rest; what was committed stays.
            if self._is_whole:
                with errors_of(self.path):
                    file.sql.execute("UPDATE run SET ended = 1 WHERE id = ?", (self._run,))
                file.close()
        finally:
            self._release()

    def _release(self) -> None:
        if self._file is not None:
            self._file.drop()
            self._file = None

    def knows(self, step: int) -> bool:
        """Say whether looking for this step can find anything."""
        return self._identities[step] in self._familiar

    def text(self, value: Any) -> str:
        """Write a value as the journal keeps it."""
        return text_of(value if self.encode is None or value is ERASED else self.encode(value))

    def value(self, text: str) -> Any:
        """Read a value the journal has kept."""
        with self._reading():
            value = value_of(text)
        return value if self.decode is None or value is ERASED else self.decode(value)

    def writes(self, made: str) -> list[tuple[Any, Any, Any]]:
        """Read writes back that the journal has kept: (source or None, key, value)."""
        with self._reading():
            parts = [(source, dst, json.dumps(value)) for source, dst, value in json.loads(made)]
            keys = [(value_of(json.dumps(source)), value_of(json.dumps(dst))) for source, dst, _ in parts]
        return [(*key, self.value(text)) for key, (_, _, text) in zip(keys, parts, strict=True)]

    def find(self, step: int, key: str, given: str) -> tuple[bool, str | None]:
        """Look up what a step made of a key's value, by text and digest; None means no change."""
        assert self._file is not None
        identity = self._identities[step]
        with self._lock, errors_of(self.path):
            row = self._file.sql.execute(
                "SELECT id, run, step, gens, made, sum FROM entry WHERE identity = ? AND key = ? "
                "AND given = ? AND run < ? ORDER BY id DESC LIMIT 1",
                (identity, key, given, self._run),
            ).fetchone()
        if row is None:
            return False, None
        place, run, index, gens, made, found = row
        with self._reading(place):
            _check(found == _sum((run, index, identity), key, gens, given, made), "its checksum differs")
            _check(made is None or isinstance(made, str), "a value is another type")
        return True, made

    def keep(self, step: int, made: Sequence[tuple[str, Generations, str, str | None]]) -> None:
        """Write down what a step made: (key, generations, digest of what was given, text or no change).

        All of it or nothing: where there is no room nothing stays.
        """
        owner = (self._run, step, self._identities[step])
        values: list[Any] = []
        last: Generations | None = None
        stamp = ""
        for key, gens, given, text in made:
            if gens is not last:  # most keys of a batch have those of one batch of the step before
                last, stamp = gens, str(list(gens))
            if text is not None and len(text) > LARGEST:
                raise InputError(
                    f"a value of step {step} takes {len(text):,} bytes, more than a journal keeps",
                    remedy="let the value be a reference to the data: its path and its digest",
                    code="TooLarge",
                )
            values += (*owner, key, stamp, given, text, _sum(owner, key, stamp, given, text))
        with self._lock:
            self._write(values)

    def _write(self, values: list[Any]) -> None:
        if self._file is None:
            return
        sql = self._file.sql
        width, start = _ROW.count("?"), 0
        with errors_of(self.path):
            try:
                sql.execute("BEGIN IMMEDIATE")
                for size in _TOGETHER:
                    while len(values) - start >= size * width:
                        sql.execute(_STATEMENTS[size], values[start : start + size * width])
                        start += size * width
                sql.execute("COMMIT")
                self._file.save_if_long()
            except BaseException:
                self._is_whole = False
                if sql.in_transaction:
                    sql.execute("ROLLBACK")
                raise


_STATEMENTS: Final = {size: _INSERT + ",".join([_ROW] * size) for size in _TOGETHER}


def _sum(owner: tuple[int, int, int], key: str, gens: str, given: str, made: str | None) -> int:
    """Return the checksum of an entry; its owner is a run, a step and the identity of that."""
    return zlib.crc32(f"{owner},{key},{gens},{given},{made}".encode())


def _sessions(file: JournalFile) -> list[JournalSession]:
    """Read the runs, their steps, and how many entries each has."""
    found: dict[int, JournalSession] = {}
    for run, name, at, ended in file.sql.execute("SELECT id, name, at, ended FROM run ORDER BY id"):
        _check(isinstance(name, str) and isinstance(at, str), "a run without a name or a time")
        found[run] = JournalSession(name, at, (), (), ended=bool(ended))
    steps = file.sql.execute(
        "SELECT run, name, digest FROM step JOIN identity ON identity.id = step.identity ORDER BY run, step"
    )
    for run, name, identity in steps:
        _check(isinstance(name, str) and isinstance(identity, str), "a step without a name")
        session = found[run]
        session.steps += (name,)
        session.identities += (identity,)
        session.finished.append(0)
        session.changed.append(0)
    counts = file.sql.execute("SELECT run, step, count(*), count(made) FROM entry GROUP BY run, step")
    for run, step, finished, changed in counts:
        _check(type(step) is int and step >= 0, "a step that is not a number")
        found[run].finished[step], found[run].changed[step] = finished, changed
    return list(found.values())


def _check(fits: bool, what: str) -> None:
    if not fits:
        raise _Unlike(what)


def _renamed(
    file: JournalFile, names: list[str], digests: list[str], classes: list[list[str]]
) -> Iterator[str]:
    """Say which steps the journal knows under classes and modules of other names: their work is not found.

    Nothing is imported to find out: the names are compared with those of the steps as they are now.
    """
    known = set(digests)
    rows = file.sql.execute(
        "SELECT DISTINCT step.step, step.name, digest, names FROM step "
        "JOIN identity ON identity.id = step.identity ORDER BY step.step"
    ).fetchall()
    found = {digest for _, _, digest, _ in rows}
    for index, name, digest, before in rows:
        _check(type(index) is int and index >= 0, "a step that is not a number")
        if digest in known or index >= len(names) or names[index] != name or digests[index] in found:
            continue
        now = classes[index]
        gone = ", ".join(str(each) for each in json.loads(before) if each not in now)
        if gone:
            yield (
                f"step {name!r}: {file.path} holds work of {safe(gone):.300}, which the step does not use "
                f"under this name any more (now {', '.join(now)}); that work is done again"
            )
