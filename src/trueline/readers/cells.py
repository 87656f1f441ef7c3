"""Text to values, a column at a time: a cell that cannot be converted becomes null, and is reported."""

from __future__ import annotations

import decimal
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from trueline.readers import times
from trueline.readers.rules import CellRules, is_bytes, is_text

Flags = npt.NDArray[np.bool_]
_SIGNED, _UNSIGNED = "^[+-]?[0-9]+$", r"^\+?[0-9]+$"
_FIRST_DAY = -719_162  # 0001-01-01
# Ranges of cells too small to be worth another cast.
_FEW = 64
_INFINITE = r"^[+-]?(?i:inf|infinity)$"


class Cells(NamedTuple):
    """A column of values: which cells were bad, how many were not valid text, how many times lost digits."""

    array: pa.Array
    bad: Flags | None = None
    undecodable: int = 0
    rounded: int = 0


def decode(cells: pa.Array) -> tuple[pa.Array, Flags | None]:
    r"""Bytes to text, and which of them are not valid UTF-8.

    >>> decode(pa.array([b"a", b"\xff", None]))[1]
    array([False,  True, False])
    """
    try:
        return cells.cast(pa.string()), None
    except pa.ArrowInvalid:
        text = attempt(cells, pa.string())
    return text, flags(pc.and_(pc.is_valid(cells), pc.is_null(text)))


def convert(cells: pa.Array, kind: pa.DataType, rules: CellRules) -> Cells:
    """Give cells of bytes or text their type; null cells stay null and are not bad.

    >>> convert(pa.array(["7", " 8", "x", None]), pa.int8(), CellRules()).array.to_pylist()
    [7, 8, None, None]
    """
    if len(cells) < _FEW or not is_castable(kind, rules):
        return by_the_rules(cells, kind, rules)
    if not is_text(kind):
        if rules.nulls != ("",):
            words = pa.array([word.encode() for word in rules.nulls], pa.binary())
            cells = pc.if_else(pc.is_in(cells.cast(pa.binary()), value_set=words), None, cells)
        if pa.types.is_integer(kind) and pc.any(pc.match_substring(cells, "x", ignore_case=True)).as_py():
            # Arrow takes 0xFF for a number.
            return by_the_rules(cells, kind, rules)
    for way in _ways(kind, rules):
        hard: list[tuple[int, int]] = []
        found = _easy(cells, way, 0, hard)
        if sum(stop - start for start, stop in hard) * 4 <= len(cells) and is_strict(found):
            return _completed(cells, found.view(kind) if way != kind else found, hard, rules)
    return by_the_rules(cells, kind, rules)


def _ways(kind: pa.DataType, rules: CellRules) -> list[pa.DataType]:
    """The types Arrow may be asked for: times that name their zone, and times that do not, are two."""
    zoned = pa.types.is_timestamp(kind) and kind.tz is not None
    return [kind, pa.timestamp(kind.unit)] if zoned and rules.timezone == "UTC" else [kind]


def _completed(cells: pa.Array, found: pa.Array, hard: list[tuple[int, int]], rules: CellRules) -> Cells:
    """Fill in the cells that did not cast."""
    if not hard:
        return Cells(found)
    rows = np.concatenate([np.arange(start, stop) for start, stop in hard])
    exact = by_the_rules(cells.take(pa.array(rows)), found.type, rules)
    mask = np.zeros(len(cells), np.bool_)
    mask[rows] = True
    bad = None
    if exact.bad is not None:
        bad = np.zeros(len(cells), np.bool_)
        bad[rows] = exact.bad
    return Cells(pc.replace_with_mask(found, mask, exact.array), bad, exact.undecodable, exact.rounded)


def _easy(cells: pa.Array, kind: pa.DataType, start: int, hard: list[tuple[int, int]]) -> pa.Array:
    """Cast by halves; small ranges in which a cell does not cast are noted as hard, and null."""
    try:
        return pc.cast(cells, pa.string()).cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        pass
    if len(cells) <= _FEW or sum(stop - begin for begin, stop in hard) > _FEW * 64:
        hard.append((start, start + len(cells)))
        return pa.nulls(len(cells), kind)
    half = len(cells) // 2
    left = _easy(cells[:half], kind, start, hard)
    return pa.concat_arrays([left, _easy(cells[half:], kind, start + half, hard)])


