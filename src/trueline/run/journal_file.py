"""The file of a journal: a SQLite database of our own, opened with care, every error of it typed.

One run writes it at a time. While a run goes on its transactions are in a write-ahead log beside the file
(`-wal`), where a process that is killed leaves them for the next one; when a run ends they are in the file,
which is then complete by itself.
"""

from __future__ import annotations

import os
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

from trueline.errors import (
    InputError,
    JournalBusy,
    JournalDamaged,
    StoreError,
    TruelineError,
    UnsupportedVersion,
)

APPLICATION: Final = 0x54524A4C  # "TRJL", in the header of the file
VERSION: Final = 2  # 1 were lines of JSON
TABLES: Final = (
    "CREATE TABLE run (id INTEGER PRIMARY KEY, name TEXT, at TEXT, ended INTEGER)",
    "CREATE TABLE identity (id INTEGER PRIMARY KEY, digest TEXT, names TEXT)",
    "CREATE TABLE step (run INTEGER, step INTEGER, name TEXT, identity INTEGER)",
    (
        "CREATE TABLE entry (id INTEGER PRIMARY KEY, run INTEGER, step INTEGER, identity INTEGER, "
        "key TEXT, gens TEXT, given TEXT, made TEXT, sum INTEGER)"
    ),
)
# Made when a journal is opened that has entries: a first run looks nothing up, and writes faster without it.
INDEX: Final = "CREATE INDEX entry_by_value ON entry (identity, key, given)"
# Bytes of the write-ahead log after which it is copied into the file.
LONG: Final = 64 << 20

# What one value may take; more is not written, and not read.
LARGEST: Final = 256 << 20

_ANEW: Final = "remove it, or name another file: the run then starts from the beginning"
_MAGIC: Final = b"SQLite format 3\x00"
_JSON_LINES: Final = b'{"journal":'


class JournalFile:
    """A connection to the file, for one run that writes or for someone who looks."""

    def __init__(self, path: Path, connection: sqlite3.Connection) -> None:
        self.path = path
        self.sql = connection
        self._log = _log_of(path)

    @classmethod
    def open(cls, path: Path, *, write: bool) -> JournalFile:
        """Open the file; to write it is made if it is missing, and locked until it is closed."""
        for each in (path, *(path.with_name(path.name + end) for end in ("-wal", "-shm", "-journal"))):
            _check_kind(each)
        with errors_of(path):
            if write:
                path.parent.mkdir(parents=True, exist_ok=True)
            connection = sqlite3.connect(
                f"{path.absolute().as_uri()}?{_mode(path, write=write)}",
                uri=True,
                timeout=0,
                isolation_level=None,
                check_same_thread=False,  # batches end in the threads of workers; the journal has a lock
            )
        found = cls(path, connection)
        try:
            with errors_of(path):
                found._begin(write=write)
        except BaseException:
            connection.close()
            raise
        return found

    def _begin(self, *, write: bool) -> None:
        sql = self.sql
        sql.setlimit(sqlite3.SQLITE_LIMIT_LENGTH, LARGEST + (1 << 20))
        sql.execute("PRAGMA trusted_schema = OFF")  # what a schema that is not ours would run
        if not write:
            self._check()
            return
        # One run at a time, and no shared memory, which not every file system has.
        sql.execute("PRAGMA locking_mode = EXCLUSIVE")
        is_new = self._check()
        # A commit reaches the operating system; the disk only in `save`. Until then the file itself is not
        # touched, and of a log that a power failure tore SQLite takes the whole transactions before the tear.
        sql.execute("PRAGMA synchronous = OFF")
        sql.execute("PRAGMA journal_mode = WAL")
        sql.execute("PRAGMA wal_autocheckpoint = 0")
        sql.execute("BEGIN EXCLUSIVE")
        if is_new:
            for table in TABLES:
                sql.execute(table)
            sql.execute(f"PRAGMA application_id = {APPLICATION}")
            sql.execute(f"PRAGMA user_version = {VERSION}")
        elif sql.execute("SELECT 1 FROM entry LIMIT 1").fetchone() and INDEX not in self._schema():
            sql.execute(INDEX)
        sql.execute("COMMIT")

    def _schema(self) -> set[str]:
        return {sql for (sql,) in self.sql.execute("SELECT sql FROM sqlite_master")}

    def _check(self) -> bool:
        """Refuse what is not a journal of this version; say whether there is nothing in it yet."""
        schema = self._schema()
        (application,) = self.sql.execute("PRAGMA application_id").fetchone()
        (version,) = self.sql.execute("PRAGMA user_version").fetchone()
        if not schema and application == 0 and version == 0:
            return True
        if application != APPLICATION:
            raise InputError(
                f"{self.path} is a SQLite database, but not the journal of a run",
                remedy="name another file",
                path=str(self.path),
            )
        if version != VERSION:
            raise UnsupportedVersion(
                f"{self.path} is a journal of version {version}; this version of Trueline reads {VERSION}",
                remedy=_ANEW,
                version=version,
            )
        if schema - {INDEX} != set(TABLES):
            raise damaged(self.path, "its tables are not those of a journal")
        return False

    def save(self) -> None:
        """Copy the log into the file, and wait until the disk has it."""
        self.sql.execute("PRAGMA synchronous = NORMAL")
        self.sql.execute("PRAGMA wal_checkpoint(TRUNCATE)").fetchall()
        self.sql.execute("PRAGMA synchronous = OFF")

    def save_if_long(self) -> None:
        """Do so where the log has grown long, so that a long run does not need twice the room."""
        if self._log.stat().st_size > LONG:
            self.save()

    def close(self) -> None:
        """Leave one file that is complete by itself, on the disk."""
        try:
            with errors_of(self.path):
                self.save()
        finally:
            self.drop()

    def drop(self) -> None:
        """Let go of the file; what was committed is in it, or in the log beside it."""
        with suppress(sqlite3.Error):
            self.sql.execute("PRAGMA synchronous = NORMAL")  # SQLite may copy the log as it closes
        with suppress(sqlite3.Error):
            self.sql.close()


