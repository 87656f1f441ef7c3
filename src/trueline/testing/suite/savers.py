"""K20: what is written comes back, but for the losses a format declares."""

from __future__ import annotations

from trueline.testing.kit import Broken, NotApplicable, holds
from trueline.testing.protocol import ViewLike
from trueline.testing.read import RowsRead
from trueline.testing.subjects import ComponentSubject, Saver, ViewSubject


def _saver(subject: ComponentSubject) -> Saver:
    assert isinstance(subject.component, Saver)
    return subject.component


def _back(subject: ComponentSubject) -> ViewLike:
    saver = _saver(subject)
    path = subject.folder / f"saved{saver.suffix}"
    if not path.exists():
        saver.write(subject.sample, path)
    return saver.read(path)


def _kept(subject: ComponentSubject) -> list[int]:
    """The columns that should come back."""
    keeps = "hidden columns" not in _saver(subject).losses
    return [column.index for column in subject.sample.schema if keeps or not column.is_hidden]


@holds("saver", "K20.columns", "view:C102")
def columns(subject: ComponentSubject) -> None:
    """The columns come back: names in order, and types if the format keeps them."""
    schema, back = subject.sample.schema, _back(subject).schema
    expected = [schema[column].name for column in _kept(subject)]
    found = [column.name for column in back]
    if found != expected:
        raise Broken(f"columns {found} came back for {expected}", "write every column, or declare the loss")
    if "types" not in _saver(subject).losses:
        for place, column in enumerate(_kept(subject)):
            if back[place].type != schema[column].type:
                raise Broken(
                    f"{schema[column].type} came back as {back[place].type}",
                    "write the type too, or declare the loss",
                    column=schema[column].name,
                )


@holds("saver", "K20.values", "view:C102")
def values(subject: ComponentSubject) -> None:
    """The values come back exactly, in the order of the rows."""
    kept = _kept(subject)
    if len(kept) != len(_back(subject).schema):
        raise NotApplicable("different columns came back")
    expected = ViewSubject(subject.sample).read(kept)
    found = ViewSubject(_back(subject)).read()
    if len(expected) != len(found):
        raise Broken(f"{len(found)} rows came back for {len(expected)}", "write every row once")
    for row, (one, other) in enumerate(zip(_lossy(subject, expected), _lossy(subject, found), strict=True)):
        if one != other:
            place = next(at for at in range(len(kept)) if one[at] != other[at])
            raise Broken(
                f"{one[place]!r:.100} came back as {other[place]!r:.100}",
                "write values so that they can be read back, or declare the loss",
                column=subject.sample.schema[kept[place]].name,
                row=row,
            )


def _lossy(subject: ComponentSubject, rows: RowsRead) -> list[tuple[object, ...]]:
    if "empty text" not in _saver(subject).losses:
        return list(rows.values)
    return [tuple(None if value == "" else value for value in row) for row in rows.values]


@holds("saver", "K20.annotations", "view:C102")
def annotated(subject: ComponentSubject) -> None:
    """The annotations of columns come back."""
    if "annotations" in _saver(subject).losses:
        raise NotApplicable("the format does not keep annotations, as it declares")
    back = _back(subject).schema
    if len(_kept(subject)) != len(back):
        raise NotApplicable("different columns came back")
    for place, column in enumerate(_kept(subject)):
        expected = subject.sample.schema[column].annotations
        if dict(back[place].annotations.found) != dict(expected.found):
            raise Broken(
                f"{dict(expected.found)} came back as {dict(back[place].annotations.found)}",
                "write annotations too, or declare the loss",
                column=subject.sample.schema[column].name,
            )


@holds("saver", "K20.losses", "view:C102")
def losses(subject: ComponentSubject) -> None:
    """What a format declares as lost is lost: a list of losses that is too long misleads."""
    saver, sample, back = _saver(subject), subject.sample.schema, _back(subject).schema
    kept = _kept(subject)
    pairs = [(sample[column], back[place]) for place, column in enumerate(kept) if place < len(back)]
    lost = {
        "annotations": any(one.annotations.found and not two.annotations.found for one, two in pairs),
        "types": any(one.type != two.type for one, two in pairs),
        "hidden columns": len(kept) < len(sample),
    }
    has = {
        "annotations": any(column.annotations.found for column in sample),
        "types": True,
        "hidden columns": any(column.is_hidden for column in sample),
    }
    for loss in sorted(saver.losses & lost.keys()):
        if has[loss] and not lost[loss]:
            raise Broken(f"{loss} are declared as lost, and come back", "take it off the list of losses")
