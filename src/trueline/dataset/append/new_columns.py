"""Columns that a dataset does not have: refused with the difference, added, or ignored, as was asked for."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from difflib import get_close_matches
from typing import Final, Literal, TypeAlias, get_args

from trueline.errors import InputError, SchemaError

NewColumns: TypeAlias = Literal["error", "add", "ignore"]
POLICIES: Final[tuple[NewColumns, ...]] = get_args(NewColumns)
ALLOWED: Final = 'new_columns="add" adds them (--new-columns add), "ignore" leaves them out'
TABLE: Final = "the table"
_SHOWN: Final = 20


def checked_policy(given: object) -> NewColumns | None:
    """Return what is to happen to new columns, None if that is left to the dataset.

    >>> checked_policy("add"), checked_policy(None)
    ('add', None)
    """
    for policy in POLICIES:
        if given == policy:
            return policy
    if given is None:
        return None
    raise InputError(
        f"new_columns is {given!r:.80}", remedy='give "error", "add" or "ignore"', code="BadNewColumns"
    )


def unknown_columns(
    given: Sequence[str], known: Sequence[str], new: NewColumns, *, place: str = TABLE
) -> tuple[str, ...]:
    """Return the columns that are not known; raise if none is, or if they cannot be added or ignored.

    A file that was read with a wrong separator shares no column with the dataset; a column that differs
    from a known one only by case would be the same one to Spark. Whether others are allowed is not
    asked here.

    >>> unknown_columns(["id", "day"], ["id"], "add")
    ('day',)
    """
    unknown = tuple(name for name in given if name not in known)
    if not unknown:
        return ()
    for name, other in _twins(unknown, known):
        if new != "ignore" or other not in given:
            raise _case_twin(name, other, place)
    if len(unknown) == len(given):
        cause = "rename them" if place == TABLE else "is the separator right, and is there a header?"
        raise SchemaError(
            f"{place} has none of the dataset's columns: {_listed(given)}",
            remedy=f"the dataset has {_listed(known)}; {cause}",
            code="NoSharedColumn",
            path=place,
        )
    return unknown


def refuse_unknown(given: Sequence[str], known: Sequence[str], *, place: str) -> None:
    """Refuse columns that are not known, with what may have been meant and what is missing."""
    unknown = [name for name in given if name not in known]
    if not unknown:
        return
    absent = [name for name in known if name not in given]
    lines = [f"+ {name}: {not_a_column(name, absent or known)}" for name in unknown[:_SHOWN]]
    lines += [f"- {name}: is missing" for name in absent[:_SHOWN]]
    raise SchemaError(
        f"{place} has {_count(unknown)} that the dataset does not have\n"
        + "\n".join(f"    {line}" for line in lines),
        remedy=f"rename {'it' if len(unknown) == 1 else 'them'}, or {ALLOWED}",
        code="UnknownColumns",
        path=place,
        columns=tuple(unknown),
        differences=tuple(lines),
    )


def not_a_column(name: str, candidates: Iterable[str]) -> str:
    """Say that a name is not a column, with the near one that may have been meant.

    >>> not_a_column("prise", ["price", "day"])
    'is not a column of the dataset; did you mean price?'
    >>> not_a_column("wind", ["id", "day"])
    'is not a column of the dataset'
    """
    near = get_close_matches(name.casefold(), [each.casefold() for each in candidates], n=1, cutoff=0.7)
    meant = next((each for each in candidates if near and each.casefold() == near[0]), None)
    return "is not a column of the dataset" + (f"; did you mean {meant}?" if meant is not None else "")


def refuse_case_twins(names: Sequence[str], known: Sequence[str] = (), *, place: str = "the schema") -> None:
    """Refuse new columns that differ from each other, or from known ones, only by case."""
    new = [name for name in names if name not in known]
    for number, name in enumerate(new):
        for twin, other in _twins([name], [*known, *new[:number]]):
            raise _case_twin(twin, other, place)


def _twins(names: Iterable[str], known: Iterable[str]) -> Iterator[tuple[str, str]]:
    folded = {name.casefold(): name for name in known}
    for name in names:
        other = folded.get(name.casefold())
        if other is not None and other != name:
            yield name, other


def _case_twin(name: str, other: str, place: str) -> SchemaError:
    return SchemaError(
        f"column {name!r} of {place} differs from column {other!r} only by case",
        remedy=f"rename it to {other!r} if it is the same, else to something else",
        code="CaseTwin",
        column=name,
        path=place,
    )


def _count(names: Sequence[str]) -> str:
    return "a column" if len(names) == 1 else f"{len(names)} columns"


def _listed(names: Sequence[str]) -> str:
    return ", ".join(name[:40] for name in names[:_SHOWN]) + (" …" if len(names) > _SHOWN else "")