def _log_of(path: Path) -> Path:
    return path.with_name(f"{path.name}-wal")


def _mode(path: Path, *, write: bool) -> str:
    """How SQLite is to open the file; where the folder cannot be written, the file does not change."""
    if write:
        return "mode=rwc"
    fixed = not (os.access(path, os.W_OK) and os.access(path.parent, os.W_OK))
    return "mode=ro&immutable=1" if fixed and not _log_of(path).exists() else "mode=rw"


def damaged(path: Path, what: str, place: int = 0) -> JournalDamaged:
    """Return the error for a file that does not hold what was written."""
    return JournalDamaged(f"the journal {path} is damaged: {what}", remedy=_ANEW, path=str(path), place=place)


@contextmanager
def errors_of(path: Path) -> Iterator[None]:
    """Turn what SQLite and the operating system say into errors of ours."""
    try:
        yield
    except OSError as error:
        raise refused(path, error.strerror or str(error)) from error
    except UnicodeError as error:
        raise damaged(path, "it holds text that is not UTF-8") from error
    except sqlite3.Error as error:
        raise _typed(path, error) from error


def refused(path: Path, why: str) -> StoreError:
    """Return the error for a file that cannot be written."""
    return StoreError(
        f"the journal {path} cannot be written: {why}",
        remedy="free some space or name a file in another folder; what the journal holds stays good",
    )


def _typed(path: Path, error: sqlite3.Error) -> TruelineError:
    name = getattr(error, "sqlite_errorname", "")
    if name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return JournalBusy(
            f"another run writes {path}", remedy="wait for its end, or name another file for the journal"
        )
    if name == "SQLITE_NOTADB":
        return _not_a_journal(path)
    if name.startswith("SQLITE_CORRUPT"):
        return damaged(path, str(error))
    if name.startswith(("SQLITE_FULL", "SQLITE_IOERR", "SQLITE_CANTOPEN", "SQLITE_READONLY", "SQLITE_PERM")):
        return refused(path, f"{error} ({name})")
    return damaged(path, str(error))


def _not_a_journal(path: Path) -> InputError:
    """Look at the first bytes of what is not a database."""
    with suppress(OSError), path.open("rb") as file:
        if file.read(len(_JSON_LINES)) == _JSON_LINES:
            return UnsupportedVersion(
                f"{path} is a journal of version 1, lines of JSON; this version of Trueline reads {VERSION}",
                remedy=_ANEW,
                version=1,
            )
    return InputError(f"{path} is not the journal of a run", remedy="name another file", path=str(path))


def _check_kind(path: Path) -> None:
    """Refuse what is not a regular file before it is opened: a pipe would wait, a link leads elsewhere."""
    try:
        mode = os.lstat(path).st_mode
    except FileNotFoundError:
        return
    except OSError as error:
        raise refused(path, error.strerror or str(error)) from error
    except ValueError as error:  # a NUL in the name
        raise InputError(f"{str(path)!r} is not the name of a file", remedy="name another file") from error
    if stat.S_ISLNK(mode):
        raise InputError(
            f"{path} is a symbolic link", remedy="name the file that it leads to", path=str(path)
        )
    if not stat.S_ISREG(mode):
        kind = "a folder" if stat.S_ISDIR(mode) else "a device, a pipe or a socket"
        raise InputError(f"{path} is {kind}, not the journal of a run", remedy="name a file", path=str(path))
