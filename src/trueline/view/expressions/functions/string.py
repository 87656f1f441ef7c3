"""Functions of text; characters are Unicode's code points."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline import types as t
from trueline.errors import InputError
from trueline.kernel.vectors import items_at, sizes
from trueline.view.expressions.functions.registry import function
from trueline.view.expressions.operands import Array, Operand, as_array


@function(
    "lower", "text", says="in lower case", spark="letter by letter: `İ` is one letter there, two in Java"
)
def lower(text: Array) -> Array:
    """Write in lower case."""
    return pc.utf8_lower(text)


@function("upper", "text", says="in upper case", spark="letter by letter: `ß` stays, Java writes `SS`")
def upper(text: Array) -> Array:
    """Write in upper case."""
    return pc.utf8_upper(text)


@function("trim", "text", says="without spaces at both ends")
def trim(text: Array) -> Array:
    """Take spaces away."""
    return pc.utf8_trim(text, " ")


@function("ltrim", "text", says="without spaces at the start")
def ltrim(text: Array) -> Array:
    """Take spaces at the start away."""
    return pc.utf8_ltrim(text, " ")


@function("rtrim", "text", says="without spaces at the end")
def rtrim(text: Array) -> Array:
    """Take spaces at the end away."""
    return pc.utf8_rtrim(text, " ")


@function("length", "text", says="how many characters it has")
def length(text: Array) -> Array:
    """Count the characters."""
    return pc.utf8_length(text).cast(pa.int64())


@function("reverse", "text", says="back to front")
def reverse(text: Array) -> Array:
    """Turn it around."""
    return pc.utf8_reverse(text)


@function(
    "substring",
    "text",
    "whole",
    "whole?",
    says="from a place on (counted from 1, from the end if below 0), so many characters of it",
)
def substring(text: Array, start: Array, count: Array | None = None) -> Array:
    """Cut a part out."""
    first, many = _same(start), None if count is None else _same(count)
    if first is None or (count is not None and many is None):
        return _each(_part, text, start, *([] if count is None else [count]))
    begin = first - 1 if first > 0 else first
    if many is None:
        return pc.utf8_slice_codeunits(text, begin)
    stop = begin + max(many, 0)
    if many <= 0:
        return pc.if_else(pc.is_valid(text), "", text)
    return pc.utf8_slice_codeunits(text, begin, stop if begin >= 0 or stop < 0 else None)


def _part(text: str, start: int, count: int | None = None) -> str:
    begin = start - 1 if start > 0 else len(text) + start if start < 0 else 0
    stop = len(text) if count is None else begin + max(count, 0)
    return text[max(0, begin) : max(0, stop)]


def _same(numbers: Array) -> int | None:
    """The one number that all rows have, if they do."""
    if not len(numbers) or numbers.null_count:
        return None
    values = np.asarray(numbers)
    first = int(values[0])
    return first if abs(first) < 1 << 31 and bool((values == values[0]).all()) else None


def _each(run: Callable[..., Any], text: Array, *others: Array) -> Array:
    """Row by row, for what Arrow has no kernel for: some 3 M rows a second."""
    rows = zip(text.to_pylist(), *(other.to_pylist() for other in others), strict=True)
    return pa.array([None if None in row else run(*row) for row in rows], pa.string())


@function("left", "text", "const whole", says="the first characters")
def left(text: Array, count: int) -> Array:
    """Cut the beginning out."""
    return pc.utf8_slice_codeunits(text, 0, min(max(count, 0), 1 << 30))


@function("right", "text", "const whole", says="the last characters")
def right(text: Array, count: int) -> Array:
    """Cut the end out."""
    if count <= 0:
        return pc.if_else(pc.is_valid(text), "", text)
    return pc.utf8_slice_codeunits(text, -min(count, 1 << 30))


@function(
    "concat",
    "text",
    "text*",
    says="one after another, null if one is; also `a || b`",
    spark="takes text only, Spark makes text of everything",
)
def concat(*texts: Array) -> Array:
    """Join texts."""
    return pc.binary_join_element_wise(*texts, "")


@function(
    "concat_ws",
    "const text",
    "text*",
    says="those that are there, with a text between them",
    spark="takes text only, Spark makes text of everything",
)
def concat_ws(between: str, *texts: Array) -> Array:
    """Join texts with something between them."""
    if not texts:
        return pa.array([""])
    # Arrow's own way of skipping loses the rows in which all are null.
    parts = [pc.fill_null(pc.binary_join_element_wise(between, text, ""), "") for text in texts]
    return pc.utf8_slice_codeunits(pc.binary_join_element_wise(*parts, ""), len(between))


@function("replace", "text", "pattern", "pattern", says="every occurrence of a text replaced by another")
def replace(text: Array, old: Operand, new: Operand) -> Array:
    """Replace text in text."""
    if (
        not isinstance(old, pa.Scalar)
        or not isinstance(new, pa.Scalar)
        or not (old.is_valid and new.is_valid)
    ):
        rows = len(text)
        return _each(
            lambda a, b, c: a.replace(b, c) if b else a, text, as_array(old, rows), as_array(new, rows)
        )
    if not old.as_py():
        return text
    return pc.replace_substring(text, old.as_py(), new.as_py())


def _found(text: Array, part: Operand, kernel: Any, python: Callable[[str, str], bool]) -> Array:
    if isinstance(part, pa.Scalar) and part.is_valid:
        return kernel(text, part.as_py())
    rows = zip(text.to_pylist(), as_array(part, len(text)).to_pylist(), strict=True)
    return pa.array([None if None in row else python(*row) for row in rows], pa.bool_())


@function("starts_with", "text", "pattern", says="whether it begins so")
def starts_with(text: Array, part: Operand) -> Array:
    """Say whether it begins with a text."""
    return _found(text, part, pc.starts_with, str.startswith)


@function("ends_with", "text", "pattern", says="whether it ends so")
def ends_with(text: Array, part: Operand) -> Array:
    """Say whether it ends with a text."""
    return _found(text, part, pc.ends_with, str.endswith)


@function("contains", "text", "pattern", says="whether a text is in it")
def contains(text: Array, part: Operand) -> Array:
    """Say whether a text is in it."""
    return _found(text, part, pc.match_substring, str.__contains__)


@function(
    "instr",
    "text",
    "const text",
    says="where a text is in it for the first time, counted from 1; 0 if nowhere",
)
def instr(text: Array, part: str) -> Array:
    """Find a text in it."""
    if not part:
        return pc.if_else(pc.is_valid(text), pa.scalar(1, pa.int64()), None)
    before = pc.list_element(pc.split_pattern(text, part, max_splits=1), 0)
    place = pc.add(pc.utf8_length(before).cast(pa.int64()), 1)
    return pc.if_else(pc.match_substring(text, part), place, 0)


@function(
    "rlike",
    "text",
    "const text",
    says="whether a regular expression fits somewhere in it; also `x rlike 'a+'`",
    spark="RE2's syntax: no look-around, no back references",
)
def rlike(text: Array, pattern: str) -> Array:
    """Look for a regular expression."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)  # it is looked at only where there are rows
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{pattern!r:.80} is not a regular expression: {error}",
            remedy="write one in RE2's syntax",
            code="BadConstant",
        ) from None
    return pc.match_substring_regex(text, pattern)