def is_castable(kind: pa.DataType, rules: CellRules) -> bool:
    """Whether what Arrow casts from text is, apart from `is_strict`, what the rules say."""
    types = pa.types
    if types.is_integer(kind) or is_text(kind) or types.is_time(kind):
        return not types.is_string_view(kind)
    if types.is_float32(kind) or types.is_float64(kind) or types.is_decimal128(kind):
        return rules.decimal == "."
    if types.is_date(kind):
        return rules.date_format is None
    return bool(types.is_timestamp(kind) and rules.timestamp_format is None)


def is_strict(array: pa.Array) -> bool:
    """Whether a column Arrow made holds nothing the rules refuse.

    Arrow gives infinity for 1e400, NaN for nan(x), lets decimals grow when it
    scales them up, and knows the year 0, which Python does not.
    """
    types, kind = pa.types, array.type
    if types.is_floating(kind):
        return bool(pc.all(pc.is_finite(array), min_count=0).as_py())
    if types.is_decimal(kind):
        return _fits_decimal(array)
    if types.is_timestamp(kind):
        return _from_year_1(array.view(pa.int64()), times.UNITS[kind.unit] * 86_400)
    if types.is_date32(kind):
        return _from_year_1(array.view(pa.int32()), 1)
    if types.is_date64(kind):
        return _from_year_1(array.view(pa.int64()), 86_400_000)
    if types.is_struct(kind) or types.is_list(kind):
        children = array.flatten() if types.is_struct(kind) else [array.flatten()]
        return all(is_strict(child) for child in children)
    return True


def _from_year_1(values: pa.Array, per_day: int) -> bool:
    # A day of tolerance for zones: what is refused here is only checked again.
    least = pc.min(values).as_py()
    return least is None or least >= (_FIRST_DAY + 1) * per_day


def _fits_decimal(array: pa.Array) -> bool:
    bounds = pc.min_max(array).as_py()
    limit = decimal.Decimal(10) ** (array.type.precision - array.type.scale)
    return all(each is None or abs(each) < limit for each in bounds.values())


def by_the_rules(cells: pa.Array, kind: pa.DataType, rules: CellRules) -> Cells:
    """Type cells the slow way: this is the definition the other ways are held to."""
    if is_bytes(kind):
        array = attempt(cells.cast(pa.binary()), kind)
        return Cells(array, _bad(cells, array, None))
    text, broken = decode(cells)
    undecodable = int(np.count_nonzero(broken)) if broken is not None else 0
    if is_text(kind):
        return Cells(text if kind == text.type else text.cast(kind), broken, undecodable)
    raw, text = text, pc.utf8_trim(text, " \t")
    missing = pc.or_(pc.is_in(raw, value_set=pa.array(rules.nulls, pa.string())), pc.equal(text, ""))
    text = pc.if_else(pc.fill_null(missing, fill_value=True), None, text)
    array, rounded = _typed(text, raw, kind, rules)
    return Cells(array, _bad(text, array, broken), undecodable, rounded)


def _typed(text: pa.Array, raw: pa.Array, kind: pa.DataType, rules: CellRules) -> tuple[pa.Array, int]:
    types = pa.types
    if types.is_null(kind):
        return pa.nulls(len(text)), 0
    if types.is_boolean(kind):
        return _booleans(text, raw, rules), 0
    if types.is_integer(kind):
        good = _matching(text, _SIGNED if types.is_signed_integer(kind) else _UNSIGNED)
        return attempt(pc.utf8_ltrim(good, "+"), kind), 0
    if types.is_floating(kind):
        return _floats(text, kind, rules.decimal), 0
    if types.is_decimal(kind):
        return _decimals(text, kind, rules.decimal), 0
    if types.is_date(kind):
        return times.dates(text, kind, rules.date_format)
    if types.is_time(kind):
        return times.times(text, kind)
    if types.is_duration(kind):
        return times.durations(text, kind)
    return times.timestamps(text, kind, rules.timestamp_format, rules.timezone)


def attempt(array: pa.Array, kind: pa.DataType) -> pa.Array:
    """Cast what can be cast; the rest becomes null.

    Halving costs two casts a bad cell and level, so it is for arrays in which
    bad cells are few: what is plainly not a value is filtered out before.
    """
    try:
        return array.cast(kind)
    except (pa.ArrowInvalid, pa.ArrowNotImplementedError):
        if len(array) == 1:
            return pa.nulls(1, kind)
    half = len(array) // 2
    return pa.concat_arrays([attempt(array[:half], kind), attempt(array[half:], kind)])


def flags(array: pa.Array) -> Flags:
    """Booleans as numpy; null is false."""
    return np.asarray(pc.fill_null(array, fill_value=False).to_numpy(zero_copy_only=False), np.bool_)


