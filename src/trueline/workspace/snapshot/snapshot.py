"""A snapshot: several datasets read at one state of the world."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self, cast

from trueline.chain.chain import Chain
from trueline.chain.head_state import Position
from trueline.chain.store.store import Folder, Store
from trueline.dataset.commit import Commit, commit_at
from trueline.dataset.duration import seconds
from trueline.errors import CutGone, DatasetNotFound, InputError, ObjectMissing
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.snapshot.lease import SnapshotLease

if TYPE_CHECKING:
    from trueline.view import View
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


@dataclass(frozen=True, eq=False)
class WorkspaceSnapshot:
    """Datasets at positions that agree: each shows exactly what the definitions make of one cut.

    `snap["daily"]` is the view of one, `positions` says where each is. `cut` holds the last offset of every
    root it rests on, None where that has no record. `ids` says who each of them is, whatever it is called
    later. `groups` are the datasets by what they share: those of
    different groups have nothing in common and are each at their newest. While it is open, `gc` spares what
    it reads, also what a reset cuts off; `with` or `close` ends that.
    """

    workspace: Workspace = field(repr=False)
    datasets: Mapping[str, Dataset]
    positions: Mapping[str, Position]
    origin: Mapping[str, Position]
    ids: Mapping[str, DatasetId]
    groups: tuple[tuple[str, ...], ...]
    lag: Mapping[str, int]
    number: int | None = None
    lease: SnapshotLease | None = field(default=None, repr=False)
    _cut_off: dict[str, Chain] = field(default_factory=dict, repr=False)

    # --- what it is -------------------------------------------------------------------

    @property
    def cut(self) -> dict[str, int | None]:
        """The last offset of each root, by name.

        `ws.snapshot(…, cut=snap.cut)` is the same again unless a root was reset since.
        """
        return {name: at.offset for name, at in self.origin.items()}

    @property
    def shown_cut(self) -> str:
        """The cut as people write it, in the shell too: `cut="transfers=41@6643f3ac,fx=none"` is it again.

        It names commits, since others may end at an offset after a reset.
        """
        return ",".join(
            f"{name}=none" if at.offset is None else f"{name}={at.offset}@{at.block.short}"
            for name, at in self.origin.items()
        )

    @cached_property
    def at(self) -> dict[str, Commit]:
        """The commit each dataset is read at, by name."""
        return {name: self._commit(name) for name in self.datasets}

    @cached_property
    def own_cuts(self) -> dict[str, dict[str, str]]:
        """The roots that are such since they read inputs at cuts of their own: each input with the reason."""
        from trueline.workspace.dependencies import node_of

        known = (name for name in self.origin if name in self.workspace)
        found = {name: node_of(self.workspace[name]).own_cuts for name in known}
        return {name: dict(reasons) for name, reasons in found.items() if reasons}

    @property
    def shown_own_cuts(self) -> str:
        """The same in a line for people, empty if there are none (cut:P16)."""
        lines = (
            f"{name} reads {each} at a cut of its own: {why}"
            for name, reasons in self.own_cuts.items()
            for each, why in reasons.items()
        )
        return "; ".join(lines)

    def _commit(self, name: str) -> Commit:
        return commit_at(name, self._chain(name)[1], self.positions[name].block)

    def __iter__(self) -> Iterator[str]:
        return iter(self.datasets)

    def __len__(self) -> int:
        return len(self.datasets)

    def __bool__(self) -> bool:
        return True

    def __contains__(self, name: object) -> bool:
        return name in self.datasets

    # --- reading ----------------------------------------------------------------------

    def __getitem__(self, name: str) -> View:
        from trueline.dataset.read import view_of

        dataset, chain = self._chain(name)
        block = self.positions[name].block
        if chain is dataset.chain:
            return dataset.view(block)
        return dataset._at_home(view_of(name, chain, block, system=False))

    def _dataset(self, name: str) -> Dataset:
        if name not in self.datasets:
            raise DatasetNotFound(
                f"{name!r} is not in this snapshot of {', '.join(self.datasets)}",
                remedy=f"name it too: ws.snapshot({', '.join(map(repr, (*self.datasets, name)))})",
                name=name,
            )
        if self.lease is not None:
            self.lease.renew()
        return self.datasets[name]

    def _chain(self, name: str) -> tuple[Dataset, Chain]:
        """Return a dataset and the chain that has its position: its own, or what a reset has cut off."""
        dataset, block = self._dataset(name), self.positions[name].block
        if dataset.chain.entry(block) is not None:
            return dataset, dataset.chain
        if name not in self._cut_off:
            self._cut_off[name] = cut_off(dataset, block)
        return dataset, self._cut_off[name]

    def sql(self, query: str, /, **parameters: object) -> View:
        """Answer a query over the datasets of the snapshot, each as it is here."""
        from trueline.workspace.sql import query as answer

        return answer(self.workspace, query, self, parameters)

    def create_views(self, spark: Any) -> tuple[str, ...]:
        """Make a temporary view of each dataset in a session of Spark, by its name; returns the names."""
        for name in self.datasets:
            self[name].to_spark(spark).createOrReplaceTempView(f"`{name}`")
        return tuple(self.datasets)

    def changes(self, name: str, since: WorkspaceSnapshot) -> View:
        """View the events of a dataset between an earlier snapshot and this one.

        Of all datasets of both: the rows of the earlier one and these changes make the rows of this one.
        """
        if not isinstance(since, WorkspaceSnapshot):
            raise InputError(
                f"{since!r:.80} is not a snapshot",
                remedy="give an earlier snapshot of the same datasets",
                code="BadSnapshot",
            )
        from trueline.dataset.read import changes_of

        dataset, chain = self._chain(name)
        twin = next((each for each in since.datasets if since.ids[each] == self.ids[name]), None)
        if twin is None:
            raise InputError(
                f"the earlier snapshot does not have {name!r}: it is of {', '.join(since)}",
                remedy="give an earlier snapshot of the same datasets",
                code="BadSnapshot",
            )
        upto, after = self.positions[name].block, since.positions[twin].block
        if chain.entry(after) is None:
            raise gone(name, after if chain is dataset.chain else upto)
        return dataset._at_home(changes_of(name, chain, after, upto, system=False))

    # --- shown ------------------------------------------------------------------------

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values, for programs."""
        return {
            "cut": self.cut,
            "number": self.number,
            "datasets": {
                name: {"commit": str(at.block), "offset": at.offset, "behind": self.lag.get(name, 0)}
                for name, at in self.positions.items()
            },
            "groups": [list(group) for group in self.groups],
            "own_cuts": self.own_cuts,
        }

    def __str__(self) -> str:
        return "; ".join(" = ".join(self._shown(name) for name in group) for group in self.groups)

    def _shown(self, name: str) -> str:
        return f"{name}@{self.positions[name].block.short}"

    def __repr__(self) -> str:
        return f"<Snapshot {self}>"

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html_table

        roots = ", ".join(f"{name} {_offset(at)}" for name, at in self.origin.items())
        rows = [
            (name, at.block.short, _offset(at), self.lag.get(name, 0), number + 1)
            for number, group in enumerate(self.groups)
            for name, at in ((name, self.positions[name]) for name in group)
        ]
        columns = ("dataset", "commit", "last offset", "newer commits", "group")
        own = f"; {self.shown_own_cuts}" if self.own_cuts else ""
        return html_table(f"Snapshot at {roots or 'no records'}{own}", columns, rows)

    # --- held -------------------------------------------------------------------------

    def close(self) -> None:
        """Let `gc` remove what only this snapshot still reads."""
        if self.lease is not None:
            self.lease.release()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def _offset(at: Position) -> str:
    return "no record" if at.offset is None else f"{at.offset:,}"


