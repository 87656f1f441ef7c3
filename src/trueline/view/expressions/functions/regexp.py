"""Functions of regular expressions: RE2's, whose time goes by the length of the text for any pattern."""

from __future__ import annotations

import re
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError
from trueline.view.expressions.functions.registry import function
from trueline.view.expressions.operands import Array

_RE2: Final = "RE2's syntax: no look-around, no back references"
# What a pattern is made of, as far as brackets count: escapes, quoted text, classes, and brackets.
_PART: Final = re.compile(
    r"\\Q.*?(?:\\E|$)|\\.|\[\^?\]?(?:\[:\^?\w+:\]|\\.|[^\]\\])*\]|\((\?P?<\w+>|\?)?|.", re.DOTALL
)
_MOST: Final = 9


def checked(pattern: str) -> str:
    """Return a pattern that can be compiled; others are an error, also where there are no rows."""
    try:
        pc.match_substring_regex(pa.array([""]), pattern)
    except pa.ArrowInvalid as error:
        raise InputError(
            f"{pattern!r:.80} is not a regular expression: {error}",
            remedy="write one in RE2's syntax, which has neither look-around nor back references",
            code="BadConstant",
        ) from None
    return pattern


def groups(pattern: str) -> list[int]:
    r"""Return where the groups of a pattern begin that can be referred to.

    >>> groups(r"(a)(?:b)\((?P<name>c)[(]"), groups("a")
    ([0, 10], [])
    """
    return [
        part.start()
        for part in _PART.finditer(pattern)
        if part[0].startswith("(") and (part[1] is None or part[1].endswith(">"))
    ]


@function(
    "rlike",
    "text",
    "const text",
    says="whether a regular expression fits somewhere in it; also `x rlike 'a+'`",
    spark=_RE2,
)
def rlike(text: Array, pattern: str) -> Array:
    """Look for a regular expression."""
    return pc.match_substring_regex(text, checked(pattern))


@function(
    "regexp_extract",
    "text",
    "const text",
    "const whole?",
    says="what a group of a regular expression fits (the first; 0: all of it), empty if it fits nowhere",
    spark=_RE2,
)
def regexp_extract(text: Array, pattern: str, group: int = 1) -> Array:
    """Return what a group fits, at the first place where the pattern does."""
    found = groups(checked(pattern))
    if not 0 <= group <= len(found):
        raise InputError(
            f"{pattern!r:.80} has {len(found)} groups, and group {group} is asked for",
            remedy="write brackets around the part that is meant, or 0 for all that fits",
            code="BadConstant",
        )
    # One group is named and the others are not kept, which is how Arrow is told what to return.
    parts, last = [], 0
    for number, start in enumerate(found, 1):
        opened = _PART.match(pattern, start)
        assert opened is not None
        parts += [pattern[last:start], "(?P<found>" if number == group else "(?:"]
        last = opened.end()
    named = "".join([*parts, pattern[last:]])
    struct = pc.extract_regex(text, named if group else f"(?P<found>{named})")
    return pc.if_else(pc.is_valid(text), pc.fill_null(pc.struct_field(struct, [0]), ""), None)


@function(
    "regexp_replace",
    "text",
    "const text",
    "const text",
    says="every place where a regular expression fits replaced; `$1` stands for its first group",
    spark=_RE2,
)
def regexp_replace(text: Array, pattern: str, replacement: str) -> Array:
    """Replace what a regular expression fits."""
    return pc.replace_substring_regex(text, checked(pattern), _rewritten(replacement, len(groups(pattern))))


def _rewritten(replacement: str, count: int) -> str:
    """Write a replacement with `$1`, as Spark has it, the way RE2 has it."""
    found, at = "", 0
    while at < len(replacement):
        letter, after = replacement[at], replacement[at + 1 : at + 2]
        if letter == "\\" and after and not after.isdigit():
            found += "\\\\" if after == "\\" else after
            at += 2
        elif letter == "$" and after.isdigit() and int(after) <= min(count, _MOST):
            found += f"\\{after}"
            at += 2
        elif letter in "$\\":
            raise InputError(
                f"the replacement {replacement!r:.80} has {letter + after!r}, and the pattern {count} groups",
                remedy="write $1 for a group (up to $9), \\\\$ for a dollar sign",
                code="BadConstant",
            )
        else:
            found += letter
            at += 1
    return found
