"""Types from a sample: the narrowest that lose nothing of what the sample shows."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from trueline.readers import times
from trueline.readers.cells import convert, decode
from trueline.readers.rules import CellRules

BOOLEAN = r"^(?:true|True|TRUE|false|False|FALSE)$"
# A leading zero or plus carries meaning (a postcode, a telephone number): text.
INTEGER = "^(?:0|-?[1-9][0-9]*)$"
EXACT = 2**53


def guess(sample: Sequence[pa.Array], rules: CellRules) -> pa.DataType:
    """The type of a column, from the cells of its first rows.

    >>> guess([pa.array(["1", "2.5", None])], CellRules())
    DataType(double)
    >>> guess([pa.array(["1", "007"])], CellRules())
    DataType(string)
    """
    cells = pa.concat_arrays([decode(part)[0] for part in sample]) if sample else pa.nulls(0, pa.string())
    cells = cells.filter(pc.invert(pc.is_in(cells, value_set=pa.array([*rules.nulls, None], pa.string()))))
    text = pc.utf8_trim(cells, " \t")
    text = text.filter(pc.not_equal(text, ""))
    if not len(text):
        return pa.string()
    if _all(text, BOOLEAN):
        return pa.bool_()
    return number(text, rules) or moment(text, rules) or pa.string()


def number(text: pa.Array, rules: CellRules) -> pa.DataType | None:
    """int64, float64, or None where the texts are not all numbers that either can hold."""
    whole = pc.match_substring_regex(text, INTEGER)
    integers = text.filter(whole)
    if _fits(integers, pa.int64(), rules):
        if len(integers) == len(text):
            return pa.int64()
        fraction = fraction_pattern(rules)
        words = pc.match_substring_regex(text, r"^-?(?i:nan|inf|infinity)$")
        if not pc.all(pc.or_(words, pc.match_substring_regex(text, fraction))).as_py():
            return None
        values = convert(integers, pa.int64(), rules).array.to_numpy(zero_copy_only=False)
        exact = not len(values) or (values.max() <= EXACT and values.min() >= -EXACT)
        return pa.float64() if exact and _fits(text, pa.float64(), rules) else None
    return None


def fraction_pattern(rules: CellRules) -> str:
    """The pattern of a number with a fraction or a power, without a leading zero."""
    mark = r"\." if rules.decimal == "." else ","
    return rf"^-?(?:(?:0|[1-9][0-9]*)?{mark}[0-9]*|[1-9][0-9]*|0)(?:[eE][+-]?[0-9]+)?$"


def moment(text: pa.Array, rules: CellRules) -> pa.DataType | None:
    """A date or a timestamp, or None where not every text is one."""
    if _fits(text, pa.date32(), rules):
        return pa.date32()
    zoned, fine = times.zones(text, rules.timestamp_format)
    if zoned not in {0, len(text)}:
        return None
    kind = pa.timestamp("ns" if fine else "us", "UTC" if zoned else None)
    return kind if _fits(text, kind, rules) else None


def _fits(text: pa.Array, kind: pa.DataType, rules: CellRules) -> bool:
    found = convert(text, kind, rules)
    return found.bad is None and not found.rounded and not np.count_nonzero(found.array.is_null())


def _all(text: pa.Array, pattern: str) -> bool:
    return bool(pc.all(pc.match_substring_regex(text, pattern)).as_py())
