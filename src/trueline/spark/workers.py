"""Spark's workers: whether they have the same trueline as this process, and see the folders it sees.

They are asked by a small job before the first work of a session goes to them, and again only about
folders that are new. Views and frames, which may run in no job of ours, say their version to each task.
What asks is plain Python, sent by its code: a worker may have no trueline at all.
"""

from __future__ import annotations

import json
import secrets
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from weakref import WeakKeyDictionary

from trueline.errors import EnvironmentMissing, visible
from trueline.spark.jobs import run
from trueline.spark.packing import pack
from trueline.spark.results import unreadable

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from trueline.chain.store.store import Store
    from trueline.readers import Source
    from trueline.spark.engines import SessionAdapter

_LABEL: Final = "checking Spark's workers"
_SCHEMA: Final = "id long, result binary"
# A task for each core reaches every executor, as far as Spark spreads them; more would not tell more.
_MOST_TASKS: Final = 64
_BEHIND_CONNECT: Final = 8
_SHARED: Final = "shared"
_MOST_TEXT: Final = 500


def our_version() -> str:
    """Return the version of trueline in this process."""
    # The front door, which no room imports, is loaded wherever one of its modules is.
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def check_version(expected: str) -> None:
    """Refuse, in a task, work that was sent by another version."""
    if our_version() != expected:
        raise _other_version(our_version(), expected, "a worker", sys.executable)


@dataclass(frozen=True)
class SharedMark:
    """Something that every worker must see: a file with these bytes, or of this size and time."""

    path: str
    content: bytes | None = None
    signs: tuple[int, int] | None = None


@dataclass(frozen=True)
class WorkerAnswer:
    """What a worker answered; `version` is None where it has no trueline."""

    host: str
    python: str
    version: str | None
    missing: tuple[str, ...]


@dataclass
class Workers:
    """The workers of one Spark, and what is known of them."""

    _known: set[str] = field(default_factory=set)
    _is_same: bool = False
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def check(
        self,
        engine: SessionAdapter,
        *,
        writes: Sequence[Store] = (),
        reads: Sequence[Store] = (),
        files: Sequence[Source] = (),
    ) -> None:
        """Refuse workers of another version, and folders that they do not see (`FolderNotShared`).

        Stores that are written to get a file for as long as it takes; others need not be writable.
        """
        with self._lock, ExitStack() as stack:
            marks = {
                key: mark
                for key, make in _marks(writes, reads, files, stack)
                if not self._is_known(key) and (mark := make()) is not None
            }
            if self._is_same and not marks:
                return
            for seen in _asked(engine, list(marks.values())):
                _check(seen)
            self._is_same = True
            self._known.update(marks)

    def _is_known(self, key: str) -> bool:
        """Say whether a folder was looked for before: where workers can write, they read too."""
        return key in self._known or key.replace("read ", "write ", 1) in self._known


_workers: WeakKeyDictionary[SparkSession, Workers] = WeakKeyDictionary()
_lock = threading.Lock()


def workers_of(session: SparkSession) -> Workers:
    """Return what is known of the workers of a session, whichever workspaces use it."""
    with _lock:
        return _workers.setdefault(session, Workers())


# --- work that says its version -----------------------------------------------------------------

_WORD: Final = "<{}>"  # what a worker fills in


def versioned(work: Callable[[Iterator[Any]], Iterator[Any]], nonce: str) -> Callable[..., Iterator[Any]]:
    """Return work for tasks that is not even unpickled by a worker of another version, or by one of none.

    Its error is recognised by the nonce, as others of the work are.
    """
    host, python, theirs = (_WORD.format(name) for name in ("host", "python", "version"))
    lacking, other = (
        (error.problem, error.remedy, error.code, dict(error.fields))
        for error in (
            _no_trueline(our_version(), host, python),
            _other_version(theirs, our_version(), host, python),
        )
    )
    return _versioned(pack(work), our_version(), (lacking, other), nonce)


def _versioned(packed: bytes, ours: str, errors: Sequence[Any], nonce: str) -> Callable[..., Iterator[Any]]:
    """Return what a worker does. Spark sends it by its code, since it has no name in a module."""
    package, kind = __name__.partition(".")[0], EnvironmentMissing.__name__

    def run(batches: Iterator[Any]) -> Iterator[Any]:
        import hmac
        import json
        import pickle
        import socket
        import sys

        try:
            version = str(__import__(package).__version__)
        except Exception:  # noqa: BLE001 (one that cannot be imported is none)
            version = ""
        if version == ours:
            yield from pickle.loads(packed)(batches)  # noqa: S301 (work of our driver)
            return
        known = {"<host>": socket.gethostname(), "<python>": sys.executable, "<version>": version}

        def filled(text: str) -> str:
            for word, value in known.items():
                text = text.replace(word, value)
            return text

        problem, remedy, code, fields = errors[1 if version else 0]
        problem, remedy = filled(problem), filled(remedy)
        said = json.dumps({name: filled(text) for name, text in fields.items()}, separators=(",", ":"))
        head = f"{kind} {code} {said}"
        signed = json.dumps([head, problem, remedy]).encode("ascii")
        digest = hmac.digest(nonce.encode("ascii"), signed, "sha256").hex()[:16]
        raise RuntimeError(f"{problem}\n  → {remedy}\n  [{head} {len(problem)}+{len(remedy)}.{digest}]")

    return run


# --- what they must see ---------------------------------------------------------------------

_Make = Callable[[], "SharedMark | None"]


