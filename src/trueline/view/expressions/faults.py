"""Errors of text that cannot be read, in the words of that text: what is wrong, where, a caret under it.

What a parser says of itself (its classes, what it made of the text) is never shown.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

from sqlglot import expressions as sql

# So much of a line is shown on each side of the place.
_AROUND: Final = 60
_LONGEST: Final = 80
_MISSING: Final = re.compile(r"^(?:Required|Expected|Expecting)\b")
_BRACKETS: Final = {"(": ")", "[": "]", "{": "}"}
# What people call things that the parser finds and the language has not.
_CALLED: Final[dict[type, str]] = {
    sql.Select: "a query",
    sql.Subquery: "a query",
    sql.Exists: "exists",
    sql.Window: "a window (over)",
    sql.Star: "*",
    sql.Lambda: "a lambda (->)",
    sql.JSONExtract: "the operator ->",
    sql.BitwiseRightShift: "the operator >>",
    sql.BitwiseLeftShift: "the operator <<",
    sql.AtTimeZone: "at time zone",
}


class Spot(NamedTuple):
    """A place in a text: line and column from 1, and how many characters it has there."""

    line: int
    column: int
    length: int = 1


def spot_at(text: str, start: int, stop: int) -> Spot:
    """Return the place of the characters [start, stop) of a text."""
    before = text[:start]
    line_end = text.find("\n", start)
    stop = min(stop, len(text) if line_end < 0 else line_end)
    return Spot(before.count("\n") + 1, start - before.rfind("\n"), max(1, stop - start))


def pointed(text: str, spot: Spot) -> str:
    r"""Return the line of a place with a caret under it, to be put below a message.

    >>> print(pointed("price >\n  and x", Spot(2, 3, 3)))
    <BLANKLINE>
          and x
          ^^^
    """
    lines = text.split("\n")
    if not 1 <= spot.line <= len(lines):
        return ""
    line = lines[spot.line - 1].replace("\t", " ").rstrip("\r")
    at = min(spot.column - 1, len(line))
    first, last = max(0, at - _AROUND), at + max(_AROUND, min(spot.length, _LONGEST))
    shown = ("…" if first else "") + line[first:last] + ("…" if last < len(line) else "")
    indent = at - first + (1 if first else 0)
    width = max(1, min(spot.length, last - at))
    return f"\n    {shown}\n    {' ' * indent}{'^' * width}"


def placed(spot: Spot | None) -> str:
    """Say where a place is."""
    return "" if spot is None else f" (line {spot.line}, column {spot.column})"


def fault_of(text: str, error: Exception) -> tuple[str, Spot | None]:
    """Say what a parser could not read, in words about the text, and where that is."""
    if (opened := unclosed(text)) is not None:
        what = {"'": "a quote", '"': "a quote", "`": "a back-tick", "/*": "a comment"}[opened[0]]
        return f"{what} is not closed", spot_at(text, opened[1], opened[1] + len(opened[0]))
    if isinstance(error, RecursionError):
        return "it is nested too deeply", None
    if (bracket := _unclosed_bracket(text)) is not None:
        return f"{_BRACKETS[text[bracket]]!r} is missing", spot_at(text, bracket, bracket + 1)
    details = (getattr(error, "errors", None) or [{}])[0]
    found = _spot(text, details)
    if found is None:
        return "it cannot be understood", None
    spot, token = found
    if not _MISSING.match(str(details.get("description"))):
        return f"{token!r:.80} is not expected here", spot
    is_last = not text[_offset(text, spot) + len(token) :].strip() and token not in _BRACKETS.values()
    return f"something is missing {'after' if is_last else 'before'} {token!r:.80}", spot


def _spot(text: str, details: dict[str, Any]) -> tuple[Spot, str] | None:
    line, end, token = details.get("line"), details.get("col"), details.get("highlight")
    if not isinstance(line, int) or not isinstance(end, int) or not isinstance(token, str) or not token:
        return None
    # Parsers count to the end of a word.
    spot = Spot(line, max(1, end - len(token) + 1), len(token))
    return (spot, token) if text[_offset(text, spot) :].startswith(token) else None


def _offset(text: str, spot: Spot) -> int:
    lines = text.split("\n")
    return sum(len(line) + 1 for line in lines[: spot.line - 1]) + spot.column - 1


_PIECE: Final = re.compile(
    r"""--[^\n]*|/\*.*?\*/|'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`
    |(?P<open>/\*|['"`])|(?P<bracket>[(\[{)\]}])|.""",
    re.DOTALL | re.VERBOSE,
)


def unclosed(text: str) -> tuple[str, int] | None:
    """Return the quote or comment that is not closed, and where it begins.

    >>> unclosed("x = 'a"), unclosed("x = 'a' -- it's")
    (("'", 4), None)
    """
    return next(((m["open"], m.start()) for m in _PIECE.finditer(text) if m["open"]), None)


def _unclosed_bracket(text: str) -> int | None:
    """Return the place of the innermost bracket that is not closed; None if brackets do not fit at all."""
    opened: list[int] = []
    for found in _PIECE.finditer(text):
        bracket = found["bracket"]
        if bracket in _BRACKETS:
            opened.append(found.start())
        elif bracket is not None:
            if not opened or _BRACKETS[text[opened[-1]]] != bracket:
                return None
            opened.pop()
    return opened[-1] if opened else None


def part_of(text: str, node: Any) -> tuple[str, Spot | None]:
    """Name a part of a text that the parser has understood: as people call it, or as it is written."""
    marks = [each.meta for each in node.walk() if "start" in each.meta]
    starts = [mark["start"] for mark in marks if isinstance(mark["start"], int)]
    if node.parent is None:
        # All of the text, whatever the parser has kept of it.
        starts, stop = [len(text) - len(text.lstrip())], len(text.rstrip())
    else:
        stop = max((mark["end"] + 1 for mark in marks), default=0)
    if not starts:
        return _CALLED.get(type(node), "this"), None
    start = min(starts)
    written = text[start:stop]
    if written.count("(") > written.count(")") and (end := text.find(")", stop)) >= 0:
        stop, written = end + 1, text[start : end + 1]
    return _CALLED.get(type(node), f"`{written:.80}`"), spot_at(text, start, stop)
