"""Telling new columns from parameters among the keywords of one call."""

from __future__ import annotations

import re
from collections.abc import Mapping
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
    names = _parameters(texts, keywords)
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


def _parameters(texts: Mapping[str, str], keywords: Mapping[str, object]) -> set[str]:
    """Find the keywords that texts of columns name; what a parameter's own text names does not count."""
    named = {name: named_in(value) & set(keywords) for name, value in keywords.items()}
    found = set().union(*(named_in(text) for text in texts.values())) & set(keywords)
    while True:
        left = [name for name in keywords if name not in found]
        columns = [name for name in left if not any(name in named[other] for other in left)]
        more = found.union(*(named[name] for name in columns))
        if more != found:
            found = more
        elif len(columns) == len(left):
            return found
        else:
            both = sorted(set(left) - set(columns))
            raise InputError(
                f"{' and '.join(both)} name each other: which is the column?",
                remedy="give the columns as a mapping, the parameters as keywords",
                code="UnknownParameter",
            )
