"""Finding where datasets agree, in short and in long chains: all at their heads, and one far behind."""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

from bench.chains import Family, Place, close, opened
from bench.machine import lacks_room
from bench.run import Run
from bench.table import Row, duration
from bench.timing import alternate, settle
from trueline.chain import Chain, Folder
from trueline.chain.branch import Branch
from trueline.errors import ObjectMissing
from trueline.identity import DatasetId, Multihash
from trueline.workspace.snapshot.histories import ChainHistory
from trueline.workspace.snapshot.search import Search

SHORT = 100
MOST = 3.0
NOTE = (
    "snapshots: two roots and two derived datasets over them; heads are looked at again each time. Far "
    "behind: one was stopped halfway, so that the others are searched back to there."
)


def run(run: Run) -> Iterator[Row]:
    short, long = min(SHORT, run.scale.blocks[0]), run.scale.blocks[1]
    if missing := lacks_room(run.folder, 3 * (short + long)):
        yield Row("snapshots", f"snapshot at {long:,} commits", note=f"not measured: {missing}")
        return
    looks = {length: Look(run.family(length)) for length in (short, long)}
    settle()
    for what, is_behind in (("all at their heads", False), ("one far behind", True)):
        counted = {length: look.counted(is_behind=is_behind) for length, look in looks.items()}
        actions = {str(n): partial(look.found, is_behind=is_behind) for n, look in looks.items()}
        taken = alternate(actions, run.scale.rounds)
        few, many = taken[str(short)], taken[str(long)]
        yield Row(
            "snapshots",
            f"find a snapshot, {what} ({counted[short]} and {counted[long]} blocks read)",
            duration(many, f"{long:,} commits: "),
            duration(few, f"{short:,}: "),
            many.median / few.median,
            f"≤ {MOST} × at {short:,}",
            many.median / few.median <= MOST,
            NOTE,
        )
    for look in looks.values():
        look.close()


class Look:
    """The chains of a family, opened once as a process has them that reads again and again."""

    def __init__(self, family: Family) -> None:
        self.family = family
        self.chains: dict[DatasetId, tuple[Place, Chain]] = {
            place.id: (place, place.open())
            for place in (family.sparse, family.joined, family.root, family.slow)
        }
        self.reads = 0
        self._put_checkpoints()

    def found(self, *, is_behind: bool) -> dict[DatasetId, int]:
        histories = {
            name: ChainHistory(cast("Any", None), Branch.of(chain), tuple(each.id for each in place.inputs))
            for name, (place, chain) in self.chains.items()
        }
        bounds: dict[DatasetId, int | None] = {
            self.family.sparse.id: self.family.blocks // 2 if is_behind else None,
            self.family.joined.id: None,
        }
        at = Search(histories).run(bounds)
        self.reads = sum(history.reads["blocks"] for history in histories.values())
        return at

    def counted(self, *, is_behind: bool) -> int:
        """How many blocks a search reads."""
        assert min(self.found(is_behind=is_behind).values()) > 0
        return self.reads

    def _put_checkpoints(self) -> None:
        """Put the checkpoints that searches look at: prepared chains only speak of them."""
        names = {Multihash.of(raw): raw for raw in map(_checkpoint, range(self.family.blocks + 1))}
        for is_behind in (False, True):
            while True:
                try:
                    self.found(is_behind=is_behind)
                    break
                except ObjectMissing as error:
                    for place in (self.family.sparse, self.family.joined):
                        with opened(place) as chain:
                            chain.store.put(Folder.CHECKPOINTS, names[error.hash])
                            chain.store.sync()

    def close(self) -> None:
        for _, chain in self.chains.values():
            close(chain)


def _checkpoint(number: int) -> bytes:
    return b"checkpoint %d" % number
