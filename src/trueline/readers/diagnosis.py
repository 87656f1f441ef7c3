"""What many bad cells have in common: a wrong separator, encoding, header or format."""

from __future__ import annotations

import re

from trueline.readers.batch import EXTRA, LINE, BadCounts

_COMMA = re.compile(r"^\s*[+-]?[0-9][0-9.]*,[0-9]+\s*$")
_FEW = 10
_DAY = re.compile(r"^\s*[0-9]{1,2}[./-][0-9]{1,2}[./-][0-9]{2,4}\b")


def looks_wrong(counts: BadCounts, *, share: float = 0.5) -> str | None:
    """Say what is probably wrong when more than a share of the rows is bad, or the first row is a header.

    >>> looks_wrong(BadCounts(rows=10, cells={"b": 10}, samples={"b": ""}, short=10))
    'rows have too few cells (10 of 10): is the separator right?'
    >>> looks_wrong(BadCounts(rows=10, cells={"b": 1}))
    """
    if not counts.rows:
        return None
    for test in (_separator, _lines, _encoding, _nothing, _header, _columns):
        if found := test(counts, share):
            return found
    return None


def _separator(counts: BadCounts, share: float) -> str | None:
    if counts.short > share * counts.rows:
        return f"rows have too few cells ({counts.short} of {counts.rows}): is the separator right?"
    extra = counts.cells.get(EXTRA, 0)
    if extra > share * counts.rows:
        return (
            f"rows have too many cells ({extra} of {counts.rows}): are separator, quote and header "
            "right, and does the schema name all columns?"
        )
    return None


def _lines(counts: BadCounts, share: float) -> str | None:
    broken = counts.cells.get(LINE, 0)
    if broken > share * counts.rows:
        return f"{broken} of {counts.rows} records are not JSON objects: is the file JSON, and is it whole?"
    return None


def _encoding(counts: BadCounts, share: float) -> str | None:
    if counts.undecodable and counts.undecodable > share * counts.total:
        return (
            f"{counts.undecodable} cells are not valid in the encoding given: "
            "give encoding=, for example 'cp1252'"
        )
    return None


def _nothing(counts: BadCounts, _: float) -> str | None:
    # A few rows may well have no value; columns of other names say more.
    if counts.columns and len(counts.empty) == len(counts.columns) and (counts.rows > _FEW or counts.unknown):
        known = ", ".join(counts.unknown[:6])
        return "no cell has a value" + (f": the file has {known}; are the names right?" if known else "")
    return None


def _header(counts: BadCounts, _: float) -> str | None:
    bad = {name: count for name, count in counts.cells.items() if name not in {EXTRA, LINE}}
    if counts.first_row and counts.first_row == sum(bad.values()) and counts.rows > 1:
        words = [counts.samples.get(name, "") for name in bad]
        if all(word and not any(mark.isdigit() for mark in word) for word in words):
            return f"the first row looks like a header ({', '.join(words[:4])}): give header=True"
    return None


def _columns(counts: BadCounts, share: float) -> str | None:
    worst = max(counts.cells, key=lambda name: counts.cells[name], default=None)
    if worst is None or counts.cells[worst] <= share * counts.rows:
        return None
    text = counts.samples.get(worst, "")
    found = (
        f"column {worst!r} is bad in {counts.cells[worst]} of {counts.rows} rows, for example {text[:40]!r}"
    )
    if _COMMA.match(text):
        return f"{found}: give decimal=','"
    if _DAY.match(text):
        return f"{found}: give date_format=, for example '%d.%m.%Y'"
    return f"{found}: is its type right?"
