"""What tasks answer, as JSON: values of a closed list of types, so that reading an answer runs no code.

Work goes to the tasks as code, by `packing`: that is the driver's authority. What comes back is from
other machines, perhaps of a Spark that someone else runs, and is only ever read as data.
"""

from __future__ import annotations

import base64
import builtins
import json
import traceback
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import fields as fields_of
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from functools import cache
from types import UnionType
from typing import Any, Final, NamedTuple, TypeVar, Union, get_args, get_origin, get_type_hints

import numpy as np
import pyarrow as pa

from trueline import errors
from trueline.chain.instant import Instant
from trueline.chain.store.scratch import KnownByKey
from trueline.errors import InputError, SparkFailed, TruelineError
from trueline.identity.multihash import Multihash
from trueline.run.step import Erased

# Of an error so many characters of its problem, and of one field that is not plain, are sent.
_MOST_TEXT: Final = 10_000
_MOST_SHOWN: Final = 1_000
# Fields of records of these types have to be what they are declared as.
_CHECKED: Final = {bool, int, str, bytes, type(None)}
Rows = TypeVar("Rows", pa.Table, pa.RecordBatch)


def encode(value: object) -> bytes:
    """Return an answer as bytes; what is not of the list is refused, where it was made."""
    return json.dumps(_tree(value), separators=(",", ":")).encode("ascii")


def decode(data: object) -> Any:
    """Return the value that `encode` was given; no bytes, valid or not, run any code."""
    if not isinstance(data, bytes):
        raise unreadable(f"a {type(data).__name__}, not bytes")
    try:
        return _value(json.loads(data))
    except Exception as error:  # noqa: BLE001 (untrusted bytes may fail in any way)
        raise unreadable(f"{type(error).__name__}: {error!s:.200}") from None


def unreadable(why: str) -> SparkFailed:
    """Return the error that says that an answer is not one of ours."""
    return SparkFailed(
        f"the answer of a task cannot be read: {why}",
        remedy="install the same version of trueline where Spark's workers run",
        code="BadAnswer",
    )


def batches_of(parcel: bytes, names: Sequence[str]) -> Iterator[pa.RecordBatch]:
    """Yield the rows that a task sent as a stream of Arrow, which has to have these columns."""
    try:
        with pa.ipc.open_stream(parcel) as stream:
            if list(stream.schema.names) != list(names):
                raise unreadable(f"rows of the columns {stream.schema.names!s:.200}")
            for batch in stream:
                yield checked(batch)
    except (pa.ArrowException, OSError) as error:
        raise unreadable(f"{type(error).__name__}: {error!s:.200}") from None


def checked(rows: Rows) -> Rows:
    """Return rows of other machines, if they are what they say: wrong offsets would be read out of bounds."""
    try:
        rows.validate(full=True)
    except pa.ArrowInvalid as error:
        raise unreadable(f"{error!s:.200}") from None
    return rows


# --- the types ------------------------------------------------------------------------------


class _Form(NamedTuple):
    """How values of one type are written and read."""

    write: Callable[[Any], Any]
    read: Callable[[Any], Any]


def _table_bytes(table: pa.Table) -> str:
    sink = pa.BufferOutputStream()
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return _bytes_text(sink.getvalue().to_pybytes())


def _table(text: str) -> pa.Table:
    with pa.ipc.open_stream(_bytes(text)) as stream:
        return checked(stream.read_all())


