"""Where the data of a root dataset comes from and how it is merged."""

from __future__ import annotations

from dataclasses import dataclass
from enum import IntEnum
from typing import Annotated, ClassVar, Final

from trueline.chain.datatypes import DataSchema
from trueline.chain.wire import I32, U64, Flag, Plain, Record, union


class SourceOrdering(IntEnum):
    """In which order the files of a glob are read."""

    ByEventTime = 0
    ByName = 1


class CompressionFormat(IntEnum):
    """How a fetched file is compressed."""

    Gzip = 0
    Zip = 1


class MqttQos(IntEnum):
    """How hard an MQTT broker tries."""

    AtMostOnce = 0
    AtLeastOnce = 1
    ExactlyOnce = 2


class FromMetadata(Plain):
    """Event time from the source's metadata."""

    __slots__ = ()
    KIND: ClassVar[str] = "FromMetadata"


@dataclass(frozen=True, slots=True)
class FromPath(Record):
    """Event time from the path, by a pattern."""

    KIND: ClassVar[str] = "FromPath"
    pattern: str
    timestamp_format: str | None = None


class FromSystemTime(Plain):
    """Event time from the clock."""

    __slots__ = ()
    KIND: ClassVar[str] = "FromSystemTime"


EventTimeSource = Annotated[FromMetadata | FromPath | FromSystemTime, union]


class CacheForever(Plain):
    """A source that never changes once read."""

    __slots__ = ()
    KIND: ClassVar[str] = "Forever"


SourceCaching = Annotated[CacheForever, union]


@dataclass(frozen=True, slots=True)
class RequestHeader(Record):
    """A header sent with a request."""

    name: str
    value: str


@dataclass(frozen=True, slots=True)
class EnvVar(Record):
    """An environment variable of a container."""

    name: str
    value: str | None = None


@dataclass(frozen=True, slots=True)
class MqttTopic(Record):
    """A topic to subscribe to."""

    path: str
    qos: MqttQos | None = None


@dataclass(frozen=True, slots=True)
class FetchUrl(Record):
    """Fetch one file by its address."""

    KIND: ClassVar[str] = "Url"
    url: str
    event_time: EventTimeSource | None = None
    cache: SourceCaching | None = None
    headers: tuple[RequestHeader, ...] | None = None


@dataclass(frozen=True, slots=True)
class FetchFilesGlob(Record):
    """Fetch every file that matches a pattern."""

    KIND: ClassVar[str] = "FilesGlob"
    path: str
    event_time: EventTimeSource | None = None
    cache: SourceCaching | None = None
    order: SourceOrdering | None = None


@dataclass(frozen=True, slots=True)
class FetchContainer(Record):
    """Fetch by running a container."""

    KIND: ClassVar[str] = "Container"
    image: str
    command: tuple[str, ...] | None = None
    args: tuple[str, ...] | None = None
    env: tuple[EnvVar, ...] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class FetchMqtt(Record):
    """Fetch from an MQTT broker."""

    KIND: ClassVar[str] = "Mqtt"
    host: str
    port: I32
    username: str | None = None
    password: str | None = None
    topics: tuple[MqttTopic, ...]


@dataclass(frozen=True, slots=True)
class FetchEthereumLogs(Record):
    """Fetch the logs of an Ethereum chain."""

    KIND: ClassVar[str] = "EthereumLogs"
    chain_id: U64 | None = None
    node_url: str | None = None
    filter: str | None = None
    signature: str | None = None


FetchStep = Annotated[FetchUrl | FetchFilesGlob | FetchContainer | FetchMqtt | FetchEthereumLogs, union]


@dataclass(frozen=True, slots=True)
class Decompress(Record):
    """Decompress what was fetched."""

    KIND: ClassVar[str] = "Decompress"
    format: CompressionFormat
    sub_path: str | None = None


@dataclass(frozen=True, slots=True)
class Pipe(Record):
    """Send what was fetched through a command."""

    KIND: ClassVar[str] = "Pipe"
    command: tuple[str, ...]


PrepStep = Annotated[Decompress | Pipe, union]