def _marks(
    writes: Sequence[Store], reads: Sequence[Store], files: Sequence[Source], stack: ExitStack
) -> Iterator[tuple[str, _Make]]:
    """Yield what to look for by the folder it stands for: all datasets of a workspace are in one.

    Object stores are seen from everywhere.
    """
    for store in writes:
        if (place := getattr(store, "place", None)) is not None:
            yield f"write {place.root}", partial(_token, store, stack)
    for store in reads:
        if (place := getattr(store, "place", None)) is not None:
            yield f"read {place.root}", partial(_head, store)
    folders = {str(Path(file.place).parent): file.place for file in files if file.place is not None}
    for folder, path in folders.items():
        yield f"read {folder}", partial(_file, path)


def _token(store: Store, stack: ExitStack) -> SharedMark:
    """Write a file that nobody else has into a store, until the workers were asked."""
    scratch = stack.enter_context(store.scratch())
    content = secrets.token_hex(16).encode()
    with scratch.create(_SHARED) as file:
        file.write(content)
    assert scratch.folder is not None
    return SharedMark(str(scratch.folder / _SHARED), content)


def _head(store: Store) -> SharedMark | None:
    head = store.head()
    return None if head is None else SharedMark(str(Path(store.location, "refs", "head")), head.encode())


def _file(path: str) -> SharedMark | None:
    try:
        found = Path(path).stat()
    except OSError:
        return None  # gone since it was listed: reading it says so
    return SharedMark(path, signs=(found.st_size, found.st_mtime_ns))


# --- asking them ------------------------------------------------------------------------------


def _asked(engine: SessionAdapter, marks: Sequence[SharedMark]) -> list[WorkerAnswer]:
    look = looking([(mark.path, mark.content, mark.signs) for mark in marks])
    count = _how_many(engine)
    frame = engine.session.range(0, count, 1, count).mapInArrow(look, _SCHEMA)
    table = run(engine, frame.toArrow, label=_LABEL)
    return [_read(answer) for answer in table["result"].to_pylist()]


def _how_many(engine: SessionAdapter) -> int:
    if engine.is_connect:
        return _BEHIND_CONNECT
    context = engine.session.sparkContext
    is_one = context.master == "local" or context.master.startswith("local[")
    return 1 if is_one else max(1, min(_MOST_TASKS, int(context.defaultParallelism)))


def looking(
    marks: Sequence[tuple[str, bytes | None, tuple[int, int] | None]],
) -> Callable[[Iterator[Any]], Iterator[Any]]:
    """Return what a worker does. Spark sends it by its code, since it has no name in a module."""
    package = __name__.partition(".")[0]

    def look(batches: Iterator[Any]) -> Iterator[Any]:
        import json
        import os
        import socket
        import sys

        import pyarrow as pa

        def sees(path: str, content: bytes | None, signs: tuple[int, int] | None) -> bool:
            try:
                if content is not None:
                    with open(path, "rb") as file:  # noqa: PTH123 (plain Python, whatever the worker has)
                        return file.read(4096).strip() == content
                found = os.stat(path)  # noqa: PTH116
                return (found.st_size, found.st_mtime_ns) == tuple(signs or ())
            except OSError:
                return False

        try:
            version = str(__import__(package).__version__)
        except Exception:  # noqa: BLE001 (one that cannot be imported is none)
            version = None
        missing = [path for path, content, signs in marks if not sees(path, content, signs)]
        said = {
            "host": socket.gethostname(),
            "python": sys.executable,
            "version": version,
            "missing": missing,
        }
        answer = json.dumps(said).encode()
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield pa.record_batch({"id": pa.array([number]), "result": pa.array([answer], pa.binary())})

    return look


def _read(answer: object) -> WorkerAnswer:
    """Return an answer, which is other machines' word and only ever read as data."""
    try:
        said = json.loads(answer if isinstance(answer, bytes) else b"")
        version = said["version"]
        missing = tuple(_text(path) for path in said["missing"])
        return WorkerAnswer(
            _text(said["host"]), _text(said["python"]), None if version is None else _text(version), missing
        )
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(f"{type(error).__name__}: {error!s:.200}") from None


def _text(said: object) -> str:
    if not isinstance(said, str):
        raise TypeError(f"a {type(said).__name__} is not text")
    return visible(said, lines=False)[:_MOST_TEXT]


# --- what is wrong with them --------------------------------------------------------------------


def _check(seen: WorkerAnswer) -> None:
    ours = our_version()
    if seen.version is None:
        raise _no_trueline(ours, seen.host, seen.python)
    if seen.version != ours:
        raise _other_version(seen.version, ours, seen.host, seen.python)
    if seen.missing:
        path = seen.missing[0]
        raise EnvironmentMissing(
            f"{path} is not to be seen where Spark's workers run, on {seen.host}",
            remedy="choose a folder that all machines of the cluster share, or an object store; "
            "to work in this process instead: ws.config.set('spark.tasks', 'never')",
            code="FolderNotShared",
            folder=str(Path(path).parent),
            host=seen.host,
        )


def _no_trueline(ours: str, host: str, python: str) -> EnvironmentMissing:
    return EnvironmentMissing(
        f"trueline is not installed where Spark's workers run: on {host}, for {python}",
        remedy=f"install it there: {python} -m pip install trueline=={ours}",
        code="WorkersLackTrueline",
        host=host,
        python=python,
    )


def _other_version(theirs: str, ours: str, host: str, python: str) -> EnvironmentMissing:
    return EnvironmentMissing(
        f"Spark's workers have trueline {theirs}, and this is {ours}: on {host}, for {python}",
        remedy=f"install the same there: {python} -m pip install trueline=={ours}",
        code="WorkersOtherTrueline",
        host=host,
        python=python,
        version=theirs,
    )
