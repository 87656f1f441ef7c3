"""Finding snapshots: the newest state datasets agree at, that of a time, a tag or a cut."""

from __future__ import annotations

import re
import weakref
from collections.abc import Sequence
from dataclasses import replace
from datetime import date, datetime
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.instant import Instant
from trueline.dataset.at import HEAD, moment_of, resolve
from trueline.errors import InputError, NothingShared, RetryError
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import Roots
from trueline.workspace.dependencies import Dependencies
from trueline.workspace.snapshot.agree import Agreement, agree
from trueline.workspace.snapshot.lease import SnapshotLease
from trueline.workspace.snapshot.snapshot import PrintedPosition, WorkspaceSnapshot
from trueline.workspace.snapshot.tagged import of_tag

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

# What is read "at" a cut: `cut:7`, `cut:sales=41`.
AT_CUT: Final = "cut:"
_PRINTED: Final = re.compile(r"([0-9]{1,20})(?:@([0-9a-fA-F]{4,}))?")
# Each time a dataset was reset between two instructions.
_ATTEMPTS: Final = 100


def snapshot(
    workspace: Workspace,
    names: Sequence[str],
    *,
    at: Any = None,
    cut: Any = None,
    advance: bool = False,
    together: bool = False,
) -> WorkspaceSnapshot:
    """Find the newest state that datasets agree at, and hold it."""
    if sum((at is not None, cut is not None, advance)) > 1:
        raise InputError(
            "at, cut and advance exclude each other", remedy="give one of them", code="BadSnapshot"
        )
    cut = _cut(cut)
    tagged = workspace._tags.read().get(at) if isinstance(at, str) else None
    if tagged is not None:
        there = of_tag(workspace, tagged, names)
        if together and len(there.groups) > 1:
            raise _nothing_shared(there.groups)
        return _leased(there)
    datasets = [workspace[name] for name in dict.fromkeys(names)] if names else workspace.datasets()
    if advance:
        _bring_to_target(workspace, datasets)
    moment = None if at is None or at == HEAD else _moment(datasets, at)
    for _ in range(_ATTEMPTS):
        found = agree(workspace, datasets, moment=moment, cut=cut)
        if together and len(found.groups) > 1:
            raise _nothing_shared(found.groups)
        if (made := held(workspace, found, cut)) is not None:
            return made
    raise RetryError(
        f"{', '.join(names)}: datasets were reset again and again while they were looked at",
        remedy="nothing was changed; try again",
        code="ResetBusy",
    )


def held(workspace: Workspace, found: Agreement, cut: Any = None) -> WorkspaceSnapshot | None:
    """Hold what was found; None if a reset and `gc` came between the look and the lease."""
    made = _leased(_made(workspace, found, cut))
    read = {name: found.position(name).block for name in (*found.asked, *found.roots)}
    if all(found.histories[name].dataset.chain.entry(block) for name, block in read.items()):
        return made
    made.close()
    return None


def read_together(workspace: Workspace, names: Sequence[str], at: Any) -> WorkspaceSnapshot | None:
    """Return where a query reads datasets: where they agree, at a time or a cut; None if each is by itself.

    It holds no lease: what is read is read soon.
    """
    if isinstance(at, WorkspaceSnapshot):
        return at
    tagged = workspace._tags.read().get(at) if isinstance(at, str) else None
    if (
        tagged is not None
        and len(names) > 1
        and all(workspace[name].id in tagged.positions for name in names)
    ):
        return of_tag(workspace, tagged, names)
    cut: Any = at if isinstance(at, Cut) else None
    if isinstance(at, str) and at.startswith(AT_CUT):
        cut = parsed_cut(at.removeprefix(AT_CUT))
    timed = isinstance(at, datetime | date | str) and tagged is None
    moment = moment_of(at) if cut is None and timed else None
    if not names or (cut is None and (len(names) < 2 or (at is not None and moment is None))):
        return None
    datasets = [workspace[name] for name in names]
    if moment is not None:
        _check_begun(datasets, moment)
    return _made(workspace, agree(workspace, datasets, moment=moment, cut=cut), cut)


