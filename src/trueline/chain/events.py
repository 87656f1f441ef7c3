"""What can happen to a dataset: every event of the specification."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar

from trueline.chain.datatypes import DataSchema, Extra
from trueline.chain.instant import Instant
from trueline.chain.sources import FetchStep, MergeStrategy, PrepStep, ReadStep, Transform
from trueline.chain.wire import U64, Plain, Record, union
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash


class DatasetKind(IntEnum):
    """Root: data enters from outside. Derivative: a function of other datasets."""

    Root = 0
    Derivative = 1


@dataclass(frozen=True, slots=True)
class OffsetInterval(Record):
    """The closed interval of offsets a slice holds."""

    start: U64
    end: U64


@dataclass(frozen=True, slots=True)
class DataSlice(Record):
    """A Parquet file of records with dense offsets."""

    logical_hash: Multihash
    physical_hash: Multihash
    offset_interval: OffsetInterval
    size: U64


@dataclass(frozen=True, slots=True)
class Checkpoint(Record):
    """A file of state a transaction leaves for the next."""

    physical_hash: Multihash
    size: U64


@dataclass(frozen=True, slots=True)
class SourceState(Record):
    """How far a source has been read."""

    source_name: str
    kind: str
    value: str


@dataclass(frozen=True, slots=True)
class AddData(Record):
    """Data, watermark, source state or checkpoint of a root moves on."""

    KIND: ClassVar[str] = "AddData"
    prev_checkpoint: Multihash | None = None
    prev_offset: U64 | None = None
    new_data: DataSlice | None = None
    new_checkpoint: Checkpoint | None = None
    new_watermark: Instant | None = None
    new_source_state: SourceState | None = None
    extra: Extra | None = None

    @property
    def last_offset(self) -> int | None:
        """The last offset of the dataset after this event, None if it has no record yet."""
        return self.new_data.offset_interval.end if self.new_data else self.prev_offset


@dataclass(frozen=True, slots=True)
class ExecuteTransformInput(Record):
    """What a transaction took from one input: (prev, new] of its blocks and offsets."""

    dataset_id: DatasetId
    prev_block_hash: Multihash | None = None
    new_block_hash: Multihash | None = None
    prev_offset: U64 | None = None
    new_offset: U64 | None = None

    @property
    def last_block(self) -> Multihash | None:
        """The newest block of the input taken so far."""
        return self.new_block_hash if self.new_block_hash is not None else self.prev_block_hash

    @property
    def last_offset(self) -> int | None:
        """The last offset of the input taken so far."""
        return self.new_offset if self.new_offset is not None else self.prev_offset


@dataclass(frozen=True, slots=True)
class ExecuteTransform(Record):
    """A derivative moves on over what its inputs added."""

    KIND: ClassVar[str] = "ExecuteTransform"
    query_inputs: tuple[ExecuteTransformInput, ...]
    prev_checkpoint: Multihash | None = None
    prev_offset: U64 | None = None
    new_data: DataSlice | None = None
    new_checkpoint: Checkpoint | None = None
    new_watermark: Instant | None = None

    @property
    def last_offset(self) -> int | None:
        """The last offset of the dataset after this event, None if it has no record yet."""
        return self.new_data.offset_interval.end if self.new_data else self.prev_offset

    @property
    def takes_blocks(self) -> bool:
        """Whether it takes at least one new block of an input."""
        return any(taken.new_block_hash is not None for taken in self.query_inputs)

    @property
    def is_part(self) -> bool:
        """Whether its commit goes on: records, but neither a new block of an input nor a new checkpoint."""
        if self.new_data is None:
            return False
        new = self.new_checkpoint
        return (new is None or new.physical_hash == self.prev_checkpoint) and not self.takes_blocks


@dataclass(frozen=True, slots=True)
class Seed(Record):
    """The first event: who the dataset is."""

    KIND: ClassVar[str] = "Seed"
    dataset_id: DatasetId
    dataset_kind: DatasetKind


@dataclass(frozen=True, slots=True, kw_only=True)
class SetPollingSource(Record):
    """The dataset is filled by fetching."""

    KIND: ClassVar[str] = "SetPollingSource"
    fetch: FetchStep
    prepare: tuple[PrepStep, ...] | None = None
    read: ReadStep
    preprocess: Transform | None = None
    merge: MergeStrategy


@dataclass(frozen=True, slots=True)
class TransformInput(Record):
    """A dataset a transform reads, under the name its queries use."""

    dataset_ref: str
    alias: str | None = None


@dataclass(frozen=True, slots=True)
class SetTransform(Record):
    """The function a derivative computes from now on."""

    KIND: ClassVar[str] = "SetTransform"
    inputs: tuple[TransformInput, ...]
    transform: Transform


@dataclass(frozen=True, slots=True)
class SetVocab(Record):
    """The names of the system columns."""

    KIND: ClassVar[str] = "SetVocab"
    offset_column: str | None = None
    operation_type_column: str | None = None
    system_time_column: str | None = None
    event_time_column: str | None = None

    @property
    def offset(self) -> str:
        return self.offset_column or "offset"

    @property
    def op(self) -> str:
        return self.operation_type_column or "op"

    @property
    def system_time(self) -> str:
        return self.system_time_column or "system_time"

    @property
    def event_time(self) -> str:
        return self.event_time_column or "event_time"

    @property
    def names(self) -> tuple[str, str, str, str]:
        """The four names in the order the columns have in a slice."""
        return self.offset, self.op, self.system_time, self.event_time


@dataclass(frozen=True, slots=True)
class AttachmentEmbedded(Record):
    """A small file kept inside the block."""

    path: str
    content: str


@dataclass(frozen=True, slots=True)
class AttachmentsEmbedded(Record):
    """Small files kept inside the block."""

    KIND: ClassVar[str] = "Embedded"
    items: tuple[AttachmentEmbedded, ...]


Attachments = Annotated[AttachmentsEmbedded, union]


@dataclass(frozen=True, slots=True)
class SetAttachments(Record):
    """Readmes and the like."""

    KIND: ClassVar[str] = "SetAttachments"
    attachments: Attachments


@dataclass(frozen=True, slots=True)
class SetInfo(Record):
    """What the dataset is, in words."""

    KIND: ClassVar[str] = "SetInfo"
    description: str | None = None
    keywords: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class SetLicense(Record):
    """The terms the data may be used under."""

    KIND: ClassVar[str] = "SetLicense"
    short_name: str
    name: str
    spdx_id: str | None = None
    website_url: str


@dataclass(frozen=True, slots=True)
class SetDataSchema(Record):
    """The schema of the slices that follow; the raw Arrow form is read, never written."""

    KIND: ClassVar[str] = "SetDataSchema"
    raw_arrow_schema: bytes | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class AddPushSource(Record):
    """The dataset is filled by those who push to it."""

    KIND: ClassVar[str] = "AddPushSource"
    source_name: str
    read: ReadStep
    preprocess: Transform | None = None
    merge: MergeStrategy


@dataclass(frozen=True, slots=True)
class DisablePushSource(Record):
    """A push source ends."""

    KIND: ClassVar[str] = "DisablePushSource"
    source_name: str


class DisablePollingSource(Plain):
    """The polling source ends."""

    __slots__ = ()
    KIND: ClassVar[str] = "DisablePollingSource"


DataEvent = AddData | ExecuteTransform
Event = Annotated[
    AddData
    | ExecuteTransform
    | Seed
    | SetPollingSource
    | SetTransform
    | SetVocab
    | SetAttachments
    | SetInfo
    | SetLicense
    | SetDataSchema
    | AddPushSource
    | DisablePushSource
    | DisablePollingSource,
    union,
]