@dataclass(frozen=True, slots=True)
class ReadCsv(Record):
    """Read comma-separated text."""

    KIND: ClassVar[str] = "Csv"
    ddl_schema: tuple[str, ...] | None = None
    separator: str | None = None
    encoding: str | None = None
    quote: str | None = None
    escape: str | None = None
    header: Flag | None = None
    infer_schema: Flag | None = None
    null_value: str | None = None
    date_format: str | None = None
    timestamp_format: str | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True)
class ReadGeoJson(Record):
    """Read one GeoJSON collection."""

    KIND: ClassVar[str] = "GeoJson"
    ddl_schema: tuple[str, ...] | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True)
class ReadEsriShapefile(Record):
    """Read an ESRI shapefile."""

    KIND: ClassVar[str] = "EsriShapefile"
    ddl_schema: tuple[str, ...] | None = None
    sub_path: str | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True)
class ReadParquet(Record):
    """Read Parquet."""

    KIND: ClassVar[str] = "Parquet"
    ddl_schema: tuple[str, ...] | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True)
class ReadJson(Record):
    """Read one JSON array of objects."""

    KIND: ClassVar[str] = "Json"
    sub_path: str | None = None
    ddl_schema: tuple[str, ...] | None = None
    date_format: str | None = None
    encoding: str | None = None
    timestamp_format: str | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True)
class ReadNdJson(Record):
    """Read one JSON object a line."""

    KIND: ClassVar[str] = "NdJson"
    ddl_schema: tuple[str, ...] | None = None
    date_format: str | None = None
    encoding: str | None = None
    timestamp_format: str | None = None
    schema: DataSchema | None = None


@dataclass(frozen=True, slots=True)
class ReadNdGeoJson(Record):
    """Read one GeoJSON feature a line."""

    KIND: ClassVar[str] = "NdGeoJson"
    ddl_schema: tuple[str, ...] | None = None
    schema: DataSchema | None = None


ReadStep = Annotated[
    ReadCsv | ReadGeoJson | ReadEsriShapefile | ReadParquet | ReadJson | ReadNdJson | ReadNdGeoJson, union
]


@dataclass(frozen=True, slots=True, kw_only=True)
class SqlQueryStep(Record):
    """One query of a transform; the last one has no alias and is the output."""

    alias: str | None = None
    query: str


@dataclass(frozen=True, slots=True)
class TemporalTable(Record):
    """A stream read as a temporal table."""

    name: str
    primary_key: tuple[str, ...]


# The engine that a transform of ours names; what it derives has a key, by which later events replace earlier.
ENGINE: Final = "trueline"


@dataclass(frozen=True, slots=True)
class TransformSql(Record):
    """Queries for an engine; `query` is the short form manifests may use."""

    KIND: ClassVar[str] = "Sql"
    engine: str
    version: str | None = None
    query: str | None = None
    queries: tuple[SqlQueryStep, ...] | None = None
    temporal_tables: tuple[TemporalTable, ...] | None = None

    @property
    def is_ours(self) -> bool:
        """Whether it is computed by this software."""
        return self.engine == ENGINE


Transform = Annotated[TransformSql, union]


class MergeAppend(Plain):
    """Every row is new."""

    __slots__ = ()
    KIND: ClassVar[str] = "Append"


@dataclass(frozen=True, slots=True)
class MergeLedger(Record):
    """Rows whose key is known are ignored."""

    KIND: ClassVar[str] = "Ledger"
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeSnapshot(Record):
    """Each batch is the whole state; differences become events."""

    KIND: ClassVar[str] = "Snapshot"
    primary_key: tuple[str, ...]
    compare_columns: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class MergeChangelogStream(Record):
    """Rows are events already."""

    KIND: ClassVar[str] = "ChangelogStream"
    primary_key: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class MergeUpsertStream(Record):
    """The last row of a key wins."""

    KIND: ClassVar[str] = "UpsertStream"
    primary_key: tuple[str, ...]


MergeStrategy = Annotated[
    MergeAppend | MergeLedger | MergeSnapshot | MergeChangelogStream | MergeUpsertStream, union
]
