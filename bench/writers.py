"""The two ways ours appends: a ready slice on a chain, and a table into a dataset."""

from __future__ import annotations

from abc import ABC, abstractmethod
from pathlib import Path
from typing import Any, ClassVar

import trueline
from bench import rows
from bench.chains import Place, add_data, fill, new_root
from trueline.chain import Chain, Folder
from trueline.chain.head_state import next_add_data, next_block
from trueline.identity import DatasetId


class Writer(ABC):
    """Something that can be brought to a commit number and then commits 1,000 rows at a time."""

    label: ClassVar[str]

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    @abstractmethod
    def fill(self, upto: int) -> None:
        """Bring the dataset to a number of blocks by the bulk path."""

    @abstractmethod
    def open(self, *, durable: bool) -> None: ...

    def prepare(self, count: int) -> None:  # noqa: B027
        """Make ready what is not timed; most need nothing."""

    @abstractmethod
    def commit(self) -> None: ...

    @abstractmethod
    def close(self) -> None: ...


class ChainWriter(Writer):
    """Puts a ready slice and appends its block."""

    label = "slice ready"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.place: Place | None = None
        self.chain: Chain | None = None
        self.ready: list[rows.Ready] = []

    def fill(self, upto: int) -> None:
        if self.place is None:
            self.place = new_root(self.folder, "rows")
        self.open(durable=True)
        assert self.chain is not None
        fill(self.chain, add_data, upto, data=True)
        self.close()

    def open(self, *, durable: bool) -> None:
        assert self.place is not None
        self.chain = self.place.open(durable=durable)

    def prepare(self, count: int) -> None:
        tail = self.chain.tail() if self.chain else None
        assert tail is not None
        data, first = rows.table(), tail.next_offset
        self.ready = [rows.Ready.make(data, first + n * rows.ROWS) for n in reversed(range(count))]

    def commit(self) -> None:
        assert self.chain is not None
        ready = self.ready.pop()
        with self.chain.store.lease():
            tail = self.chain.tail()
            assert tail is not None
            self.chain.store.put(Folder.DATA, ready.raw)
            self.chain.append(next_block(tail, next_add_data(tail, new_data=ready.slice)))

    def close(self) -> None:
        if self.chain is not None:
            self.chain.close()
            self.chain = None


class WorkspaceWriter(Writer):
    """Appends a table to a dataset, as a user does."""

    label = "in-memory rows"

    def __init__(self, folder: Path) -> None:
        super().__init__(folder)
        self.data = rows.table()
        self.workspace: Any = None
        self.dataset: Any = None

    def fill(self, upto: int) -> None:
        """Fill the dataset's chain, whose place the format fixes; the workspace finds it there."""
        if not self.folder.exists():
            with trueline.open(self.folder, create=True) as workspace:
                workspace.create("rows").append(self.data)
        with trueline.open(self.folder) as workspace:
            name = DatasetId(workspace["rows"].id)
        index = self.folder / ".trueline" / "index" / "rows.sqlite"
        chain = Place(self.folder / "datasets" / "rows", index, name).open()
        fill(chain, add_data, upto, data=True)
        chain.close()

    def open(self, *, durable: bool) -> None:
        with trueline.open(self.folder) as workspace:
            workspace.config.set("storage.durable", durable)
        self.workspace = trueline.open(self.folder)
        self.dataset = self.workspace["rows"]

    def commit(self) -> None:
        self.dataset.append(self.data)

    def close(self) -> None:
        if self.workspace is not None:
            self.workspace.close()
            self.workspace = self.dataset = None


LEVELS: dict[str, type[Writer]] = {"chain": ChainWriter, "workspace": WorkspaceWriter}
