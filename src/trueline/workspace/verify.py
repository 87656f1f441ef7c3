"""Proof of datasets: their blocks, their files, their heads, and what is derived by replay."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Literal, TypeAlias

from trueline.chain.compacted import compact_files
from trueline.chain.store.store import Folder
from trueline.chain.verify import Problem, ProblemKind, Progress, VerificationReport, verify_blocks
from trueline.dataset.at import At, resolve
from trueline.errors import CorruptionError, InputError
from trueline.identity.multihash import physical_hash
from trueline.workspace.rollback import given_head, head_problems

if TYPE_CHECKING:
    from trueline.dataset.commit import Commit
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

# Every commit again, the current rows alone ("head"), or nothing.
Replay: TypeAlias = bool | Literal["head"]


def check_replay(replay: object) -> None:
    """Refuse what does not say what to compute again."""
    if replay not in (True, False, "head"):
        raise InputError(f"replay is {replay!r:.80}", remedy='give True, False or "head"', code="BadReplay")


def verify_dataset(
    dataset: Dataset,
    after: At = None,
    upto: At = None,
    *,
    replay: Replay,
    progress: Progress | None = None,
    expected_head: str | Commit | None = None,
) -> VerificationReport:
    """Prove one dataset; what is derived is computed again only if its files are whole."""
    check_replay(replay)
    expected = None if expected_head is None else given_head(expected_head)
    try:
        _ = dataset.head
    except CorruptionError as error:
        lost = Problem(ProblemKind.CORRUPT, f"{dataset.name}: {error.problem}", error.remedy)
        return VerificationReport(problems=(lost,))
    chain = dataset.chain
    start = None if after is None else resolve(chain, after, inside=True).block
    # Blocks added meanwhile are not part of the question.
    end = dataset.head if upto is None else resolve(chain, upto, inside=True).block
    report = verify_blocks(chain, start, end, progress)
    whole = report.ok
    if whole:
        from trueline.dataset.verify import verify_data

        tasks = dataset.workspace._spark.tasks(f"verify {dataset.name}", reads=[chain.store])
        found = verify_data(chain, start, end, tasks=tasks, progress=progress)
        whole = found.ok
        report += found + VerificationReport(problems=tuple(_damaged_copies(dataset)))
    report += VerificationReport(problems=head_problems(dataset, expected))
    named = tuple(replace(found, message=f"{dataset.name}: {found.message}") for found in report.problems)
    report = replace(report, problems=named)
    if replay and whole and dataset.kind == "derived":
        from trueline.workspace.derive.replay import replay_datasets

        report += replay_datasets(
            dataset.workspace, [dataset], replay, after=start, upto=end, progress=progress
        )
    return report


def _damaged_copies(dataset: Dataset) -> Iterator[Problem]:
    """Look at the larger files that readers take instead of small slices: no block names them."""
    from trueline.dataset.compact import holds_its_slices

    store = dataset.chain.store
    for file in compact_files(dataset.chain):
        with store.open(Folder.DATA, file.hash) as opened:
            actual = physical_hash(opened)
        what = f"compacted file {file.hash} hashes to {actual}" if actual != file.hash else ""
        if not what and not holds_its_slices(dataset.name, dataset.chain, file):
            what = f"compacted file {file.hash} has other records than the slices it stands for"
        if what:
            yield Problem(ProblemKind.CORRUPT, what, "compact the dataset again", file.block)


def selected(workspace: Workspace, names: Sequence[str]) -> list[Dataset]:
    """Return the datasets that names and selectors (`+name`, `name+`) stand for, all if there are none."""
    from trueline.workspace.dependencies import Dependencies

    if not names:
        return workspace.datasets()
    if not any("+" in name for name in names):
        return [workspace[name] for name in dict.fromkeys(names)]
    known = Dependencies.of(workspace)
    return [known[name].dataset for name in known.in_order(known.named(names))]


def verify_datasets(
    workspace: Workspace,
    datasets: Sequence[Dataset],
    *,
    replay: Replay,
    progress: Progress | None = None,
    workers: int = 2,
) -> VerificationReport:
    """Prove several datasets, then replay those that are whole, side by side."""
    check_replay(replay)
    report = VerificationReport()
    whole = []
    for dataset in datasets:
        found = verify_dataset(dataset, replay=False, progress=progress)
        whole += [dataset] if all(_is_of_head(each) for each in found.problems) else []
        report += found.of(dataset.name)
    if replay and whole:
        from trueline.workspace.derive.replay import replay_datasets

        report += replay_datasets(workspace, whole, replay, progress=progress, workers=workers)
    return report


def _is_of_head(problem: Problem) -> bool:
    """Say whether a problem is about the head alone: what is behind it can be replayed."""
    return problem.kind in (ProblemKind.ROLLED_BACK, ProblemKind.REPLACED)
