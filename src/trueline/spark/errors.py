"""Spark's errors as ours: with the place in the query, without the JVM's stack."""

from __future__ import annotations

import base64
import hmac
import json
import logging
import re
import secrets
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import Any, Final, NamedTuple

from trueline.errors import (
    EnvironmentMissing,
    ObjectMissing,
    OutOfMemory,
    QueryError,
    SparkFailed,
    TaskFailed,
    TruelineError,
    visible,
)
from trueline.kernel.tasks import failure
from trueline.spark.launch import jvm_has_ended
from trueline.spark.results import error_document, error_of
from trueline.view.expressions.faults import Spot, pointed

# --- errors that cross from a task to the driver -------------------------------------

# Texts of Spark quote data, so an error of ours is known by a nonce: made here for one job, sent to its
# tasks with their code, never written anywhere else. It is JSON: even under the right nonce nothing runs.
_MARK: Final = re.compile(r"trueline-error:([0-9a-f]{32}):([A-Za-z0-9+/=]+):end")
# Spark carries an exception from a task as text; 200 kB were seen to arrive whole, on Connect too.
_MOST: Final = 128 * 1024
_SHOWN: Final = 500
# Frames that were returned and sources that were registered may run at any time. The
# errors of so many, the newest, are recognised; those of older ones are shown as text.
_MOST_LASTING: Final = 16_384
# People read those errors in the text of Spark's: problem and remedy, then one short line by which they are
# recognised. It holds class, code, fields as JSON, both lengths, and a signature that needs the nonce.
_SIGNED: Final = re.compile(
    r"\n  \[(\w{1,80})(?: (\w{1,80}))?(?: (\{[^\n]*\}))? (\d{1,4})\+(\d{1,4})\.([0-9a-f]{16})\]"
)
_MOST_READ: Final = 2_000
_MOST_FIELD: Final = 100
_MOST_FIELDS: Final = 400
_ARROW: Final = "\n  → "

_in_flight: set[str] = set()
_lasting: dict[str, None] = {}
_lock = threading.Lock()


@contextmanager
def expecting() -> Iterator[str]:
    """Yield a nonce for the tasks of one job; errors that carry it are recognised until the block ends."""
    nonce = secrets.token_hex(16)
    _in_flight.add(nonce)
    try:
        yield nonce
    finally:
        _in_flight.discard(nonce)


def lasting_nonce() -> str:
    """Return a nonce for what may run at any time from now on."""
    nonce = secrets.token_hex(16)
    with _lock:
        _lasting[nonce] = None
        while len(_lasting) > _MOST_LASTING:
            del _lasting[next(iter(_lasting))]
    return nonce


class CarriedError(Exception):
    """An error of ours on its way from a job of ours to the driver; without a nonce it stays text."""

    def __init__(self, error: TruelineError, nonce: str) -> None:
        shown = f"{error.problem[:_SHOWN]}" + (f" → {error.remedy[:_SHOWN]}" if error.remedy else "")
        super().__init__(f"{shown}\ntrueline-error:{nonce}:{_packed(error)}:end" if nonce else shown)


class SignedError(CarriedError):
    """An error of ours on its way from what users run themselves: they read it where `translated` is not."""

    def __init__(self, error: TruelineError, nonce: str) -> None:
        problem, remedy = _read(error.problem), _read(error.remedy)
        text = f"{problem}{_ARROW}{remedy}" if remedy else problem
        Exception.__init__(self, text + (_signature(error, problem, remedy, nonce) if nonce else ""))


@contextmanager
def carrying(nonce: str, label: str = "reading the dataset", index: int = 0) -> Iterator[None]:
    """Send errors of what users run to the driver so that they, and `translated`, find ours in Spark's."""
    try:
        yield
    except CarriedError:
        raise
    except Exception as error:  # noqa: BLE001 (anything that reading or writing raises)
        ours = failure(error, label=label, index=index)
        # Spark shows where an error of others came from, and ours under the name of its class.
        shown = type(error_document(ours)["class"], (SignedError,), {"__module__": TruelineError.__module__})
        raise shown(ours, nonce) from (None if ours is error else error)


def _read(text: str) -> str:
    """Return text as Spark can carry it and people can read it."""
    text = visible(text).encode("utf-8", "backslashreplace").decode()
    return text if len(text) <= _MOST_READ else text[: _MOST_READ - 1] + "…"


