"""What users of Python, pandas and Spark write in an expression, and how the language has it."""

from __future__ import annotations

import re
from typing import Final

# Functions of others: what to write.
FUNCTIONS: Final = {
    "array_size": "size(v)",
    "bool": "cast(x as boolean)",
    "cardinality": "size(v)",
    "charindex": "instr(s, 'part')",
    "col": "the name alone: x, or `unit price`",
    "date": "cast(s as date), or date'2026-11-13'",
    "date_diff": "datediff(end, start)",
    "date_part": "extract(year from t), or year(t)",
    "datepart": "extract(year from t), or year(t)",
    "datetime": "cast(s as timestamp), or timestamp'2026-11-13 09:30:00'",
    "datetrunc": "date_trunc('month', t)",
    "double": "cast(x as double)",
    "explode": 'view.explode("v"): it makes several rows of one',
    "fillna": "coalesce(x, 0)",
    "fill_null": "coalesce(x, 0)",
    "find": "instr(s, 'part')",
    "float": "cast(x as double)",
    "format_datetime": "date_format(t, '%Y-%m-%d')",
    "from_unixtime": "timestamp_seconds(n)",
    "iff": "if(c, a, b)",
    "iif": "if(c, a, b)",
    "int": "cast(x as int)",
    "is_nan": "isnan(x)",
    "is_not_null": "x is not null",
    "is_null": "x is null",
    "isna": "x is null",
    "isin": "x in (1, 2), or x in :wanted",
    "lcase": "lower(s)",
    "len": "length(s) for text, size(v) for a vector",
    "lit": "the value alone: 1, 'text', or a parameter, :value",
    "locate": "instr(s, 'part')",
    "notna": "x is not null",
    "nvl2": "if(x is not null, a, b)",
    "position": "instr(s, 'part')",
    "regexp_substr": "regexp_extract(s, 'a+', 0)",
    "str": "cast(x as text)",
    "strftime": "date_format(t, '%Y-%m-%d')",
    "string": "cast(x as text)",
    "strlen": "length(s)",
    "strpos": "instr(s, 'part')",
    "strptime": "to_timestamp(s, '%d.%m.%Y %H:%M')",
    "substring_index": "split_part(s, ',', 1)",
    "timestamp": "cast(s as timestamp), or timestamp'2026-11-13 09:30:00'",
    "to_char": "date_format(t, '%Y-%m-%d'), or cast(x as text)",
    "to_number": "cast(s as double)",
    "to_string": "cast(x as text)",
    "trunc": "floor(x) for a number, date_trunc('month', t) for a time",
    "typeof": "view.schema: types are known before a row is read",
    "ucase": "upper(s)",
}
_CAST: Final = re.compile(r"([\w.`]+)\s*::\s*(\w+(?:\([\d, ]*\))?)")
_METHOD: Final = re.compile(r"\b([^\W\d]\w*)\s*\.\s*(\w+)\s*\(")
# Operators of others, in the order they are looked for.
_OPERATORS: Final = (
    ("&&", "and"),
    ("**", "power(x, 2)"),
    ("//", "x div 2"),
    ("=~", "x rlike 'a+'"),
    ("!~", "not x rlike 'a+'"),
    ("~", "x rlike 'a+', or not"),
    ("?", "if(c, a, b), or a parameter: :name"),
)


# Parts that the parser has a class for; by its name, since loading the parser takes 0.3 s.
_PARTS: Final = {
    "Concat": "a quote inside text is written \\', as in 'O\\'Hare'; better, give a parameter: :name",
    "BitwiseAnd": "write and between conditions, each in brackets",
    "BitwiseOr": "write or between conditions, each in brackets",
    "BitwiseXor": "write power(x, 2)",
    "Pow": "write power(x, 2)",
    "BitwiseNot": "write not",
    "Is": "write isnan(x) for NaN, x is null for null",
    "Window": 'use view.window(by="k", n="row_number()") or view.window(2, s="sum(x)")',
}


def of_part(found: object, text: str) -> str | None:
    """Say what to write for a part that the parser knows and the language has otherwise; None if unknown."""
    kind = type(found).__name__
    if kind in ("Cast", "TryCast"):
        cast = _CAST.search(text)
        return f"write cast({cast[1]} as {cast[2]})" if cast else "write cast(x as text)"
    if kind == "Dot":
        method = _METHOD.search(text)
        shown = f"{method[2]}({method[1]})" if method else "lower(s)"
        return f"there are no methods: write {shown}"
    if kind == "BitwiseNot" and "=~" in text:
        return of_text(text)
    return _PARTS.get(kind)


def of_text(text: str) -> str | None:
    """Say what to write for a text that cannot be read at all; None if it is not known."""
    plain = re.sub(r"'(?:[^'\\]|\\.)*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`", "", text)
    for sign, instead in _OPERATORS:
        if sign in plain:
            return f"instead of {sign} write {instead}"
    if "->" in plain:
        return "a view has plain columns: give what is inside a nested value a column of its own before"
    if text.count("'") % 2:
        return _PARTS["Concat"]
    if re.search(r"\blambda\b", plain):
        return 'write the expression alone, as in "x + 1"'
    return None


# --- forms of dates -------------------------------------------------------------------------------

_LETTERS: Final = {
    "yyyy": "%Y",
    "uuuu": "%Y",
    "y": "%Y",
    "yy": "%y",
    "MMMM": "%B",
    "MMM": "%b",
    "MM": "%m",
    "M": "%m",
    "dd": "%d",
    "d": "%d",
    "HH": "%H",
    "H": "%H",
    "hh": "%I",
    "h": "%I",
    "mm": "%M",
    "m": "%M",
    "ss": "%S",
    "s": "%S",
    "a": "%p",
    "X": "%z",
    "XX": "%z",
    "XXX": "%z",
    "xxx": "%z",
    "Z": "%z",
}
_LETTER: Final = re.compile(r"'((?:[^']|'')*)'|([A-Za-z])\2*|[^A-Za-z']+")


def percent_form(form: str) -> str | None:
    """Return a form in Spark's letters as one with percent signs; None if it is not one, or has no such form.

    >>> (
    ...     percent_form("dd.MM.yyyy HH:mm:ss.SSS"),
    ...     percent_form("yyyy-MM-dd'T'HH:mm"),
    ...     percent_form("%d.%m.%Y"),
    ... )
    ('%d.%m.%Y %H:%M:%S.%f', '%Y-%m-%dT%H:%M', None)
    """
    if "%" in form or not re.search(r"[yuMdHhms]", form):
        return None
    found = ""
    for part in _LETTER.finditer(form):
        letters = part[0]
        if part[1] is not None:
            found += part[1].replace("''", "'") or "'"
        elif part[2] is None:
            found += letters
        elif set(letters) == {"S"}:
            found += "%f"
        elif letters in _LETTERS:
            found += _LETTERS[letters]
        else:
            return None
    return found
