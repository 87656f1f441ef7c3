"""What the scenarios of one run share: sizes, a place on disk, chains that are prepared once."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

from bench.scale import Scale

if TYPE_CHECKING:
    from bench.chains import Family


@dataclass
class Run:
    """One run: how much, where, and whether the peers are run too."""

    scale: Scale
    folder: Path
    peers: bool = True
    families: dict[int, Family] = field(default_factory=dict)

    def family(self, blocks: int) -> Family:
        """Return the prepared chains of a length, written when they are first asked for."""
        from bench.chains import Family

        if blocks not in self.families:
            with self.doing(f"writing chains of {blocks:,} blocks"):
                self.families[blocks] = Family.write(self.folder / f"chains-{blocks}", blocks)
        return self.families[blocks]

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Say on stderr what takes time, and how long it took."""
        print(f"  {what} …", end="", file=sys.stderr, flush=True)
        start = time.perf_counter()
        try:
            yield
        finally:
            print(f" {time.perf_counter() - start:.1f} s", file=sys.stderr, flush=True)
