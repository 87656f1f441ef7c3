"""Finding where datasets agree, in short and in long chains: all at their heads, and one far behind."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, cast

import trueline as tl
from bench import rows
from bench.chains import Family, Place, add_data, close, execute, fill, opened
from bench.machine import lacks_room
from bench.run import Run
from bench.table import Row, duration
from bench.timing import alternate, settle
from trueline.chain import Chain, Folder
from trueline.chain.branch import Branch
from trueline.chain.events import ExecuteTransform, TransformInput
from trueline.chain.head_state import Position
from trueline.chain.instant import Instant
from trueline.chain.sources import SqlQueryStep
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.definition import vocabulary
from trueline.dataset.derivation import Derivation, KeyKind
from trueline.errors import ObjectMissing
from trueline.identity import DatasetId, Multihash
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import FOLD, CutLog
from trueline.workspace.snapshot.histories import ChainHistory
from trueline.workspace.snapshot.search import Search

SHORT = 100
MOST = 3.0
# Nine thousand of them are folded, the others are objects of their own.
CUTS = 10_500
NOTE = (
    "snapshots: two roots and two derived datasets over them; heads are looked at again each time. Far "
    "behind: one was stopped halfway, so that the others are searched back to there."
)


def run(run: Run) -> Iterator[Row]:
    short, long = min(SHORT, run.scale.blocks[0]), run.scale.blocks[1]
    if missing := lacks_room(run.folder, 6 * (short + long)):
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
    yield _whole(run, short, long)


def _whole(run: Run, short: int, long: int) -> Row:
    """What a reader pays: intents, the log of cuts, the search, its proof and the lease."""
    with _shop(run, short) as few, _shop(run, long) as many:
        settle()
        taken = alternate({"few": lambda: _snapshot(few), "many": lambda: _snapshot(many)}, run.scale.rounds)
    ratio = taken["many"].median / taken["few"].median
    return Row(
        "snapshots",
        f"ws.snapshot of two roots and a derived dataset, with its lease; {min(long, CUTS):,} cuts, "
        f"of them {max(min(long, CUTS) // FOLD - 1, 0) * FOLD:,} folded",
        duration(taken["many"], f"{long:,} commits: "),
        duration(taken["few"], f"{short:,}: "),
        ratio,
        f"≤ {MOST} × at {short:,}",
        ratio <= MOST,
    )


def _snapshot(workspace: tl.Workspace) -> None:
    workspace.snapshot("root", "slow", "derived").close()


@contextmanager
def _shop(run: Run, commits: int) -> Iterator[tl.Workspace]:
    """A workspace with two roots, and a dataset derived from one of them, of so many commits each."""
    with tl.open(run.folder / f"snapshots-{commits}", create=True) as workspace:
        root, slow = (workspace.create(name, schema=rows.table(1).schema) for name in ("root", "slow"))
        with run.doing(f"writing {commits:,} commits"):
            for each in (root, slow):
                fill(each.chain, add_data, commits)
            derived = _derived(workspace, root)
            fill(derived.chain, execute(derived.chain, commits, [(root.id, root.chain)]), commits)
            event = derived.chain.tail().data  # type: ignore[union-attr]
            number = derived.chain.tail().sequence_number  # type: ignore[union-attr]
            assert isinstance(event, ExecuteTransform)
            assert event.new_checkpoint is not None
            put = derived.chain.store.put(Folder.CHECKPOINTS, b"checkpoint %d" % number)
            assert put == event.new_checkpoint.physical_hash
            derived.chain.store.sync()
            recorded(workspace, (root, slow), min(commits, CUTS))
        yield workspace


def recorded(workspace: tl.Workspace, roots: Sequence[tl.Dataset], count: int) -> None:
    """Put as many cuts as pulls would have recorded, the last at the heads, and fold the old ones."""
    objects, time = workspace._location.cuts(), Instant.now()  # noqa: SLF001
    for number in range(1, count + 1):
        positions = {}
        for root in roots:
            tail = root.chain.tail()
            assert tail is not None
            entry = root.chain.entry_number(tail.sequence_number * number // count)
            assert entry is not None
            positions[root.id] = Position(entry.hash, entry.last_offset)
        cut = Cut(positions, number, time)
        assert objects.put_new(f"cut/{number}", cut.to_bytes(), durable=False)
    log = CutLog.of(workspace)
    assert log.fold() == max(count // FOLD - 1, 0)
    newest = log.newest()
    assert newest.number == count
    assert all(newest[root.id].block == root.head for root in roots)


def _derived(workspace: tl.Workspace, root: tl.Dataset) -> tl.Dataset:
    step = SqlQueryStep(query="select * from root")
    derivation = Derivation(
        (step,),
        (TransformInput(str(root.id), "root"),),
        ("id",),
        KeyKind.DECLARED,
        step.query,
        canonical=(step.query,),
    )
    whole = whole_schema(rows.table(1).schema, vocabulary(None))
    plan = CreationPlan(lambda owner, now: derivation.blocks(owner, whole, now), lambda _: [])
    return make(workspace, "derived", plan)


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
