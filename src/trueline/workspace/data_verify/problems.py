"""What can be wrong with a file, told with the block, the file and the difference."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from trueline.chain.store import Folder
from trueline.chain.verify import Problem, ProblemKind
from trueline.identity.multihash import Multihash

RESTORE: Final = "restore the file from a copy of the dataset"


@dataclass(frozen=True, slots=True)
class DataProblem(Problem):
    """A problem of one file: `file` is its path in the dataset, the rest what was expected and found."""

    file: str | None = None
    expected: str | None = None
    actual: str | None = None


@dataclass(frozen=True, slots=True)
class Subject:
    """The file that is looked at, and the block that names it."""

    block: Multihash
    sequence_number: int
    folder: Folder
    hash: Multihash
    size: int | None
    role: str

    @property
    def shown(self) -> str:
        """What it is called in messages."""
        return f"{self.role} {self.hash}"

    def problem(
        self,
        kind: ProblemKind,
        what: str,
        expected: object = None,
        actual: object = None,
        *,
        remedy: str = RESTORE,
    ) -> DataProblem:
        """Say what is wrong with it."""
        return DataProblem(
            kind,
            f"{self.shown} {what}",
            remedy,
            self.block,
            self.sequence_number,
            None,
            f"{self.folder}/{self.hash}",
            None if expected is None else str(expected),
            None if actual is None else str(actual),
        )

    def corrupt(self, what: str, expected: object = None, actual: object = None) -> DataProblem:
        """Say that it is not what the chain says it is."""
        return self.problem(ProblemKind.CORRUPT, what, expected, actual)
