"""What a pull did, dataset by dataset."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trueline.dataset.commit import Commit, same_bytes
from trueline.errors import TruelineError

# Nobody wonders why all is computed then.
_AS_EXPECTED: Final = ("", "first", "redefined")
# Why a dataset is not computed again: rows from before its definition are to stay.
FROM_HERE: Final = "from_here"


@dataclass(frozen=True, slots=True)
class Pulled:
    """What was done for one dataset: its new commits, what was known already, and what went wrong.

    `blocks` counts those a clone received. Commits made before something went wrong stay. `refused` says
    why a source was not read that the pull did not name: it is somebody else's and was not confirmed.
    `duplicates` are files with the bytes of another that this pull read, which they name.
    `bad_files` are those that were left out since they cannot be read, each with the reason.
    A derived dataset was brought to a `cut`, or `waits_for` what could not be; `differed` says whether it
    was not what its definition gives, if that was asked; `not_refreshed` is a code that says why it was not
    computed again though that was asked. `broken` are transactions of which that cut may show
    a part: they expired or failed half-way; `held_by` those that are open and keep newer records of its roots
    from it, each with the time it expires. `strategy` is the one it was computed by in the end, `reason` a
    code that says why as a whole where its definition can follow by the increment; `driver_bytes` counts the
    bytes of changes and state that passed this process.
    """

    dataset: str
    source: str | None = None
    commits: tuple[Commit, ...] = ()
    skipped: tuple[str, ...] = ()
    duplicates: Mapping[str, str] = field(default_factory=dict)
    blocks: int = 0
    error: TruelineError | None = None
    refused: TruelineError | None = None
    bad_files: Mapping[str, str] = field(default_factory=dict)
    cut: int | None = None
    waits_for: tuple[str, ...] = ()
    differed: bool | None = None
    not_refreshed: str = ""
    broken: tuple[str, ...] = ()
    held_by: tuple[str, ...] = ()
    strategy: str = ""
    reason: str = ""
    driver_bytes: int = 0

    @property
    def is_derived(self) -> bool:
        """Whether it is computed here from other datasets."""
        return self.cut is not None

    @property
    def commit(self) -> Commit | None:
        """The newest commit, None if nothing was new."""
        return self.commits[-1] if self.commits else None

    @property
    def rows(self) -> int:
        """How many records were added."""
        return sum(commit.rows for commit in self.commits)

    @property
    def told(self) -> str:
        """What was done, in a line for people."""
        parts = [commit.told for commit in self.commits]
        said = {name for commit in self.commits for name in commit.duplicates}
        if rest := {name: twin for name, twin in self.duplicates.items() if name not in said}:
            parts.append(same_bytes(rest))
        if self.blocks:
            parts.append(f"+{self.blocks:,} block{'s' * (self.blocks != 1)} from {self.source}")
        if self.bad_files:
            count = len(self.bad_files)
            parts.append(
                f"{count:,} bad file{'s' * (count != 1)} left out ({', '.join(self.bad_files)[:200]})"
            )
        if self.reason not in _AS_EXPECTED:
            parts.append(f"computed as a whole ({self.reason})")
        if self.differed is not None:
            parts.append("differed from its definition" if self.differed else "equals its definition")
        if self.not_refreshed:
            parts.append(
                "not computed again, since rows from before its definition are to stay"
                f" ({self.not_refreshed})"
            )
        parts += [why.problem for why in (self.error, self.refused) if why is not None]
        if self.broken:
            which = ", ".join(name[:8] for name in self.broken)
            parts.append(f"cut {self.cut:,} may show a part of transactions that did not finish: {which}")
        if self.held_by:
            parts.append(f"held by {', '.join(self.held_by)}")
        if self.waits_for:
            parts.append(f"waits for {', '.join(self.waits_for)}")
        nothing = "no source" if self.source is None else "nothing new"
        return "; ".join(parts) or ("up to date" if self.is_derived else nothing)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return {
            "dataset": self.dataset,
            "source": self.source,
            "rows": self.rows,
            "commit": None if self.commit is None else str(self.commit.block),
            "commits": [commit.to_dict() for commit in self.commits],
            "skipped": list(self.skipped),
            "duplicates": dict(self.duplicates),
            "blocks": self.blocks,
            "bad_files": dict(self.bad_files),
            "cut": self.cut,
            "waits_for": list(self.waits_for),
            "differed": self.differed,
            "not_refreshed": self.not_refreshed,
            "broken": list(self.broken),
            "held_by": list(self.held_by),
            "strategy": self.strategy,
            "reason": self.reason,
            "driver_bytes": self.driver_bytes,
            "error": _plain(self.error),
            "refused": _plain(self.refused),
        }


def _plain(error: TruelineError | None) -> dict[str, str] | None:
    return None if error is None else {"code": error.code, "message": error.problem, "remedy": error.remedy}


@dataclass(frozen=True, slots=True)
class PullReport:
    """What a pull did; iterating gives the datasets in the order they were pulled, `report[name]` one.

    >>> report = PullReport((Pulled("sales", "inbox/*.csv"),))
    >>> report.ok, report["sales"].told, report.rows
    (True, 'nothing new', 0)
    """

    datasets: tuple[Pulled, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing went wrong; a source that is not confirmed is `refused`, and not a failure."""
        return not self.errors

    @property
    def errors(self) -> dict[str, TruelineError]:
        """What went wrong, by dataset."""
        return {each.dataset: each.error for each in self.datasets if each.error is not None}

    @property
    def rows(self) -> int:
        """How many records were added in all."""
        return sum(each.rows for each in self.datasets)

    def __iter__(self) -> Iterator[Pulled]:
        return iter(self.datasets)

    def __len__(self) -> int:
        return len(self.datasets)

    def __bool__(self) -> bool:
        return True

    def __getitem__(self, name: str) -> Pulled:
        for each in self.datasets:
            if each.dataset == name:
                return each
        raise KeyError(name)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return {"ok": self.ok, "rows": self.rows, "datasets": [each.to_dict() for each in self.datasets]}

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html_table

        return html_table("Pull", ("dataset", "did"), [(each.dataset, each.told) for each in self.datasets])
