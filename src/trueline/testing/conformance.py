"""`check`: everything that can be checked of a thing, in order."""

from __future__ import annotations

import tempfile
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import singledispatch
from pathlib import Path
from typing import Any, TypeAlias

from trueline.errors import ContractBroken, InputError
from trueline.testing import suite as _registered
from trueline.testing.kit import CHECKS, Check, NotApplicable
from trueline.testing.protocol import is_view
from trueline.testing.subjects import ComponentSubject, Loader, Operator, Saver, Split, ViewSubject
from trueline.view import View

_ = _registered  # importing it registers the checks
Planned: TypeAlias = Iterator[tuple[str, Any]]


@dataclass
class Report:
    """What was checked: which checks held, which had nothing to look at and why, and what they noticed.

    >>> from trueline import View
    >>> isinstance(check(View.range(3), only=["K2"]), Report)
    True
    """

    held: list[str] = field(default_factory=list)
    skipped: dict[str, str] = field(default_factory=dict)
    notes: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        lines = [
            f"{name}: held{f' ({self.notes[name]})' if name in self.notes else ''}" for name in self.held
        ]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.skipped.items())])


def check(
    obj: Any,
    sample: Any = None,
    *,
    only: Collection[str] | None = None,
    without: Collection[str] = (),
    patience: float = 60.0,
) -> Report:
    """Check that a view, operator, loader, saver or split keeps its contracts; raise `ContractBroken` if not.

    A function counts as an operator if its sample is a view (or none is given),
    as a loader if it is a path. `only` and `without` name checks, as "K7.sticky"
    or "K7"; `patience` is how many seconds readers may take before they hang.

    >>> from trueline import View
    >>> print(check(View.range(30), only=["K13.differs"]))
    K13.differs: held (rows move by ... of the view on average (33% if every order is as likely))
    """
    report = Report()
    for each, outcome in _run(obj, sample, only, without, patience):
        if isinstance(outcome, ContractBroken):
            raise outcome
        if isinstance(outcome, NotApplicable):
            report.skipped.setdefault(each.name, str(outcome))
            continue
        if each.name not in report.held:
            report.held.append(each.name)
        if outcome:
            report.notes[each.name] = outcome
    report.skipped = {name: why for name, why in report.skipped.items() if name not in report.held}
    return report


def findings(
    obj: Any, sample: Any = None, *, without: Collection[str] = (), patience: float = 60.0
) -> list[ContractBroken]:
    """Return all that is broken, not only the first.

    >>> from trueline import View
    >>> findings(View.from_rows([{"x": 1}]))
    []
    """
    outcomes = _run(obj, sample, None, without, patience)
    return [outcome for _, outcome in outcomes if isinstance(outcome, ContractBroken)]


def checks(kind: str | None = None) -> Mapping[str, Check]:
    """Return the checks by name, of all kinds or of one: view, operator, loader, saver, split.

    >>> sorted({each.kind for each in checks().values()})
    ['loader', 'operator', 'saver', 'split', 'view']
    """
    return {name: each for name, each in CHECKS.items() if kind in (None, each.kind)}


def _run(
    obj: Any, sample: Any, only: Collection[str] | None, without: Collection[str], patience: float
) -> Iterator[tuple[Check, ContractBroken | NotApplicable | str | None]]:
    _known([*(only or ()), *without])
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as folder:
        for kind, subject in plan(obj, sample, Path(folder)):
            subject.patience = patience
            for each in checks(kind).values():
                if {each.name, each.number} & set(without):
                    continue
                if only is not None and not {each.name, each.number} & set(only):
                    continue
                try:
                    yield each, each.run(subject)
                except (ContractBroken, NotApplicable) as outcome:
                    yield each, outcome


def _known(names: Sequence[str]) -> None:
    known = {*CHECKS, *(each.number for each in CHECKS.values())}
    for name in names:
        if name not in known:
            raise InputError(f"there is no check {name!r}", remedy=f"name some of {', '.join(CHECKS)}")


# --- what is checked of what -----------------------------------------------------------------


@singledispatch
def plan(obj: Any, sample: Any, folder: Path) -> Planned:
    """Yield (kind of checks, what they look at); packages with other components register theirs."""
    if is_view(obj):
        yield "view", ViewSubject(obj)
    elif callable(obj):
        paths = isinstance(sample, str | Path) or (
            isinstance(sample, list | tuple) and sample and isinstance(sample[0], str | Path)
        )
        yield from plan(Loader(obj) if paths else Operator(obj), sample, folder)
    else:
        raise InputError(
            f"a {type(obj).__name__} cannot be checked",
            remedy="give a view (schema, row_count, can_shuffle, cursor, cursor_set), a function from view "
            "to view, or an Operator, Loader, Saver or Split",
        )


@plan.register
def _operator(obj: Operator, sample: Any, folder: Path) -> Planned:
    for view in _samples(sample):
        yield "operator", ComponentSubject(obj, view, folder)
        yield "view", ViewSubject(obj.make(view))


@plan.register
def _loader(obj: Loader, sample: Any, folder: Path) -> Planned:
    if sample is None:
        raise InputError(
            "a loader needs a sample to be checked", remedy="give the path of a CSV file with a header"
        )
    paths = [Path(each) for each in (sample if isinstance(sample, list | tuple) else [sample])]
    yield "loader", ComponentSubject(obj, paths, folder)
    yield "view", ViewSubject(obj.read(paths))


@plan.register
def _saver(obj: Saver, sample: Any, folder: Path) -> Planned:
    for number, view in enumerate(_samples(sample)):
        own = folder / str(number)
        own.mkdir()
        yield "saver", ComponentSubject(obj, view, own)


@plan.register
def _split(obj: Split, sample: Any, folder: Path) -> Planned:
    for view in _samples(sample):
        yield "split", ComponentSubject(obj, view, folder)
        made = obj.make(view)
        for part in made.values() if isinstance(made, Mapping) else made:
            yield "view", ViewSubject(part)


def _samples(sample: Any) -> Sequence[View]:
    from trueline.testing.generate import mixed

    if sample is None:
        return [mixed()]
    given: Sequence[Any] = sample if isinstance(sample, list | tuple) else [sample]
    for each in given:
        if not isinstance(each, View):
            raise InputError(f"a {type(each).__name__} is not a sample", remedy="give a trueline.View")
    return given
