"""The journal of a run: what each step made of each value, so that an interrupted run goes on where it was.

A file of JSON lines that only grows. Each line ends with a checksum; a line
that was torn when the process died is dropped. What was begun and did not end
is not in it.
"""

from __future__ import annotations

import fcntl
import json
import os
import stat
import threading
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final
from uuid import uuid4

from trueline.errors import InputError, JournalBusy, JournalDamaged, StoreError, TruelineError
from trueline.run.fingerprint import fingerprint
from trueline.run.generations import Generations
from trueline.run.plain import digest_of, text_of, value_of
from trueline.run.step import ERASED, Step

VERSION: Final = 1
_SUM: Final = b',"sum":"'
# What one line may take; more is not read, and not written.
LONGEST_LINE: Final = 256 << 20
# A named pipe in the place of the journal must not stop whoever opens it.
_AT_ONCE: Final = os.O_NONBLOCK | os.O_NOCTTY
# What reading text that was made by somebody else can raise: missing names, other types, numbers of
# thousands of digits, brackets a thousand deep, days that do not exist.
_DISBELIEF: Final = (
    LookupError,
    TypeError,
    ValueError,
    AttributeError,
    ArithmeticError,
    OSError,
    RecursionError,
)


@dataclass(frozen=True, slots=True)
class Entry:
    """One line: a step's work on a key that ended. `out` equals `given` where nothing changed."""

    run: str
    step: int
    key: Any
    gens: Generations
    given: str
    out: str


@dataclass
class Session:
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
        self.sessions: list[Session] = []
        self.torn = 0  # bytes of a torn end that were dropped
        self._known: dict[str, str | None] = {}
        self._identities: tuple[str, ...] = ()
        self._familiar: set[str] = set()  # the steps of which anything is known
        self._file: int | None = None
        self._lock = threading.Lock()
        self._run = ""

    # --- looking ----------------------------------------------------------------------

    def entries(self) -> Iterator[Entry]:
        """Yield what is in the file, oldest first."""
        place = 0
        for line, end in _lines(self.path):
            if "key" in line:
                with self.believing(place):
                    key = value_of(json.dumps(line["key"]))
                    gens = tuple(line["gens"])
                    entry = Entry(line["run"], line["step"], key, gens, line["in"], line["out"])
                yield entry
            place = end

    def read(self) -> Journal:
        """Read the file, if it is there; a torn end is left out and counted."""
        self.sessions, self._known, self._familiar = [], {}, set()
        sessions: dict[str, Session] = {}
        end = 0
        for line, following in _lines(self.path):
            with self.believing(end):
                if "steps" in line:
                    self._session(line, sessions)
                elif "key" in line:
                    self._entry(line, sessions[line["run"]])
                else:
                    sessions[line["run"]].ended = True
            end = following
        self.torn = self.path.stat().st_size - end if self.path.exists() else 0
        return self

    def _session(self, line: dict[str, Any], sessions: dict[str, Session]) -> None:
        if line["journal"] != VERSION:
            raise InputError(
                f"{self.path} is a journal of version {line['journal']!s:.40}",
                remedy="name another file, or remove this one: the run then begins anew",
            )
        count = len(line["steps"])
        identities = tuple(line["identities"])
        texts = (line["run"], line["at"], *line["steps"], *identities)
        if len(identities) != count or not all(isinstance(text, str) for text in texts):
            raise TypeError("a beginning of a run that was not written here")
        session = Session(line["run"], line["at"], tuple(line["steps"]), identities, [0] * count, [0] * count)
        self.sessions.append(session)
        sessions[session.run] = session

    def _entry(self, line: dict[str, Any], session: Session) -> None:
        index = line["step"]
        if type(index) is not int or index < 0:
            raise TypeError("a step that is not a number")
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
            self._file = os.open(
                self.path, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | _AT_ONCE, 0o644
            )
        except OSError as error:
            raise self._refused(error) from error
        try:
            _check_regular(self.path, self._file)
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
        with self.believing():
            value = value_of(text)
        return value if self.decode is None or value is ERASED else self.decode(value)

    @contextmanager
    def believing(self, place: int | None = None) -> Iterator[None]:
        """Whatever a line that was not written here leads to is damage: its checksum anybody can make."""
        try:
            yield
        except TruelineError:
            raise
        except _DISBELIEF:
            raise _damaged(self.path, place) from None

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
            if len(lines[-1]) > LONGEST_LINE:
                raise InputError(
                    f"a value of step {step} takes {len(lines[-1]):,} bytes, more than a line may",
                    remedy="let the value be the place of the data and its digest",
                    code="TooLarge",
                )
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
    if not isinstance(line, dict):
        raise TypeError("a line that holds no names")
    return line


def _check_regular(path: Path, file: int) -> None:
    if not stat.S_ISREG(os.fstat(file).st_mode):
        raise InputError(f"{path} is not a file", remedy="name another place for the journal", path=str(path))


def _damaged(path: Path, place: int | None) -> JournalDamaged:
    at = "" if place is None else f" at byte {place:,}"
    return JournalDamaged(
        f"{path} is damaged{at}", remedy="remove it: the run then begins anew", path=str(path), place=place
    )


def _lines(path: Path) -> Iterator[tuple[dict[str, Any], int]]:
    """Yield the lines of a journal and where each ends; stop at a torn end, refuse damage before it."""
    try:
        opened = os.open(path, os.O_RDONLY | os.O_CLOEXEC | _AT_ONCE)
    except FileNotFoundError:
        return
    except OSError as error:
        raise StoreError(
            f"the journal {path} cannot be read: {error.strerror}", remedy="check its place and its rights"
        ) from error
    torn_at: int | None = None
    place = 0
    try:
        _check_regular(path, opened)
    except InputError:
        os.close(opened)
        raise
    with os.fdopen(opened, "rb") as file:
        while raw := file.readline(LONGEST_LINE + 1):
            place += len(raw)
            try:
                line = _checked(raw)
            except _DISBELIEF:
                raise _damaged(path, place - len(raw)) from None
            if len(raw) > LONGEST_LINE:
                raise _damaged(path, place - len(raw))
            if line is None:
                torn_at = place - len(raw) if torn_at is None else torn_at
            elif torn_at is not None:
                raise _damaged(path, torn_at)
            else:
                yield line, place
