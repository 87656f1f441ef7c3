"""JSON values to typed columns: the definition, one line and one column at a time."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pyarrow as pa

from trueline.readers.cells import Cells, by_the_rules, convert
from trueline.readers.rules import CellRules, is_bytes, is_text

MAX_DEPTH = 100
_STRINGS = re.compile(r'"(?:[^"\\]|\\.)*+"')
_OTHER = re.compile(r"[^\[\]{}]")


class Number(str):
    """A number as it was written, so that no digit goes through a float."""

    __slots__ = ()


class NotAnObject(ValueError):
    """A line that is not a JSON object."""


_decoder = json.JSONDecoder(parse_int=Number, parse_float=Number, parse_constant=Number)


def parse(line: bytes) -> dict[str, Any]:
    """One line as an object; of a repeated key the last wins.

    >>> parse(b'{"a": 12345678901234567890, "a": 1.50}')
    {'a': '1.50'}
    """
    try:
        text = line.decode()
        if _depth(text) > MAX_DEPTH:
            raise NotAnObject
        value = _decoder.decode(text)
    except (ValueError, RecursionError):
        raise NotAnObject from None
    if not isinstance(value, dict):
        raise NotAnObject
    return value


def _depth(text: str) -> int:
    """How deep brackets are nested; text in quotes does not count."""
    if text.count("{") + text.count("[") <= MAX_DEPTH:
        return 0
    depth = most = 0
    for bracket in _OTHER.sub("", _STRINGS.sub("", text)):
        depth += 1 if bracket in "{[" else -1
        most = max(most, depth)
    return most


def column(values: Sequence[Any], kind: pa.DataType, rules: CellRules, *, fast: bool = True) -> Cells:
    """Give JSON values the type of a column; what does not fit is null, and bad.

    Numbers and booleans are what JSON calls them; text takes any value, as
    JSON writes it; decimals take numbers and text; dates and times take text.
    A struct or list of which a part does not fit is bad as a whole.
    """
    types = pa.types
    if types.is_struct(kind):
        return _structs(values, kind, rules)
    if types.is_list(kind) or types.is_large_list(kind) or types.is_fixed_size_list(kind):
        return _lists(values, kind, rules)
    if types.is_boolean(kind):
        good = [value if isinstance(value, bool) else None for value in values]
        return Cells(pa.array(good, kind), _lost(values, good))
    texts = [_text_for(kind)(value) for value in values]
    wrong = _lost(values, texts)
    found = (convert if fast else by_the_rules)(pa.array(texts, pa.string()), kind, rules)
    bad = wrong if found.bad is None else found.bad if wrong is None else found.bad | wrong
    return Cells(found.array, bad, found.undecodable, found.rounded)


def _text_for(kind: pa.DataType) -> Callable[[Any], str | None]:
    types = pa.types
    if is_text(kind):
        return _any_text
    if types.is_integer(kind) or types.is_floating(kind):
        return _number
    if types.is_decimal(kind):
        return lambda value: _encodable(value) if isinstance(value, str) else None
    if types.is_null(kind):
        return _never
    if is_bytes(kind) or types.is_date(kind) or types.is_time(kind) or types.is_timestamp(kind):
        return lambda value: (
            _encodable(value) if isinstance(value, str) and not isinstance(value, Number) else None
        )
    raise AssertionError(kind)


def _never(_: Any) -> None:
    return None


def _number(value: Any) -> str | None:
    return str(value) if isinstance(value, Number) else None


def _any_text(value: Any) -> str | None:
    if value is None:
        return None
    return _encodable(str(value) if isinstance(value, str) else written(value))


def _encodable(text: str) -> str | None:
    """Half of a surrogate pair is not valid text."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return None
    return str(text)


def written(value: Any) -> str:
    """A value as JSON, without spaces, numbers as they were written.

    >>> written({"a": [Number("1.50"), True, None, "x"]})
    '{"a":[1.50,true,null,"x"]}'
    """
    if isinstance(value, Number):
        return str(value)
    if isinstance(value, dict):
        return "{" + ",".join(f"{written(key)}:{written(each)}" for key, each in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(written(each) for each in value) + "]"
    return json.dumps(value, ensure_ascii=False)


def _lost(values: Sequence[Any], kept: Sequence[Any]) -> Any:
    lost = np.fromiter(
        (value is not None and good is None for value, good in zip(values, kept, strict=True)),
        np.bool_,
        len(values),
    )
    return lost if lost.any() else None


def _structs(values: Sequence[Any], kind: pa.DataType, rules: CellRules) -> Cells:
    good = [value if isinstance(value, dict) else None for value in values]
    bad = _lost(values, good)
    bad = np.zeros(len(good), np.bool_) if bad is None else bad
    children, rounded = [], 0
    for field in kind:
        child = column(
            [value.get(field.name) if value is not None else None for value in good], field.type, rules
        )
        rounded += child.rounded
        if child.bad is not None:
            bad |= child.bad
        children.append(child.array)
    mask = bad | np.fromiter((value is None for value in good), np.bool_, len(good))
    if not children:
        rows: list[dict[str, Any] | None] = [None if gone else {} for gone in mask]
        return Cells(pa.array(rows, kind), bad if bad.any() else None)
    array = pa.StructArray.from_arrays(children, fields=list(kind), mask=pa.array(mask))
    return Cells(array, bad if bad.any() else None, 0, rounded)


def _lists(values: Sequence[Any], kind: pa.DataType, rules: CellRules) -> Cells:
    fixed = kind.list_size if pa.types.is_fixed_size_list(kind) else None
    good = [value if isinstance(value, list) and fixed in {None, len(value)} else None for value in values]
    bad = _lost(values, good)
    bad = np.zeros(len(good), np.bool_) if bad is None else bad
    parts = [[None] * (fixed or 0) if value is None else value for value in good]
    child = column([item for part in parts for item in part], kind.value_type, rules)
    ends = np.cumsum([0, *(len(part) for part in parts)])
    if child.bad is not None:
        hurt = np.searchsorted(ends, np.flatnonzero(child.bad), side="right") - 1
        bad[hurt] = True
    mask = pa.array(bad | np.fromiter((value is None for value in good), np.bool_, len(good)))
    if fixed is not None:
        array = pa.FixedSizeListArray.from_arrays(child.array, type=kind, mask=mask)
    else:
        made = pa.LargeListArray if pa.types.is_large_list(kind) else pa.ListArray
        width = pa.int64() if pa.types.is_large_list(kind) else pa.int32()
        array = made.from_arrays(pa.array(ends, width), child.array, type=kind, mask=mask)
    return Cells(array, bad if bad.any() else None, 0, child.rounded)