@function(
    "lpad",
    "text",
    "const whole",
    "const text?",
    says="filled up at the start to so many characters, or cut to them",
)
def lpad(text: Array, width: int, filling: str = " ") -> Array:
    """Fill up at the start."""
    return _padded(text, width, filling, pc.utf8_lpad, lambda a, more: more + a)


@function(
    "rpad",
    "text",
    "const whole",
    "const text?",
    says="filled up at the end to so many characters, or cut to them",
)
def rpad(text: Array, width: int, filling: str = " ") -> Array:
    """Fill up at the end."""
    return _padded(text, width, filling, pc.utf8_rpad, lambda a, more: a + more)


def _padded(text: Array, width: int, filling: str, kernel: Any, join: Callable[[str, str], str]) -> Array:
    wide = min(max(width, 0), 1 << 20)
    cut = pc.utf8_slice_codeunits(text, 0, wide)
    if len(filling) == 1:
        return kernel(cut, wide, filling)
    if not filling:
        return cut
    return _each(lambda a: join(a, (filling * wide)[: wide - len(a)]), cut)


@function(
    "split",
    "text",
    "const text",
    says="a vector of the parts between a text",
    spark="the separator is text, Spark's a regular expression",
)
def split(text: Array, separator: str) -> Array:
    """Cut at every occurrence of a text."""
    if separator:
        return pc.split_pattern(text, separator)
    return pa.array(
        [None if each is None else list(each) for each in text.to_pylist()], pa.list_(pa.string())
    )


@function(
    "split_part",
    "text",
    "const text",
    "const whole",
    says="the part of a number, counted from 1, from the end if below 0; empty if there is none",
)
def split_part(text: Array, separator: str, number: int) -> Array:
    """Return one part."""
    parts = split(text, separator) if separator else _alone(text)
    count = np.asarray(pc.fill_null(sizes(parts), 0), np.int64)
    places = np.full(len(text), number - 1) if number > 0 else count + number
    inside = (places >= 0) & (places < count) & (number != 0)
    found = items_at(parts, t.vector(t.text), np.where(inside, places, 0))
    empty = pc.if_else(pc.is_valid(text), "", None)
    return pc.if_else(pa.array(inside), found, empty) if number else pa.nulls(len(text), pa.string())


def _alone(text: Array) -> Array:
    return pa.array([None if each is None else [each] for each in text.to_pylist()], pa.list_(pa.string()))