def _signature(error: TruelineError, problem: str, remedy: str, nonce: str) -> str:
    document = error_document(error)
    is_word = re.fullmatch(r"\w{1,80}", document["code"]) is not None
    code = f" {document['code']}" if is_word and document["code"] != document["class"] else ""
    fields = {name: value for name, value in document["fields"].items() if len(str(value)) <= _MOST_FIELD}
    shown = json.dumps(fields, separators=(",", ":")) if fields else ""
    head = f"{document['class']}{code}" + (f" {shown}" if 0 < len(shown) <= _MOST_FIELDS else "")
    lengths = f"{len(problem)}+{len(remedy)}"
    return f"\n  [{head} {lengths}.{_digest(nonce, head, problem, remedy)}]"


def _digest(nonce: str, *parts: str) -> str:
    data = json.dumps(parts).encode("ascii")
    return hmac.digest(nonce.encode("ascii"), data, "sha256").hex()[:16]


def _packed(error: TruelineError) -> str:
    document = error_document(error)
    for chosen in (document, document | {"fields": {}}):
        text = json.dumps(chosen, separators=(",", ":"), ensure_ascii=False)
        data = text.encode("utf-8", "surrogatepass")
        if len(data) <= _MOST:
            return base64.b64encode(data).decode("ascii")
    raise AssertionError("an error without fields is short")


def carried(text: str) -> TruelineError | None:
    """Return the error that a task of a job of ours put into the text of its exception, if there is one."""
    for found in _MARK.finditer(text):
        nonce, data = found.groups()
        if nonce in _in_flight:
            try:
                return error_of(json.loads(base64.b64decode(data)))
            except Exception:  # noqa: BLE001, S112 (torn on its way, in any way: then it is text)
                continue
    return next(
        (error for found in _SIGNED.finditer(text) if (error := _recognised(found)) is not None), None
    )


def _recognised(found: re.Match[str]) -> TruelineError | None:
    """Return the error that a signature and the text before it are, if a nonce of ours has signed them."""
    kind, code, fields, problems, remedies, digest = found.groups()
    end = found.start()
    middle = end - int(remedies)
    begin = middle - (len(_ARROW) if int(remedies) else 0) - int(problems)
    if begin < 0:
        return None
    problem, remedy = found.string[begin : begin + int(problems)], found.string[middle:end]
    head = " ".join(part for part in (kind, code, fields) if part)
    with _lock:
        nonces = list(_lasting)
    if not any(hmac.compare_digest(_digest(nonce, head, problem, remedy), digest) for nonce in nonces):
        return None
    try:
        document = {"class": kind, "problem": problem, "remedy": remedy, "code": code or kind}
        return error_of(document | {"fields": json.loads(fields) if fields else {}})
    except Exception:  # noqa: BLE001 (of another version: then it is text)
        return None


# --- errors that Spark itself raises --------------------------------------------------

# Classes of SQLSTATE that are about the query or its values: data, syntax, cardinality, constraint,
# unsupported feature, raised by the query.
_OF_THE_QUERY: Final = ("0A", "21", "22", "23", "42", "P0")
_PLACE: Final = re.compile(r"\(line (\d+), (pos|position) (\d+)\)|; line (\d+) (pos) (\d+)")
_END: Final = re.compile(
    r"\n\nJVM stacktrace:|\n\s*at [\w.$]+\(|\n== (?:SQL|DataFrame)\b|; line \d+ pos \d+;|\nDriver stacktrace:"
    r"|\n'?[A-Z]\w+ \[|\nCaused by:"
)
_STATE: Final = re.compile(r"\s*SQLSTATE: (\w{5})")
_CONDITION: Final = re.compile(r"^\s*(?:\([\w.$]+\)\s*)?\[([A-Z][A-Z0-9_.]+)\]\s*")
_OTHER_PYTHON: Final = re.compile(
    r"Python in worker has different version:? \(?'?(?P<theirs>[\d.]+|\(\d+, \d+\))"
    r'|Cannot run program "(?P<program>[^"\n]*python[^"\n]*)"'
)
_PYTHON: Final = "Traceback (most recent call last):"
# As Spark's planner, its readers and Hadoop say it.
_NO_FILE: Final = re.compile(
    r"Path does not exist: file:/*(/[^\n]+?)\.(?:\s|$)|reading file file:/*(/[^\n]+?)\. File does not exist"
    r"|File file:/*(/[^\n]+?) does not exist"
)


class QueryPosition(NamedTuple):
    """Where in a query: line and column from 1, and the text at that place."""

    line: int
    column: int
    fragment: str


