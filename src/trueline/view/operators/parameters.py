"""Telling new columns from parameters among the keywords of one call."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Final

from trueline.errors import InputError

# What is quoted or a comment holds no parameter; `::` is none either.
_PARTS: Final = re.compile(
    r"""'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*"|`(?:[^`]|``)*`|--[^\n]*|/\*.*?\*/|::|:([A-Za-z_]\w*)""",
    re.DOTALL,
)


def named_in(text: object) -> set[str]:
    """Return the parameters a text names.

    >>> sorted(named_in("x > :a and s = ':b' -- :c"))
    ['a']
    """
    found = _PARTS.finditer(text) if isinstance(text, str) else ()
    return {match[1] for match in found if match[1]}


def told_apart(
    texts: Mapping[str, str], keywords: Mapping[str, object]
) -> tuple[dict[str, str], dict[str, object]]:
    """Return what is to be computed, by name, and the parameters.

    A keyword that some text names as `:keyword` is a parameter, whatever its
    value; every other one is a new column, and its value has to be the text
    of an expression. A number is none: it might be a parameter misspelt.

    >>> told_apart({}, {"y": "x + :a", "a": 1})
    ({'y': 'x + :a'}, {'a': 1})
    """
    names = _named(texts.values()) | _named(
        value for name, value in keywords.items() if name not in _named(keywords.values())
    )
    parameters = {name: value for name, value in keywords.items() if name in names}
    columns: dict[str, str] = {}
    for name, text in [*texts.items(), *((n, v) for n, v in keywords.items() if n not in names)]:
        if not isinstance(text, str):
            raise InputError(
                f"{name} is {text!r:.80}, and no expression names :{name}",
                remedy=f'if it is a parameter, write :{name} in an expression; if a column, {name}="…"',
                code="UnknownParameter",
                parameter=name,
            )
        if name in columns:
            raise InputError(f"two columns are named {name!r}", remedy="name each once", code="NamedTwice")
        columns[name] = text
    return columns, parameters


def _named(texts: Iterable[object]) -> set[str]:
    return set().union(*(named_in(text) for text in texts))
