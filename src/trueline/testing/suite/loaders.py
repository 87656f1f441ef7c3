"""K18: cells that cannot be read are null; no row is lost, nothing raises, and they are counted."""

from __future__ import annotations

import csv
import io
import warnings
from collections.abc import Iterator
from pathlib import Path

from trueline import console
from trueline import types as t
from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.protocol import ViewLike
from trueline.testing.read import same_ids
from trueline.testing.subjects import ComponentSubject, Loader, ViewSubject


def _loader(subject: ComponentSubject) -> Loader:
    assert isinstance(subject.component, Loader)
    return subject.component


def _sample(subject: ComponentSubject) -> Path:
    return Path(subject.sample[0] if isinstance(subject.sample, list | tuple) else subject.sample)


def _clean(subject: ComponentSubject) -> ViewSubject:
    return ViewSubject(_loader(subject).read([_sample(subject)]))


def _garbled(subject: ComponentSubject) -> Iterator[tuple[int, int, ViewLike]]:
    """Yield row, column and the view of a file with garbage there, for each column that is not text."""
    loader, path = _loader(subject), _sample(subject)
    lines = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline=""), delimiter=loader.separator))
    head, rows = lines[0], lines[1:]
    schema = loader.read([path]).schema
    if not rows:
        raise NotApplicable("the sample has no rows")
    found = 0
    for column in schema:
        if column.type in (t.text, t.binary) or column.name not in head:
            continue
        row, place = len(rows) // 2, head.index(column.name)
        bad = [list(cells) for cells in rows]
        bad[row][place] = loader.garbage
        copy = subject.folder / f"{column.index}-{path.name}"
        with copy.open("w", encoding="utf-8", newline="") as out:
            csv.writer(out, delimiter=loader.separator).writerows([head, *bad])
        view = loader.read([copy])
        if view.schema[column.index].type != column.type:
            raise NotApplicable("the types are inferred from the file: give the loader a schema")
        found += 1
        yield row, column.index, view
    if not found:
        raise NotApplicable("every column is text, and any text is valid")


@holds("loader", "K18.no_files", "view:C99")
def no_files(subject: ComponentSubject) -> None:
    """Of no files there is a view without rows, with the columns it has for any others."""
    loader, path = _loader(subject), _sample(subject)
    expected = loader.read([path]).schema
    lines = list(csv.reader(io.StringIO(path.read_text("utf-8"), newline=""), delimiter=loader.separator))
    copy = subject.folder / f"garbage-{path.name}"
    with copy.open("w", encoding="utf-8", newline="") as out:
        garbage = [[loader.garbage] * len(cells) for cells in lines[1:]]
        csv.writer(out, delimiter=loader.separator).writerows([lines[0], *garbage])
    if loader.read([copy]).schema != expected:
        raise NotApplicable("the types are inferred from the file: give the loader a schema")
    try:
        view = loader.read([])
        found = len(ViewSubject(view).read([]))
    except Exception as error:
        raise Broken(
            f"without files it raises {type(error).__name__}: {error}",
            "return a view without rows: the columns are known",
        ) from error
    if view.schema != expected:
        raise Broken(f"without files the columns are {view.schema}, with one {expected}", "keep the columns")
    if found:
        raise Broken(f"without files there are {found} rows", "return a view without rows")


@holds("loader", "K18.rows", "view:C34", "view:C37")
def rows(subject: ComponentSubject) -> None:
    """A cell that cannot be read costs no row, whether its column is asked for or not."""
    expected = _clean(subject).read([]).ids
    for row, column, view in _garbled(subject):
        reader = ViewSubject(view)
        others = [each for each in reader.all if each != column]
        for columns in ([], others):
            what = f"with an invalid cell in row {row} of {reader.name(column)!r} the rows differ"
            found = reader.read(columns).ids
            same_ids(
                expected,
                found,
                what,
                "make the cell null, and keep the row",
                column=reader.name(column),
            )


@holds("loader", "K18.raises", "view:C37")
def raises(subject: ComponentSubject) -> None:
    """A cell that cannot be read raises nothing, also when its column is asked for."""
    for row, column, view in _garbled(subject):
        reader = ViewSubject(view)
        for columns in ([column], reader.all):
            try:
                reader.read(columns)
            except Exception as error:
                raise Broken(
                    f"an invalid cell raises {type(error).__name__} when the column is read: {error}",
                    "make the cell null: one bad cell must not stop the reading of others",
                    column=reader.name(column),
                    row=row,
                ) from error


@holds("loader", "K18.cells", "view:C37")
def cells(subject: ComponentSubject) -> None:
    """The cell that cannot be read is null, and no other changes."""
    clean = _clean(subject).serial
    for row, column, view in _garbled(subject):
        reader = ViewSubject(view)
        try:
            found = reader.read()
        except Exception:  # noqa: BLE001, S112 (K18.raises reports it)
            continue
        if found.ids != clean.ids:
            continue  # K18.rows reports it
        for at, (one, other) in enumerate(zip(clean.values, found.values, strict=True)):
            wanted = tuple(None if (at, each) == (row, column) else one[each] for each in reader.all)
            if other != wanted:
                place = next(each for each in reader.all if other[each] != wanted[each])
                raise Broken(
                    f"with an invalid cell in row {row} of {reader.name(column)!r} it is read as "
                    f"{other[place]!r:.100}, not {wanted[place]!r:.100}",
                    "make the cell null, and read the others as they are",
                    column=reader.name(place),
                    row=at,
                )


@holds("loader", "K18.counted", "view:C37")
def counted(subject: ComponentSubject) -> None:
    """A cell that cannot be read is counted, or warned of."""
    loader, rows = _loader(subject), len(_clean(subject).read([]))
    for row, column, view in _garbled(subject):
        reader = ViewSubject(view)
        name = reader.name(column)
        shown = console.CapturedConsole()
        with console.use(shown), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            try:
                found = reader.read()
            except Exception:  # noqa: BLE001, S112 (K18.raises reports it)
                continue
        if len(found) != rows:
            continue  # K18.rows reports it
        if loader.counted is not None:
            told = loader.counted(view).get(name, 0) == 1
        else:
            told = name in shown.text or any(name in str(each.message) for each in said)
        if not told:
            raise Broken(
                "an invalid cell is read as null and not reported",
                "count it, and warn with the name of the column",
                column=name,
                row=row,
            )