def translate(error: BaseException, query: str | None = None) -> TruelineError:
    """Return the error of ours that says what an error of Spark says; of a `query` it shows the place."""
    if isinstance(error, TruelineError):
        return error
    text = _text(error)
    ours = carried(text)
    if (unseen := _not_shared(ours, text)) is not None:
        return unseen
    if ours is not None:
        if isinstance(ours, TaskFailed) and _PYTHON in text:
            ours.fields.setdefault("traceback", _of_python(text).traceback)
        return ours
    if "No module named 'trueline" in text:
        return EnvironmentMissing(
            "trueline is not installed where Spark's workers run",
            remedy="install the same version of trueline there, in the interpreter they use",
            code="WorkersLackTrueline",
        )
    if (other := _OTHER_PYTHON.search(text)) is not None:
        return _other_python(other)
    if _PYTHON in text:
        return _of_python(text)
    known = _CONDITION.search(text)
    condition = _asked(error, "getCondition") or (known.group(1) if known else "")
    state = _asked(error, "getSqlState") or _first(_STATE, text)
    message = _short(text)
    cause = _gone(text, condition)
    if cause is not None:
        code, remedy = cause
        if code == OutOfMemory.__name__:
            return OutOfMemory(message, remedy=remedy, condition=condition)
        return SparkFailed(message, remedy=remedy, code=code, condition=condition)
    if state.startswith(_OF_THE_QUERY) or _is_analysis(error):
        return _of_query(error, text, message, condition, query)
    return SparkFailed(message, remedy="try again; if it fails again, see Spark's log", condition=condition)


def _not_shared(ours: TruelineError | None, text: str) -> EnvironmentMissing | None:
    """Return what is wrong where tasks, or the server, miss a file that this process has; None if none."""
    fields = {} if ours is None else ours.fields
    path = fields.get("path") if ours is not None and ours.code == "NoSuchFile" else None
    if isinstance(ours, ObjectMissing) and "location" in fields:
        name = fields.get("file") or f"{fields.get('folder')}/{fields.get('hash')}"
        path = f"{fields['location']}/{name}"
    if ours is None and (found := _NO_FILE.search(text)) is not None:
        path = next(each for each in found.groups() if each is not None)
    if not isinstance(path, str) or not Path(path).exists():
        return None
    return EnvironmentMissing(
        f"{path} is not to be seen where Spark's tasks run",
        remedy="choose a folder that all machines of the cluster share, or an object store",
        code="FolderNotShared",
        folder=str(Path(path).parent),
    )


def _other_python(found: re.Match[str]) -> EnvironmentMissing:
    """The error of workers that run another Python than this process, or none that there is."""
    theirs = found["theirs"] or found["program"]
    which = f"Python {theirs}" if found["theirs"] else f"{theirs!r:.200}, which cannot be started"
    return EnvironmentMissing(
        f"Spark's workers run {which}; this is Python {sys.version_info.major}.{sys.version_info.minor}",
        remedy=f"set PYSPARK_PYTHON to the interpreter of this process before Spark starts: "
        f"export PYSPARK_PYTHON={sys.executable}",
        code="WorkersOtherPython",
        python=theirs,
    )


def _of_query(error: BaseException, text: str, message: str, condition: str, query: str | None) -> QueryError:
    place = _place(error, text)
    if place is None:
        return QueryError(message, remedy="fix the query or the frame", condition=condition)
    if query is not None:
        shown = pointed(query, Spot(place.line, place.column, max(1, len(place.fragment.split("\n")[0]))))
    else:
        shown = f"\n    {place.fragment}" if place.fragment else ""
    message = _PLACE.sub("", message).rstrip()
    return QueryError(
        f"{message} (line {place.line}, column {place.column}){shown}",
        remedy="fix the query there",
        condition=condition,
        line=place.line,
        column=place.column,
        fragment=place.fragment,
    )


def _of_python(text: str) -> TaskFailed:
    """Shorten a traceback of a Python worker to the frames that are not Spark's."""
    lines = _END.split(text[text.index(_PYTHON) :], maxsplit=1)[0].rstrip().splitlines()
    lines = [_STATE.sub("", line) for line in lines]
    kept: list[str] = []
    theirs = False
    for line in lines[1:]:
        if line.startswith("  File "):
            theirs = "pyspark.zip" in line or "/pyspark/" in line
        elif not line.startswith(" "):
            theirs = False
        if not theirs:
            kept.append(line)
    last = next((line for line in reversed(kept) if line and not line.startswith(" ")), "an exception")
    return TaskFailed(
        f"a function failed in a Spark task: {last[:500]}",
        remedy="see the attribute traceback",
        error=last.partition(":")[0],
        traceback="\n".join(kept).rstrip(),
    )


_REACH: Final = "Spark has stopped or cannot be reached: start it and try again"


