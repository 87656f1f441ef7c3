"""Chains for tests, built the way users build them: `Block.from_dict` and `Chain(MemoryStore())`."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from tests.contracts.register import contracts
from trueline.chain import Appended, Block, Chain, Folder, MemoryStore, Store
from trueline.errors import TruelineError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

ABSENT: Any = object()
"""A header that is left out."""

START = datetime(2026, 1, 1, tzinfo=UTC)
SYSTEM_COLUMNS = [
    {"name": "offset", "type": "Int64"},
    {"name": "op", "type": "Int32"},
    {"name": "system_time", "type": {"kind": "Timestamp"}},
    {"name": "event_time", "type": {"kind": "Option", "inner": {"kind": "Timestamp"}}},
]


def digest(label: object) -> str:
    """A hash that stands for something."""
    return str(Multihash.of(str(label).encode()))


def dataset_id(label: object) -> DatasetId:
    return DatasetId("did:odf:fed01" + digest(label)[-64:])


def moment(minutes: float) -> str:
    return (START + timedelta(minutes=minutes)).isoformat().replace("+00:00", "Z")


# --- events -------------------------------------------------------------------


def seed(kind: str = "Root", label: object = "this") -> dict[str, Any]:
    return {"kind": "Seed", "datasetId": str(dataset_id(label)), "datasetKind": kind}


def set_data_schema(*columns: dict[str, Any], system: list[dict[str, Any]] | None = None) -> dict[str, Any]:
    fields = [*(SYSTEM_COLUMNS if system is None else system), *columns]
    return {"kind": "SetDataSchema", "schema": {"fields": copy.deepcopy(fields)}}


def data_slice(start: int, end: int, label: object = "slice") -> dict[str, Any]:
    return {
        "logicalHash": digest(f"logical {label} {start}"),
        "physicalHash": digest(f"physical {label} {start}"),
        "offsetInterval": {"start": start, "end": end},
        "size": 100,
    }


def checkpoint(label: object) -> dict[str, Any]:
    return {"physicalHash": digest(label), "size": 10}


def source_state(value: object, name: str = "default") -> dict[str, Any]:
    return {"sourceName": name, "kind": "odf/etag", "value": str(value)}


def event(
    kind: str,
    *,
    data: tuple[int, int] | None = None,
    prev: int | None = None,
    watermark: float | None = None,
    was: object = None,
    leaves: object = None,
    **more: Any,
) -> dict[str, Any]:
    """A data event: `data` is its interval, `was` and `leaves` name checkpoints, `watermark` is a minute."""
    made: dict[str, Any] = {"kind": kind, **more}
    if was is not None:
        made["prevCheckpoint"] = digest(was)
    if prev is not None:
        made["prevOffset"] = prev
    if data is not None:
        made["newData"] = data_slice(*data)
    if leaves is not None:
        made["newCheckpoint"] = checkpoint(leaves)
    if watermark is not None:
        made["newWatermark"] = moment(watermark)
    return made


def add_data(data: tuple[int, int] | None = None, *, state: object = None, **more: Any) -> dict[str, Any]:
    if state is not None:
        more["newSourceState"] = source_state(state)
    return event("AddData", data=data, **more)


def taken(
    label: object,
    prev_block: object = None,
    new_block: object = None,
    prev_offset: int | None = None,
    new_offset: int | None = None,
) -> dict[str, Any]:
    """What a transaction takes from an input; blocks are hashes or labels of hashes."""
    values = {
        "datasetId": str(dataset_id(label)),
        "prevBlockHash": _name(prev_block),
        "newBlockHash": _name(new_block),
        "prevOffset": prev_offset,
        "newOffset": new_offset,
    }
    return {key: value for key, value in values.items() if value is not None}


def _name(block: object) -> str | None:
    return None if block is None else str(block) if isinstance(block, Multihash) else digest(block)


def execute(*inputs: dict[str, Any], **more: Any) -> dict[str, Any]:
    return event("ExecuteTransform", queryInputs=list(inputs), **more)


def sql(*queries: dict[str, Any], **more: Any) -> dict[str, Any]:
    return {"kind": "Sql", "engine": "spark", "queries": list(queries) or [{"query": "select 1"}], **more}


def set_transform(*labels: object, transform: dict[str, Any] | None = None) -> dict[str, Any]:
    inputs = [{"datasetRef": str(dataset_id(label)), "alias": f"input_{label}"} for label in labels]
    return {"kind": "SetTransform", "inputs": inputs, "transform": transform or sql()}


def push_source(name: str = "default", **more: Any) -> dict[str, Any]:
    return {
        "kind": "AddPushSource",
        "sourceName": name,
        "read": {"kind": "NdJson"},
        "merge": {"kind": "Append"},
    } | more


def polling_source(url: str = "https://example.org/a.csv", **more: Any) -> dict[str, Any]:
    return {
        "kind": "SetPollingSource",
        "fetch": {"kind": "Url", "url": url},
        "read": {"kind": "Csv"},
        "merge": {"kind": "Append"},
    } | more


# --- histories ----------------------------------------------------------------


class History:
    """A chain and the means to append to it and to be refused by it."""

    def __init__(
        self,
        kind: str = "Root",
        *events: dict[str, Any],
        label: object = "this",
        inputs: Mapping[DatasetId, Chain] | None = None,
        store: Store | None = None,
        empty: bool = False,
    ) -> None:
        self.store: Store = MemoryStore() if store is None else store
        self.chain = Chain(self.store, inputs)
        if not empty:
            self.append(seed(kind, label))
        for made in events:
            self.append(made)

    def block(self, made: dict[str, Any], **header: Any) -> Block:
        """The block that would come next; `header` replaces what the chain prescribes."""
        tail = self.chain.tail()
        number = tail.sequence_number + 1 if tail else 0
        value: dict[str, Any] = {
            "systemTime": moment(number),
            "prevBlockHash": str(tail.head) if tail else ABSENT,
            "sequenceNumber": number,
            "event": made,
        }
        value |= header
        return Block.from_dict({key: item for key, item in value.items() if item is not ABSENT})

    def append(self, made: dict[str, Any], *, strict: bool = True, **header: Any) -> Appended:
        return self.chain.append(self.block(made, **header), strict=strict)

    @property
    def head(self) -> Multihash:
        head = self.chain.head
        assert head is not None
        return head

    @property
    def last_offset(self) -> int | None:
        tail = self.chain.tail()
        assert tail is not None
        return tail.last_offset

    def visible(self) -> set[Multihash]:
        """The blocks other readers of the store can see."""
        return {stored.hash for stored in self.store.list(Folder.BLOCKS)}

    def refuses(
        self, block: Block, rule: str, *, holds: tuple[object, ...] = (), strict: bool = True
    ) -> TruelineError:
        """Expect the rule's error, with its values and a remedy, and nothing changed."""
        head, visible = self.chain.head, self.visible()
        with pytest.raises(TruelineError) as caught:
            self.chain.append(block, strict=strict)
        error = caught.value
        assert (error.rule, error.code) == (rule, contracts()[rule].error), str(error)
        for value in holds:
            assert str(value) in error.problem, f"{value} is not in the message: {error.problem}"
        assert error.remedy
        assert self.chain.head == head
        assert self.visible() == visible
        return error


def root(*events: dict[str, Any], **more: Any) -> History:
    """A root dataset with a schema."""
    return History("Root", set_data_schema(), *events, **more)


def derivative(*labels: object, events: tuple[dict[str, Any], ...] = (), **more: Any) -> History:
    """A derived dataset with a transform over the named inputs, and a schema."""
    return History("Derivative", set_transform(*labels), set_data_schema(), *events, **more)