def _made(workspace: Workspace, found: Agreement, cut: Any) -> WorkspaceSnapshot:
    positions = {dataset.name: found.position(name) for name, dataset in found.asked.items()}
    named = {found.histories[name].dataset.name: name for name in found.roots}
    lagging = named | {dataset.name: name for name, dataset in found.asked.items()}
    return WorkspaceSnapshot(
        workspace,
        {dataset.name: dataset for dataset in found.asked.values()},
        positions,
        {name: found.position(root) for name, root in named.items()},
        lagging,
        found.groups,
        {name: found.histories[each].commits_after(found.number(each)) for name, each in lagging.items()},
        cut if isinstance(cut, int) else cut.number or None if isinstance(cut, Cut) else None,
    )


def _bring_to_target(workspace: Workspace, datasets: Sequence[Dataset]) -> None:
    """Bring the derived datasets to one recorded cut, and nothing beyond it.

    That is the newest cut; where roots are named too, one with all that they hold now.
    """
    from trueline.workspace.pull.derived import bring_to, groups_of

    log, names = CutLog.of(workspace), [dataset.name for dataset in datasets]
    roots = Roots(workspace).under(*names)
    cut = log.newest()
    if any(dataset.id in roots for dataset in datasets) or any(root not in cut for root in roots):
        known = Dependencies.of(workspace)
        rest_on = {each for name in names for each in (name, *known.upstream(name))}
        computed = [name for name in sorted(rest_on) if known[name].is_computed]
        cut = log.record(roots, groups_of(known, computed))
    bring_to(workspace, names, cut)


def _leased(made: WorkspaceSnapshot) -> WorkspaceSnapshot:
    """Hold the datasets of a snapshot, and the roots they rest on: a tag of it names these too."""
    positions = {**made.origin, **made.positions}
    blocks = {str(made.ids[name]): at.block for name, at in positions.items()}
    lease = SnapshotLease.take(made.workspace._location.cuts(), blocks)
    held = replace(made, lease=lease)
    weakref.finalize(held, lease.release)
    return held


def _cut(cut: Any) -> Any:
    """Return what a cut is given by; a snapshot stands for its own."""
    if isinstance(cut, WorkspaceSnapshot):
        return {cut.ids[name]: at for name, at in cut.origin.items()}
    if isinstance(cut, str):
        return parsed_cut(cut)
    return cut


def parsed_cut(text: str) -> int | dict[str, int | PrintedPosition | None]:
    """Read a cut as people write it: its number, or the offset of each root, with its commit or without.

    >>> parsed_cut("7"), parsed_cut("sales=41, fx=none")
    (7, {'sales': 41, 'fx': None})
    >>> parsed_cut("sales=41@6643f3ac")
    {'sales': PrintedPosition(offset=41, block='6643f3ac')}
    """
    if text.strip().isdecimal():
        return int(text)
    found: dict[str, int | PrintedPosition | None] = {}
    for each in text.split(","):
        name, sign, at = (part.strip() for part in each.partition("="))
        printed = _PRINTED.fullmatch(at)
        if not sign or not (printed or at == "none"):
            raise InputError(
                f"{text!r:.80} is not a cut",
                remedy="give its number, or the offset of each root as a snapshot shows them",
                code="BadCut",
            )
        if printed is None:
            found[name] = None
        else:
            offset, block = int(printed[1]), printed[2]
            found[name] = offset if block is None else PrintedPosition(offset, block.lower())
    return found


def _moment(datasets: Sequence[Dataset], at: object) -> Instant:
    """Return the moment that `at` names for all datasets; a commit is one of one dataset alone."""
    moment = moment_of(at) if isinstance(at, datetime | date | str) else None
    if moment is None:
        raise InputError(
            f"{at!r:.80} is not a time or a tag",
            remedy="give a date (2026-11-13), a time with its zone, a tag, or a cut",
            code="BadPosition",
        )
    _check_begun(datasets, moment)
    return moment


def _check_begun(datasets: Sequence[Dataset], moment: Instant) -> None:
    """Refuse a moment at which a dataset did not exist."""
    for dataset in datasets:
        resolve(dataset.chain, moment)


def _nothing_shared(groups: tuple[tuple[str, ...], ...]) -> NothingShared:
    one, other = groups[0][0], groups[1][0]
    return NothingShared(
        f"{one!r} and {other!r} rest on nothing common, so that they cannot agree",
        remedy="read them without together=True: each group is then at its newest state",
        groups=groups,
    )
