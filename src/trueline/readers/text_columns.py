"""Columns that are text only because of how their cells are written, and the option that would read them.

Words for null (`NA`, `-`) among numbers make text of a column, and so do a decimal comma, and dates and times
that are not written as ISO 8601 has them. A type is for ever, so people are to hear of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Literal, TypeAlias

import pyarrow as pa
import pyarrow.compute as pc

from trueline.errors import InputError
from trueline.readers.inference import moment
from trueline.readers.reader import Reader
from trueline.readers.rules import is_text
from trueline.readers.source import Source

# What is written in place of a value by hand, by spreadsheets and by statistics programs.
PLACEHOLDERS: Final = (
    "NA", "N/A", "n/a", "n.a.", "na", "NULL", "null", "None", "-", "--", "?", ".", "#N/A", "#NV", "\\N",
)  # fmt: skip
# How dates are written; of those that fit the same cells, the first.
_DAYS: Final = (
    "%Y/%m/%d", "%Y.%m.%d", "%d.%m.%Y", "%d/%m/%Y", "%m/%d/%Y", "%d-%m-%Y", "%m-%d-%Y",
    "%d.%m.%y", "%d/%m/%y", "%m/%d/%y", "%d %b %Y", "%d-%b-%Y", "%b %d, %Y", "%d %B %Y", "%B %d, %Y",
)  # fmt: skip
_CLOCKS: Final = ("%H:%M", "%H:%M:%S", "%H:%M:%S.%f", "%I:%M %p", "%I:%M:%S %p", "%H:%M%z", "%H:%M:%S%z")
_DAY_AT_FIRST: Final = (
    r"^(?:\d{1,4}[-/. ](?:\d{1,2}|[A-Za-z]{3,9})[-/. ]\d{2,4}|[A-Za-z]{3,9} \d{1,2}, \d{4})"
)
_SAMPLE: Final = 1000
FormatOption: TypeAlias = Literal["date_format", "timestamp_format"]


@dataclass(frozen=True, slots=True)
class BetterOption:
    """An option by which a reader would not read columns as text: which types they would have, and why.

    `cells` are the words, or an example, by column. `others` are values that fit the cells as well, where
    days cannot be told from months; `loses` are columns that could not be read with it.
    """

    kind: Literal["nulls", "decimal"] | FormatOption
    value: Any
    types: Mapping[str, pa.DataType]
    cells: Mapping[str, tuple[str, ...]]
    others: tuple[str, ...] = ()
    loses: tuple[str, ...] = ()


def better_options(reader: Reader, columns: pa.Schema, sources: Sequence[Source]) -> Iterator[BetterOption]:
    r"""Yield the options that would give columns of text another type, by the first rows of the files.

    >>> from trueline.readers import csv
    >>> files = [Source.memory(b"n,at\n1,2012/01/01 00:00\nNA,2012/01/02 10:30\n")]
    >>> text = pa.schema({"n": pa.string(), "at": pa.string()})
    >>> [(each.kind, each.value) for each in better_options(csv(), text, files)]
    [('nulls', ('', 'NA')), ('timestamp_format', '%Y/%m/%d %H:%M')]
    """
    names = [column.name for column in columns if is_text(column.type)]
    try:
        if names and hasattr(reader, "nulls"):
            yield from _without_words(reader, names, sources)
        if names and getattr(reader, "decimal", None) == ".":
            yield from _with_comma(reader, names, sources)
        if names and hasattr(reader, "timestamp_format"):
            yield from _by_format(reader, names, sources)
    except InputError:
        return  # the files have changed, or cannot be read so


def _without_words(reader: Any, names: Sequence[str], sources: Sequence[Source]) -> Iterator[BetterOption]:
    words = [word for word in PLACEHOLDERS if word not in reader.nulls]
    guess = replace(reader, nulls=(*reader.nulls, *words)).infer(sources) if words else pa.schema([])
    changed = [name for name in names if name in guess.names and not is_text(guess.field(name).type)]
    found: dict[str, set[str]] = {name: set() for name in changed}
    for cells in _first_cells(reader, changed, sources):
        for name, column in cells.items():
            there = column.filter(pc.is_in(column, value_set=pa.array(words, pa.string())))
            found[name].update(pc.unique(there).to_pylist())
        if all(found.values()):
            break
    found = {name: those for name, those in found.items() if those}
    if found:
        nulls = (*reader.nulls, *sorted(set().union(*found.values())))
        types = {name: guess.field(name).type for name in found}
        yield BetterOption(
            "nulls", nulls, types, {name: tuple(sorted(those)) for name, those in found.items()}
        )


def _with_comma(reader: Any, names: Sequence[str], sources: Sequence[Source]) -> Iterator[BetterOption]:
    guess = replace(reader, decimal=",").infer(sources)
    types = {
        name: guess.field(name).type
        for name in names
        if name in guess.names and not is_text(guess.field(name).type)
    }
    cells: dict[str, tuple[str, ...]] = {}
    for first in _first_cells(reader, list(types), sources):
        for name, column in first.items():
            there = column.filter(pc.match_substring(column, ","))
            cells |= {name: (there[0].as_py(),)} if name not in cells and len(there) else {}
    types = {name: types[name] for name in cells}
    if types:
        yield BetterOption("decimal", ",", types, cells, loses=_lost(reader, {"decimal": ","}, sources))


def _by_format(reader: Any, names: Sequence[str], sources: Sequence[Source]) -> Iterator[BetterOption]:
    samples: dict[str, pa.Array] = {}
    for cells in _first_cells(reader, names, sources):
        samples |= {name: column for name, column in cells.items() if name not in samples and len(column)}
        if len(samples) == len(names):
            break
    found: dict[tuple[FormatOption, tuple[str, ...]], dict[str, pa.DataType]] = {}
    for name, column in samples.items():
        if (match := _formats_of(column, reader)) is not None:
            found.setdefault(match[:2], {})[name] = match[2]
    for (kind, forms), types in found.items():
        if getattr(reader, kind) is None:
            loses = _lost(reader, {kind: forms[0]}, sources)
            cells = {name: (samples[name][0].as_py(),) for name in types}
            yield BetterOption(kind, forms[0], types, cells, forms[1:], loses)


def _formats_of(column: pa.Array, reader: Any) -> tuple[FormatOption, tuple[str, ...], pa.DataType] | None:
    """Return the option and the formats by which all cells of a column are dates, or else times."""
    if not pc.all(pc.match_substring_regex(column, _DAY_AT_FIRST)).as_py():
        return None
    times = [f"{day}{between}{clock}" for day in _DAYS for between in " T" for clock in _CLOCKS]
    options: tuple[tuple[FormatOption, Sequence[str]], ...] = (
        ("date_format", _DAYS),
        ("timestamp_format", times),
    )
    for option, forms in options:
        kinds = {form: moment(column, replace(reader.rules, **{option: form})) for form in forms}
        fitting = {form: kind for form, kind in kinds.items() if kind is not None}
        if fitting:
            return option, tuple(fitting), next(iter(fitting.values()))
    return None


def _lost(reader: Any, option: Mapping[str, str], sources: Sequence[Source]) -> tuple[str, ...]:
    """Name the columns that have a type now, and would be text with an option."""
    before, after = reader.infer(sources), replace(reader, **option).infer(sources)
    typed = [column.name for column in before if not is_text(column.type)]
    return tuple(name for name in typed if name in after.names and is_text(after.field(name).type))


def _first_cells(
    reader: Reader, names: Sequence[str], sources: Sequence[Source]
) -> Iterator[Mapping[str, pa.Array]]:
    """Yield the first cells of columns as text, file by file, without those that are null or blank."""
    schema = pa.schema([(name, pa.string()) for name in names])
    for source in sources if names else ():
        batch = next(iter(reader.read(source, schema, columns=list(names))), None)
        if batch is not None:
            yield {name: _filled(batch.table[name].slice(0, _SAMPLE)) for name in names}


def _filled(column: pa.Array) -> pa.Array:
    text = pc.utf8_trim(column.drop_null(), " \t")
    return text.filter(pc.not_equal(text, ""))
