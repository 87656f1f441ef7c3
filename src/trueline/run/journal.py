"""The journal of a run: what each step made of each value, so that an interrupted run goes on where it was.

A file of JSON lines that only grows. Each line ends with a checksum; a line
that was torn when the process died is dropped. What was begun and did not end
is not in it.
"""

from __future__ import annotations

import fcntl
import json
import os
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from trueline.errors import InputError, JournalBusy, JournalDamaged, StoreError
from trueline.run.fingerprint import fingerprint
from trueline.run.generations import Generations
from trueline.run.json_values import digest_of, text_of, value_of
from trueline.run.step import ERASED, Step

VERSION: Final = 1
_SUM: Final = b',"sum":"'


@dataclass(frozen=True, slots=True)
class JournalEntry:
    """One line: a step's work on a key that ended. `out` equals `given` where nothing changed."""

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
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        encode: Callable[[Any], Any] | None = None,
        decode: Callable[[Any], Any] | None = None,
    ) -> None:
        if (encode is None) != (decode is None):
            raise InputError("encode= or decode= alone", remedy="give both")
        self.path = Path(path)
        self.encode = encode
        self.decode = decode
        self.sessions: list[JournalSession] = []
        self.torn = 0  # bytes of a torn end that were dropped
        self._known: dict[str, str | None] = {}
        self._identities: tuple[str, ...] = ()
        self._familiar: set[str] = set()  # the steps of which anything is known
        self._file: int | None = None
        self._lock = threading.Lock()
        self._run = ""

    # --- looking ----------------------------------------------------------------------

    def entries(self) -> Iterator[JournalEntry]:
        """Yield what is in the file, oldest first."""
        for line, _ in _lines(self.path):
            if "key" in line:
                key = value_of(json.dumps(line["key"]))
                yield JournalEntry(
                    line["run"], line["step"], key, tuple(line["gens"]), line["in"], line["out"]
                )

    def read(self) -> Journal:
        """Read the file, if it is there; a torn end is left out and counted."""
        self.sessions, self._known, self._familiar = [], {}, set()
        sessions: dict[str, JournalSession] = {}
        end = 0
        for line, end in _lines(self.path):  # noqa: B007 (the last one counts)
            if "steps" in line:
                self._session(line, sessions)
            elif "key" in line:
                self._entry(line, sessions[line["run"]])
            else:
                sessions[line["run"]].ended = True
        self.torn = self.path.stat().st_size - end if self.path.exists() else 0
        return self

    def _session(self, line: dict[str, Any], sessions: dict[str, JournalSession]) -> None:
        if line["journal"] != VERSION:
            raise InputError(
                f"{self.path} is a journal of version {line['journal']}",
                remedy="name another file, or remove this one: the run then begins anew",
            )
        count = len(line["steps"])
        identities = tuple(line["identities"])
        session = JournalSession(
            line["run"], line["at"], tuple(line["steps"]), identities, [0] * count, [0] * count
        )
        self.sessions.append(session)
        sessions[session.run] = session

    def _entry(self, line: dict[str, Any], session: JournalSession) -> None:
        index = line["step"]
        session.finished[index] += 1
        session.changed[index] += line["in"] != line["out"]
        identity = session.identities[index]
        self._familiar.add(identity)
        made = json.dumps(line["made"], separators=(",", ":")) if "made" in line else None
        key = json.dumps(line["key"], separators=(",", ":"))
        self._known[digest_of(identity, key, line["in"])] = made

    # --- while a run goes on ----------------------------------------------------------

    def open(self, steps: Sequence[Step]) -> None:
        """Begin a run: read what is known, drop a torn end, write down who goes on."""
        if self._file is not None:
            raise InputError(f"{self.path} is in use by another run", remedy="give each run its own journal")
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._file = os.open(self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise self._refused(error) from error
        try:
            self._begin(steps)
        except BaseException:
            self._release()
            raise

    def _begin(self, steps: Sequence[Step]) -> None:
        assert self._file is not None
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise JournalBusy(
                f"another run writes {self.path}", remedy="wait for its end, or name another journal"
            ) from None
        except OSError as error:
            raise self._refused(error) from error
        self.read()
        if self.torn:
            os.ftruncate(self._file, self.path.stat().st_size - self.torn)
        self._run = uuid4().hex[:16]
        self._identities = tuple(fingerprint(step, index) for index, step in enumerate(steps))
        header = {
            "journal": VERSION,
            "run": self._run,
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
            "steps": [step.name or type(step).__name__ for step in steps],
            "identities": list(self._identities),
        }
        self._write([_line(json.dumps(header, separators=(",", ":")))])

    def close(self) -> None:
        """End a run; everything is on the disk when it returns."""
        if self._file is None:
            return
        try:
            self._write([_line(json.dumps({"run": self._run, "ended": True}, separators=(",", ":")))])
            os.fsync(self._file)
        except OSError as error:
            raise self._refused(error) from error
        finally:
            self._release()

    def _release(self) -> None:
        if self._file is not None:
            os.close(self._file)
            self._file = None

    def knows(self, step: int) -> bool:
        """Say whether looking for this step can find anything."""
        return self._identities[step] in self._familiar

    def text(self, value: Any) -> str:
        """Write a value as the journal keeps it."""
        return text_of(value if self.encode is None or value is ERASED else self.encode(value))

    def value(self, text: str) -> Any:
        """Read a value the journal has kept."""
        value = value_of(text)
        return value if self.decode is None or value is ERASED else self.decode(value)

    def find(self, step: int, key: str, given: str) -> tuple[bool, str | None]:
        """Look up what a step made of a key's value, by text and digest; None stands for no change."""
        place = digest_of(self._identities[step], key, given)
        return place in self._known, self._known.get(place)

    def keep(self, step: int, made: Sequence[tuple[str, Generations, str, str | None]]) -> None:
        """Write down what a step made: (key, generations, digest of what was given, text or no change)."""
        lines = []
        for key, gens, given, text in made:
            body = f'{{"run":"{self._run}","step":{step},"key":{key},"gens":{list(gens)},"in":"{given}"'
            if text is None:
                lines.append(_line(f'{body},"out":"{given}"}}'))
            else:
                lines.append(_line(f'{body},"out":"{digest_of(text)}","made":{text}}}'))
        with self._lock:
            self._write(lines)

    def _write(self, lines: list[bytes]) -> None:
        """Append in one piece, so that a process that dies tears at most the last line.

        Where there is no room for all of it nothing stays: behind a torn line no other may stand.
        """
        if self._file is None:
            return
        left = memoryview(b"".join(lines))
        end = os.fstat(self._file).st_size
        try:
            while left:
                left = left[os.write(self._file, left) :]
        except OSError as error:
            os.ftruncate(self._file, end)
            raise self._refused(error) from error

    def _refused(self, error: OSError) -> StoreError:
        return StoreError(
            f"the journal {self.path} cannot be written: {error.strerror}",
            remedy="make room or name another place; what is in it stays good",
        )


def _line(body: str) -> bytes:
    raw = body[:-1].encode()
    return raw + _SUM + f'{zlib.crc32(raw):08x}"}}\n'.encode()


def _checked(raw: bytes) -> dict[str, Any] | None:
    """Return what a line says, None if it is not whole."""
    body, found, rest = raw.rpartition(_SUM)
    if not found or rest != f'{zlib.crc32(body):08x}"}}\n'.encode():
        return None
    line = json.loads(body + b"}")
    return line if isinstance(line, dict) else None


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the lines of a journal and where each ends; stop at a torn end, refuse damage before it."""
    if not path.exists():
        return
    torn_at: int | None = None
    place = 0
    with path.open("rb") as file:
        for raw in file:
            place += len(raw)
            line = _checked(raw)
            if line is None:
                torn_at = place - len(raw) if torn_at is None else torn_at
            elif torn_at is not None:
                raise JournalDamaged(
                    f"{path} is damaged at byte {torn_at:,}",
                    remedy="remove it: the run then begins anew",
                    path=str(path),
                    place=torn_at,
                )
            else:
                yield line, place
