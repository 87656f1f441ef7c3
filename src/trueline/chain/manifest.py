"""A dataset described by hand: the `DatasetSnapshot` manifest, expanded into blocks."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from trueline.chain.block import Block
from trueline.chain.events import (
    AddData,
    AddPushSource,
    DatasetKind,
    DisablePollingSource,
    DisablePushSource,
    Event,
    ExecuteTransform,
    Seed,
    SetPollingSource,
    SetTransform,
    TransformInput,
)
from trueline.chain.head_state import Tail, follow, next_block
from trueline.chain.instant import Instant
from trueline.chain.rules import check
from trueline.chain.sources import SqlQueryStep, TransformSql
from trueline.chain.text import open_manifest, record_from_dict, to_dict
from trueline.chain.wire import Record
from trueline.errors import InputError, ManifestError
from trueline.identity.dataset_id import DatasetId

Resolve = Callable[[str], DatasetId | None]
_NOT_IN_A_SNAPSHOT = (Seed, AddData, ExecuteTransform, DisablePushSource, DisablePollingSource)


@dataclass(frozen=True, slots=True)
class DatasetSnapshot:
    """Name, kind and the events that define a dataset.

    >>> snapshot = DatasetSnapshot.from_dict(
    ...     {
    ...         "kind": "DatasetSnapshot",
    ...         "version": 1,
    ...         "content": {
    ...             "name": "trades",
    ...             "kind": "Root",
    ...             "metadata": [{"kind": "SetInfo", "description": "All trades"}],
    ...         },
    ...     }
    ... )
    >>> snapshot.name, snapshot.kind.name, len(snapshot.events)
    ('trades', 'Root', 1)
    """

    name: str
    kind: DatasetKind
    events: tuple[Event, ...]

    @classmethod
    def from_yaml(cls, text: str | bytes) -> DatasetSnapshot:
        """Read a manifest file."""
        from trueline.chain import yaml_text

        value = yaml_text.load(text)
        if not isinstance(value, Mapping):
            raise ManifestError("the manifest is not a mapping", remedy="write kind, version and content")
        return cls.from_dict(value)

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> DatasetSnapshot:
        """Read a manifest, with its wrapper."""
        if "content" not in value:
            raise ManifestError("the manifest has no content", remedy="write kind, version and content")
        content = open_manifest(value, "DatasetSnapshot", (1,))
        snapshot = record_from_dict(content, _Content, "content")
        assert isinstance(snapshot, _Content)
        return cls(snapshot.name, snapshot.kind, snapshot.metadata)

    def to_dict(self) -> dict[str, Any]:
        """Return the manifest."""
        events = [to_dict(event) for event in self.events]
        content = {"name": self.name, "kind": self.kind.name, "metadata": events}
        return {"kind": "DatasetSnapshot", "version": 1, "content": content}

    def blocks(
        self, dataset_id: DatasetId, resolve: Resolve | None = None, system_time: Instant | None = None
    ) -> list[Block]:
        """Return the Seed and one block per event, checked by the rules of the chain.

        `resolve` finds the id of an input by its name; all that are missing are
        reported together.
        """
        events = [self._normalised(event, index, resolve) for index, event in enumerate(self.events)]
        self._all_inputs_resolved(events)
        now = Instant.now() if system_time is None else system_time
        blocks: list[Block] = []
        tail: Tail | None = None
        for event in (Seed(dataset_id, self.kind), *events):
            block = next_block(tail, event, now)
            for finding in check(tail, block):
                raise finding.error()
            tail = follow(tail, block)
            blocks.append(block)
        return blocks

    def _normalised(self, event: Event, index: int, resolve: Resolve | None) -> Event:
        if isinstance(event, _NOT_IN_A_SNAPSHOT):
            raise ManifestError(
                f"metadata[{index}]: {event.KIND} cannot be part of a manifest",
                remedy="a manifest defines a dataset; what happens to it is recorded by commits",
            )
        if isinstance(event, SetPollingSource | AddPushSource) and event.preprocess is not None:
            return replace(event, preprocess=_queries(event.preprocess, index))
        if isinstance(event, SetTransform):
            inputs = tuple(_resolved(source, resolve) for source in event.inputs)
            return SetTransform(inputs, _queries(event.transform, index))
        return event

    def _all_inputs_resolved(self, events: list[Event]) -> None:
        missing = [
            source.dataset_ref
            for event in events
            if isinstance(event, SetTransform)
            for source in event.inputs
            if not source.dataset_ref.startswith("did:")
        ]
        if missing:
            raise ManifestError(
                f"inputs that do not exist: {', '.join(missing)}",
                remedy="create them first",
                missing=tuple(missing),
            )


@dataclass(frozen=True, slots=True)
class _Content(Record):
    name: str
    kind: DatasetKind
    metadata: tuple[Event, ...]


def _resolved(source: TransformInput, resolve: Resolve | None) -> TransformInput:
    alias = source.alias if source.alias is not None else source.dataset_ref
    if source.dataset_ref.startswith("did:"):
        try:
            return TransformInput(str(DatasetId.parse(source.dataset_ref)), alias)
        except InputError as error:
            raise ManifestError(error.problem, remedy=error.remedy) from None
    found = resolve(source.dataset_ref) if resolve is not None else None
    return TransformInput(source.dataset_ref if found is None else str(found), alias)


def _queries(transform: TransformSql, index: int) -> TransformSql:
    """Turn the short form `query` into the one entry of `queries`."""
    if transform.query is None:
        nameless = [step for step in transform.queries or () if step.alias is None]
        if len(nameless) > 1:
            raise ManifestError(
                f"metadata[{index}]: {len(nameless)} queries have no alias",
                remedy="name every query but the last",
            )
        return transform
    if transform.queries:
        raise ManifestError(f"metadata[{index}]: both query and queries are given", remedy="keep queries")
    return replace(transform, query=None, queries=(SqlQueryStep(query=transform.query),))