def _bytes_text(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _bytes(text: str) -> bytes:
    return base64.b64decode(text, validate=True)


def _trees(values: Iterable[Any]) -> list[Any]:
    return [_tree(value) for value in values]


def _values(trees: Iterable[Any]) -> list[Any]:
    return [_value(tree) for tree in trees]


# Plain values: these may also be fields of an error.
_PLAIN: Final[dict[type, _Form]] = {
    tuple: _Form(_trees, lambda found: tuple(_values(found))),
    dict: _Form(
        lambda value: [_trees(pair) for pair in value.items()], lambda found: dict(_values_of(found))
    ),
    set: _Form(_trees, lambda found: set(_values(found))),
    frozenset: _Form(_trees, lambda found: frozenset(_values(found))),
    bytes: _Form(_bytes_text, _bytes),
    datetime: _Form(datetime.isoformat, datetime.fromisoformat),
    date: _Form(date.isoformat, date.fromisoformat),
    time: _Form(time.isoformat, time.fromisoformat),
    timedelta: _Form(
        lambda value: [value.days, value.seconds, value.microseconds], lambda found: timedelta(*found)
    ),
    Decimal: _Form(str, Decimal),
    Multihash: _Form(str, Multihash),
    Instant: _Form(int, Instant),
}


def _values_of(pairs: list[list[Any]]) -> list[tuple[Any, Any]]:
    return [(_value(key), _value(value)) for key, value in pairs]


@cache
def _forms() -> dict[type, _Form]:
    found = dict(_PLAIN)
    found[pa.Schema] = _Form(
        lambda value: _bytes_text(value.serialize().to_pybytes()),
        lambda text: pa.ipc.read_schema(pa.py_buffer(_bytes(text))),
    )
    found[pa.Table] = _Form(_table_bytes, _table)
    for kind in _enums():
        found[kind] = _Form(lambda value: value.value, kind)
    for kind in records():
        found[kind] = _record_form(kind)
    return found


def _kinds_of(hint: Any) -> set[Any]:
    return set(get_args(hint)) if get_origin(hint) in (Union, UnionType) else {hint}


def _record_form(kind: type) -> _Form:
    names = [field.name for field in fields_of(kind)]
    plain = {name: hint for name, hint in get_type_hints(kind).items() if _kinds_of(hint) <= _CHECKED}

    def write(value: Any) -> dict[str, Any]:
        return {name: _tree(getattr(value, name)) for name in names}

    def read(found: dict[str, Any]) -> Any:
        values = {name: _value(found[name]) for name in names}
        for name, hint in plain.items():
            if not isinstance(values[name], hint):
                raise TypeError(f"{name} of a {kind.__name__} is a {type(values[name]).__name__}")
        return kind(**values)

    return _Form(write, read)


def _enums() -> tuple[type, ...]:
    from trueline.chain.verify import ProblemKind

    return (Erased, ProblemKind)


@cache
def records() -> tuple[type, ...]:
    """Return the dataclasses that tasks answer with; a new one is added here."""
    from trueline.chain import events
    from trueline.dataset.append.files import FileIdentity
    from trueline.dataset.append.frames import EventTimes
    from trueline.dataset.append.incoming import FileRead
    from trueline.dataset.append.merge_ranges import RangeMerged, Sorted
    from trueline.dataset.append.pieces import IncomingPiece
    from trueline.dataset.append.slices import Written
    from trueline.dataset.append.source_order import Selected
    from trueline.dataset.append.staged import StagedPart
    from trueline.dataset.merge.result import MergeCounts
    from trueline.dataset.prepare.rows import Parsed, Rows
    from trueline.dataset.state.segment import SegmentInfo
    from trueline.dataset.verify.files import Checked, DataProblem
    from trueline.kernel.row_fingerprint import Fingerprint
    from trueline.kernel.sorted_runs import RunFile
    from trueline.readers.batch import ReadStats
    from trueline.readers.parts import Part
    from trueline.readers.profile import Profile
    from trueline.spark import frames

    return (
        Checked,
        DataProblem,
        FileIdentity,
        FileRead,
        Fingerprint,
        Parsed,
        IncomingPiece,
        Part,
        Profile,
        RangeMerged,
        ReadStats,
        Rows,
        RunFile,
        SegmentInfo,
        Selected,
        Sorted,
        StagedPart,
        MergeCounts,
        EventTimes,
        Written,
        events.DataSlice,
        events.OffsetInterval,
        frames.WrittenPiece,
    )


@cache
def _by_name() -> dict[str, _Form]:
    return {_name(kind): form for kind, form in _forms().items()}


def _name(kind: type) -> str:
    return f"{kind.__module__}.{kind.__qualname__}"


# --- values and trees -----------------------------------------------------------------------

_SCRATCH: Final = "scratch"
_ERROR: Final = "error"
_EXCEPTION: Final = "exception"


def _tree(value: Any) -> Any:
    """Return a value as JSON has it: scalars and lists as they are, others under the name of their type."""
    kind = type(value)
    if value is None or kind in (bool, int, float, str):
        return value
    if kind is list:
        return _trees(value)
    form = _forms().get(kind)
    if form is not None:
        return {_name(kind): form.write(value)}
    if isinstance(value, np.generic) and not isinstance(value, np.void | np.datetime64 | np.timedelta64):
        return _tree(value.item())
    if isinstance(value, KnownByKey):
        # The location is the driver's own and goes back by its key: a task cannot choose another.
        return {_SCRATCH: value.key}
    if isinstance(value, TruelineError):
        return {_ERROR: error_document(value)}
    if isinstance(value, BaseException):
        return {_EXCEPTION: _exception_tree(value)}
    raise InputError(
        f"a task answers with a {kind.__module__}.{kind.__qualname__}, which is not plain data",
        remedy="use numbers, text, bytes, times, lists, tuples, dictionaries, sets, or references to rows",
        code="NotPlain",
    )


def _value(tree: Any) -> Any:
    if isinstance(tree, list):
        return _values(tree)
    if not isinstance(tree, dict):
        return tree
    ((name, found),) = tree.items()
    if name == _SCRATCH:
        return KnownByKey.of(found)
    if name == _ERROR:
        return error_of(found)
    if name == _EXCEPTION:
        return _exception(*found)
    return _by_name()[name].read(found)


# --- errors ---------------------------------------------------------------------------------


def error_document(error: TruelineError) -> dict[str, Any]:
    """Return an error of ours as plain data: fields that are not plain are given as text."""
    known = next(kind for kind in type(error).__mro__ if _error_class(kind.__name__) is kind)
    return {
        "class": known.__name__,
        "problem": error.problem[:_MOST_TEXT],
        "remedy": error.remedy[:_MOST_TEXT],
        "code": error.code[:_MOST_SHOWN],
        "fields": {name: _plain(value) for name, value in error.fields.items()},
    }


def error_of(document: Any) -> TruelineError:
    """Return the error of a document; its class is one of `trueline.errors`, or the document is refused."""
    kind = _error_class(document["class"])
    texts = [document[name] for name in ("problem", "remedy", "code")]
    if kind is None or not all(isinstance(text, str) for text in texts):
        raise ValueError("not an error of ours")
    problem, remedy, code = texts
    error = kind(problem, remedy=remedy, code=code)
    error.fields.update({str(name): _value(tree) for name, tree in dict(document["fields"]).items()})
    return error


def _error_class(name: object) -> type[TruelineError] | None:
    found = vars(errors).get(name) if isinstance(name, str) else None
    return found if isinstance(found, type) and issubclass(found, TruelineError) else None


def _plain(value: object) -> Any:
    """Return a field of an error as a tree of plain values, or as text."""
    try:
        return _tree(value) if _is_plain(value) else f"{value!s:.{_MOST_SHOWN}}"
    except Exception:  # noqa: BLE001 (a value's own text may fail in any way)
        return f"<{type(value).__name__}>"


def _is_plain(value: Any) -> bool:
    kind = type(value)
    if kind is dict:
        return all(_is_plain(key) and _is_plain(each) for key, each in value.items())
    if kind in (list, tuple, set, frozenset):
        return all(map(_is_plain, value))
    return value is None or kind in (bool, int, float, str) or kind in _PLAIN


def _exception_tree(error: BaseException) -> list[Any]:
    """Return an exception of Python as its name and plain arguments; any other as text."""
    kind = type(error)
    if _builtin(kind.__name__) is kind and all(map(_is_plain, error.args)):
        return [kind.__name__, _trees(error.args)]
    return ["RuntimeError", ["".join(traceback.format_exception(error))[-_MOST_TEXT:]]]


def _exception(name: object, arguments: list[Any]) -> Exception:
    kind = _builtin(name)
    if kind is None:
        raise ValueError("not an exception of Python")
    return kind(*_values(arguments))


def _builtin(name: object) -> type[Exception] | None:
    found = vars(builtins).get(name) if isinstance(name, str) else None
    return found if isinstance(found, type) and issubclass(found, Exception) else None