def _bad(text: pa.Array, array: pa.Array, undecodable: Flags | None) -> Flags | None:
    bad = None
    if array.null_count > text.null_count:
        bad = flags(pc.and_(pc.is_valid(text), pc.is_null(array)))
    if undecodable is None:
        return bad
    return undecodable if bad is None else bad | undecodable


def _matching(text: pa.Array, pattern: str) -> pa.Array:
    return pc.if_else(pc.match_substring_regex(text, pattern), text, None)


def _booleans(text: pa.Array, raw: pa.Array, rules: CellRules) -> pa.Array:
    true, false = pa.array(rules.true_values, pa.string()), pa.array(rules.false_values, pa.string())
    yes = pc.or_(pc.is_in(raw, value_set=true), pc.is_in(text, value_set=true))
    no = pc.or_(pc.is_in(raw, value_set=false), pc.is_in(text, value_set=false))
    return pc.if_else(pc.and_(pc.is_valid(text), pc.or_(yes, no)), yes, pa.scalar(None, pa.bool_()))


def number_pattern(point: str) -> str:
    """The pattern of a number with a fraction."""
    mark = r"\." if point == "." else ","
    return rf"^[+-]?(?:[0-9]+(?:{mark}[0-9]*)?|{mark}[0-9]+)(?:[eE][+-]?[0-9]+)?$"


def _floats(text: pa.Array, kind: pa.DataType, point: str) -> pa.Array:
    words = pc.match_substring_regex(text, r"^[+-]?(?i:nan|inf|infinity)$")
    good = pc.if_else(pc.or_(words, pc.match_substring_regex(text, number_pattern(point))), text, None)
    if point == ",":
        good = pc.replace_substring(good, ",", ".")
    good = pc.utf8_ltrim(good, "+")
    half = pa.types.is_float16(kind)
    array = attempt(good, pa.float64() if half else kind)
    if half:
        values = pc.fill_null(array, 0.0).to_numpy()
        with np.errstate(over="ignore"):
            narrow = values.astype(np.float16)
        array = pa.array(narrow, mask=flags(pc.is_null(array)))
        too_big = pa.array(np.isinf(narrow))
    else:
        too_big = pc.is_inf(array)
    overflow = flags(pc.and_not(too_big, pc.match_substring_regex(text, _INFINITE)))
    if overflow.any():
        array = _without(array, overflow)
    return one_nan(array)


def _without(array: pa.Array, gone: Flags) -> pa.Array:
    mask = gone | flags(pc.is_null(array))
    values = array.to_numpy(zero_copy_only=False)
    return pa.array(values, type=array.type, mask=mask)


def one_nan(array: pa.Array) -> pa.Array:
    """Give every NaN the same bits (decision 7)."""
    if pa.types.is_float16(array.type):
        values = array.to_numpy(zero_copy_only=False)
        nan = np.isnan(values.astype(np.float32)) & ~flags(pc.is_null(array))
        if not nan.any():
            return array
        values = np.where(nan, np.float16("nan"), values).astype(np.float16)
        return pa.array(values, mask=flags(pc.is_null(array)))
    nan = pc.is_nan(array)
    if not pc.any(nan).as_py():
        return array
    return pc.if_else(pc.fill_null(nan, fill_value=False), pa.scalar(float("nan"), array.type), array)


def _decimals(text: pa.Array, kind: pa.DataType, point: str) -> pa.Array:
    good = _matching(text, number_pattern(point))
    if point == ",":
        good = pc.replace_substring(good, ",", ".")
    powers = pc.match_substring_regex(good, "[eE]")
    if pc.any(powers).as_py():
        good = pa.array([_plain(t) if t and "e" in t.lower() else t for t in good.to_pylist()], pa.string())
    room, scale = kind.precision - kind.scale, kind.scale
    fits = rf"^[+-]?0*[0-9]{{0,{max(room, 0)}}}(?:\.[0-9]{{0,{max(scale, 0)}}}0*)?$"
    good = _matching(good, fits)
    good = pc.replace_substring_regex(good, rf"\.([0-9]{{0,{max(scale, 0)}}})[0-9]*$", r".\1")
    good = pc.replace_substring_regex(good, r"^([+-]?)0*([0-9])", r"\1\2")
    good = pc.utf8_ltrim(pc.utf8_rtrim(good, "."), "+")
    return attempt(good, kind)


def _plain(text: str) -> str | None:
    """Write a number without a power of ten, if it can fit at all."""
    value = decimal.Decimal(text)
    if value and (value.adjusted() > 80 or value.adjusted() < -80):
        return None
    return format(value, "f") if value else "0"