class HeldStore:
    """A store whose head is a block that was held on to: what a reset cut off is read as before."""

    def __init__(self, store: Store, head: Multihash) -> None:
        self._store = store
        self._head = head

    def head(self, ref: str = "head") -> Multihash | None:
        """Return the block that was held on to."""
        return self._head if ref == "head" else self._store.head(ref)

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return getattr(self._store, name)

    def __reduce__(self) -> tuple[Any, ...]:
        return HeldStore, (self._store, self._head)


def cut_off(dataset: Dataset, block: Multihash) -> Chain:
    """Return the chain up to a block that is not on the present branch; `CutGone` if it is not there at all.

    Its blocks are read once.
    """
    store = dataset.chain.store
    if store.size(Folder.BLOCKS, block) is None:
        raise gone(dataset.name, block)
    chain = Chain(cast("Store", HeldStore(store, block)))
    chain.limits = dataset.chain.limits
    try:
        chain.tail()
    except ObjectMissing:
        raise gone(dataset.name, block) from None
    return chain


@dataclass(frozen=True, slots=True)
class PrintedPosition:
    """An offset, and the end of the hash of the commit that ends there, as a snapshot shows them."""

    offset: int
    block: str


def gone(name: str, block: Multihash | str) -> CutGone:
    """The error of a position that a reset has cut off."""
    short = block.short if isinstance(block, Multihash) else block
    return CutGone(
        f"commit {short} of {name!r} is not there any more: a reset has cut it off",
        remedy="give a later cut; a tag or an open snapshot keeps what it names",
        dataset=name,
        block=block,
    )


@dataclass(frozen=True, slots=True)
class Waiting:
    """What a commit needs to be waited for: the dataset it is of. It stays in its process."""

    dataset: Dataset

    def __call__(
        self, commit: Commit, names: Sequence[str], timeout: str | float | timedelta | None
    ) -> WorkspaceSnapshot:
        """Wait until a commit is visible in datasets."""
        from trueline.workspace.snapshot.wait import wait_for

        return wait_for(self.dataset, commit, names, None if timeout is None else seconds(timeout))

    def __reduce__(self) -> tuple[Any, ...]:
        return _elsewhere, ()


def _elsewhere() -> None:
    return None