def _gone(text: str, condition: str) -> tuple[str, str] | None:
    """Recognise what is neither the query's fault nor the data's: the code and what to do."""
    if "OutOfMemoryError" in text or "maxResultSize" in text:
        return "OutOfMemory", "give Spark more memory (spark.driver.memory), or process fewer rows at a time"
    if "Python worker exited unexpectedly" in text or "ExecutorLostFailure" in text:
        return (
            "WorkerLost",
            "a Python worker exited, most often out of memory: give it more, or process fewer rows at a time",
        )
    if condition in {"OPERATION_CANCELED", "SPARK_JOB_CANCELLED"} or re.search(r"\bcancelled\b", text):
        return "Cancelled", "run it again if it was not cancelled on purpose"
    if re.search(
        r"UNAVAILABLE|Connection refused|Connection reset|Answer from Java side is empty|"
        r"INVALID_HANDLE|SparkContext was shut down|Cannot call methods on a stopped",
        text,
    ):
        return "SparkGone", _REACH
    # Py4J says only which call it was.
    return ("SparkGone", _REACH) if jvm_has_ended() else None


def _is_analysis(error: BaseException) -> bool:
    from pyspark.errors import AnalysisException, PySparkException

    if isinstance(error, AnalysisException):
        return True
    # What pyspark itself refuses, before a JVM is asked: a wrong argument, type or attribute.
    return isinstance(error, PySparkException) and isinstance(
        error, TypeError | ValueError | AttributeError | KeyError
    )


def _place(error: BaseException, text: str) -> QueryPosition | None:
    fragment = ""
    for context in _asked(error, "getQueryContext") or ():
        if context.contextType().name == "SQL":
            fragment = context.fragment()
            text = context.summary() or text
            break
    found = _PLACE.search(text)
    if found is None:
        return None
    line, kind, at = found.group(1, 2, 3) if found.group(1) else found.group(4, 5, 6)
    # "pos" counts from 0, "position" from 1.
    return QueryPosition(int(line), int(at) + (kind == "pos"), fragment or _near(text))


def _near(text: str) -> str:
    """Return what a syntax error is near to."""
    found = re.search(r"at or near '([^']*)'", text)
    return found.group(1) if found else ""


def _asked(error: BaseException, method: str) -> Any:
    """Ask an error of Spark for a detail; some answer only while their JVM lives."""
    try:
        return getattr(error, method)() or ""
    except Exception:  # noqa: BLE001 (an error about an error is not useful)
        return ""


def _text(error: BaseException) -> str:
    """Return all that an error says, causes in the JVM included."""
    try:
        text = str(error)
    except Exception:  # noqa: BLE001 (Py4J asks a JVM that may be gone)
        text = type(error).__name__
    return text or type(error).__name__


def _short(text: str) -> str:
    # Py4J's text is "An error occurred while calling …\n: class: message\n\tat …\nCaused by: class: message".
    parts = re.split(r"\nCaused by: ", text) if text.startswith("An error occurred while calling") else [text]
    causes = [re.sub(r"^An error occurred while calling [^\n]*\n: ", "", part) for part in parts]
    told = [part for part in causes if "Exception thrown in awaitResult" not in part] or causes
    short = _END.split(told[0].strip(), maxsplit=1)[0]
    short = _CONDITION.sub("", _STATE.sub("", short))
    short = re.sub(r"^(?:[a-z]\w*\.)+[A-Z]\w*(?:Exception|Error): ", "", short)
    return short.strip()[:1000] or "Spark failed without saying why"


def _first(pattern: re.Pattern[str], text: str) -> str:
    found = pattern.search(text)
    return found.group(1) if found else ""


# --- quietly ----------------------------------------------------------------------------

_quiet: ContextVar[bool] = ContextVar("trueline_spark_quiet", default=False)


class _Silence(logging.Filter):
    """Drops what pyspark logs of an error that we raise ourselves: one huge line of JSON on stderr."""

    def filter(self, record: logging.LogRecord) -> bool:
        return not _quiet.get()


_silence = _Silence()


@contextmanager
def translated(query: str | None = None) -> Iterator[None]:
    """Turn errors of Spark that leave the block into ours, and keep pyspark from logging them."""
    from pyspark.logger import PySparkLogger

    logger = PySparkLogger.getLogger("SQLQueryContextLogger")
    if _silence not in logger.filters:
        logger.addFilter(_silence)
    token = _quiet.set(True)
    try:
        yield
    except TruelineError:
        raise
    except Exception as error:
        if not _is_of_spark(error):
            raise
        raise translate(error, query) from None
    finally:
        _quiet.reset(token)


def _is_of_spark(error: Exception) -> bool:
    names = {kind.__module__.partition(".")[0] for kind in type(error).__mro__}
    # grpc's and Py4J's errors of a lost connection; ConnectionError is what their sockets raise.
    return bool(names & {"pyspark", "py4j", "grpc"}) or isinstance(error, ConnectionError)
