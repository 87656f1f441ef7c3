"""What can be checked, beside views: operators, loaders, savers and splits."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Final

from trueline.testing.protocol import ViewLike
from trueline.testing.read import RowsRead, drain
from trueline.view import View

# Numbers that a view is unlikely to have been shuffled by already.
SEEDS: Final = (7_919, 104_729)
NUMBERS: Final = (0, 1, 2, 3, 7, 64)


@dataclass(frozen=True)
class Operator:
    """A function from a view to another, checked on a sample that is watched, broken and re-encoded.

    `blocking` says that it has to see all rows before it gives the first (a
    sort does), else `ahead` is how many it may read for that; `caches` says
    that it keeps what it read.

    >>> from trueline import View, testing
    >>> report = testing.check(Operator(lambda view: view.limit(3)), View.range(9))
    >>> "K10.merged" in report.held
    True
    """

    make: Callable[[View], ViewLike]
    blocking: bool = False
    ahead: int = 500
    caches: bool = False


@dataclass(frozen=True)
class Loader:
    """A function from CSV files (with a line of names) to a view; the sample is such a file.

    `counted` returns, for a view that was read, the bad cells by column; without
    it a warning has to be given, on Trueline's console or Python's.

    >>> from trueline import View
    >>> loader = Loader(lambda paths: View.read_csv(paths), counted=lambda view: view.bad)
    >>> loader.separator
    ','
    """

    read: Callable[[list[Path]], ViewLike]
    counted: Callable[[ViewLike], Mapping[str, int]] | None = None
    separator: str = ","
    garbage: str = "?garbage?"


@dataclass(frozen=True)
class Saver:
    """Functions that write a view to a path and read it back; the sample is a view.

    `losses` are what the format cannot keep, of `LOSSES`: each has to be lost,
    and nothing else may be.

    >>> from trueline import View
    >>> saver = Saver(lambda view, path: view.write_parquet(path), View.read_parquet, suffix=".parquet")
    >>> saver.losses
    frozenset()
    """

    write: Callable[[View, Path], object]
    read: Callable[[Path], ViewLike]
    losses: frozenset[str] = frozenset()
    suffix: str = ""


LOSSES: Final = frozenset({"annotations", "hidden columns", "types", "empty text"})


@dataclass(frozen=True)
class Split:
    """A function from a view to parts that share its rows.

    >>> split = Split(lambda view: view.split([0.5, 0.5]))
    >>> from trueline import View
    >>> [part.can_shuffle for part in split.make(View.range(9))]
    [True, True]
    """

    make: Callable[[View], Sequence[ViewLike] | Mapping[str, ViewLike]]


@dataclass
class ViewSubject:
    """A view under check, and what has been read of it."""

    view: ViewLike
    patience: float = 60.0
    random: random.Random = field(default_factory=lambda: random.Random(0))  # noqa: S311 (a choice, not a secret)

    @property
    def all(self) -> list[int]:
        """All columns, hidden ones too, by their places."""
        return list(range(len(self.view.schema)))

    def name(self, column: int) -> str:
        """The name of a column."""
        return self.view.schema[column].name

    @cached_property
    def serial(self) -> RowsRead:
        """All rows of all columns, in order."""
        return self.read()

    def read(self, columns: Sequence[int] | None = None, seed: int | None = None) -> RowsRead:
        """Read with one cursor."""
        chosen = self.all if columns is None else list(columns)
        with self.view.cursor(chosen, seed=seed) as cursor:
            return drain(cursor, chosen)

    def read_set(
        self, n: int, seed: int | None = None, columns: Sequence[int] | None = None
    ) -> list[RowsRead]:
        """Read with a set of cursors, one after another."""
        chosen = self.all if columns is None else list(columns)
        found = []
        for member in self.view.cursor_set(chosen, n=n, seed=seed):
            with member:
                found.append(drain(member, chosen))
        return found


@dataclass
class ComponentSubject:
    """An operator, loader, saver or split under check, and its sample."""

    component: Any
    sample: Any
    folder: Path
    patience: float = 60.0
