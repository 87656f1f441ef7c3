"""What a root dataset is defined by, as events of its chain and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from trueline.chain import datatypes as t
from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.datatypes import Extra
from trueline.chain.events import (
    AddPushSource,
    AttachmentEmbedded,
    AttachmentsEmbedded,
    DatasetKind,
    Event,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetInfo,
    SetPollingSource,
    SetVocab,
)
from trueline.chain.head_state import Tail, linked
from trueline.chain.instant import Instant
from trueline.chain.sources import (
    MergeAppend,
    MergeChangelogStream,
    MergeLedger,
    MergeSnapshot,
    MergeStrategy,
    MergeUpsertStream,
    ReadParquet,
)
from trueline.chain.text import read_document
from trueline.check import DatasetCheck, checked, same_checks
from trueline.dataset.append.new_columns import POLICIES, NewColumns, checked_policy
from trueline.dataset.declared_source import (
    SKIP,
    STOP,
    DeclaredSource,
    declared,
    reader_for_source,
    shown,
    to_fetch,
    to_read,
)
from trueline.dataset.duration import in_units, seconds
from trueline.errors import DatasetExists, InputError, SchemaError, UnsupportedVersion
from trueline.identity.dataset_id import DatasetId
from trueline.merge import Append, Changelog, KeyEquality, Ledger, Snapshot, Strategy, Upsert

if TYPE_CHECKING:
    import pyarrow as pa

    from trueline.view.schema import Schema


SOURCE = "default"
MAX_LATENESS = 36_525 * 86_400.0


@dataclass(frozen=True, slots=True)
class Definition:
    """What `create` was asked for; None leaves a thing to the data, or as it is."""

    merge: Strategy
    event_time: str | None = None
    schema: t.DataSchema | None = None
    description: str | None = None
    lateness_ns: int = 0
    source: DeclaredSource | None = None
    base: Path | None = None
    new_columns: str = "error"
    checks: tuple[DatasetCheck, ...] = ()

    @classmethod
    def of(
        cls,
        schema: pa.Schema | Schema | t.DataSchema | None,
        merge: object,
        event_time: object,
        description: object,
        *,
        lateness: str | float | timedelta | None = None,
        source: object = None,
        base: Path | None = None,
        new_columns: object = "error",
        checks: object = (),
    ) -> Definition:
        """Check what was asked for; paths of a source below the folder `base` are kept relative to it."""
        if not isinstance(merge, Append | Ledger | Snapshot | Changelog | Upsert):
            raise InputError(
                f"merge is {merge!r}, not a merge strategy",
                remedy="use trueline.merge.append(), or ledger, snapshot, changelog or upsert with a key",
                code="UnknownMergeStrategy",
            )
        for what, value in (("event_time", event_time), ("description", description)):
            if value is not None and (not isinstance(value, str) or not value.strip()):
                raise InputError(
                    f"{what} is {value!r}, which is empty or not text", remedy="give text, or leave it out"
                )
        assert event_time is None or isinstance(event_time, str)
        assert description is None or isinstance(description, str)
        _not_a_system_column(event_time)
        found = None
        if schema is not None:
            from trueline.dataset.append.intake import whole_schema

            found = whole_schema(schema, vocabulary(event_time))
        policy = checked_policy(new_columns) or "error"
        late = lateness_of(lateness)
        asked = checked(checks)
        return cls(merge, event_time, found, description, late, declared(source), base, policy, asked)

    def events(self) -> Iterator[Event]:
        """Yield the events that follow the Seed."""
        if self.event_time is not None:
            yield SetVocab(event_time_column=self.event_time)
        policy = None if self.new_columns == "error" else checked_policy(self.new_columns)
        addendum = Addendum(self.lateness_ns, key_equality=self.key_equality, new_columns=policy)
        addendum = replace(addendum, checks=self.checks)
        if self.source is None:
            yield AddPushSource(source_name=SOURCE, read=ReadParquet(), merge=to_odf(self.merge))
        else:
            fetch = to_fetch(self.source.location, self.base)
            reader = reader_for_source(self.source, fetch, self.base)
            yield SetPollingSource(fetch=fetch, read=to_read(reader), merge=to_odf(self.merge))
            addendum = replace(
                addendum,
                reader=reader.to_dict(),
                max_bad=self.source.max_bad,
                max_bytes=self.source.max_bytes,
                allow_empty=self.source.allow_empty,
                on_bad_file=SKIP if self.source.on_bad_file == SKIP else None,
            )
        if self.description is not None:
            yield SetInfo(description=self.description)
        if (attachments := addendum.attached()) is not None:
            yield attachments
        if self.schema is not None:
            yield SetDataSchema(schema=self.schema)

    @property
    def key_equality(self) -> str | None:
        """How keys are compared, where it matters: a key of columns that cannot be floats needs no rule."""
        key = () if isinstance(self.merge, Append) else self.merge.key
        kinds = {field.name: field.type for field in (self.schema.fields if self.schema else ())}
        floats = any(name not in kinds or _is_float(kinds[name]) for name in key)
        return KeyEquality.NUMERIC.value if floats else None

    def blocks(self, dataset_id: DatasetId, now: Instant) -> list[Block]:
        """Return the blocks of the one commit that makes the dataset."""
        return linked(None, (Seed(dataset_id, DatasetKind.Root), *self.events()), now)

    def differences(self, chain: Chain) -> list[str]:
        """Say how an existing dataset differs from this definition."""
        tail = chain.tail()
        assert tail is not None
        found: list[str] = []
        if tail.dataset_kind is not DatasetKind.Root:
            found.append("kind: it is derived, create makes a root")
        merge = merge_of(tail)
        if merge != str(self.merge):
            found.append(f"merge: it is {merge}, asked for is {self.merge}")
        _compare(found, "event_time", tail.vocab.event_time_column, self.event_time, default="event_time")
        if self.description is not None:
            info = chain.newest(SetInfo)
            before = info.event.description if info and isinstance(info.event, SetInfo) else None
            _compare(found, "description", before, self.description)
        addendum = addendum_of(chain)
        if addendum.lateness_ns != self.lateness_ns:
            before, asked = (in_units(ns / 1e9) for ns in (addendum.lateness_ns, self.lateness_ns))
            found.append(f"lateness: it is {before}, asked for is {asked}")
        _compare(found, "new_columns", addendum.new_columns, self.new_columns, default="error")
        if not same_checks(addendum.checks, self.checks):
            shown = (", ".join(map(str, each)) for each in (addendum.checks, self.checks))
            _compare(found, "checks", *shown)
        found += self._source_differences(tail, addendum)
        if self.schema is not None:
            found += _schema_differences(tail, self.schema)
        return found

    def _source_differences(self, tail: Tail, addendum: Addendum) -> list[str]:
        """Compare sources; a reader that was not asked for may be any."""
        before = None if tail.polling is None else shown(tail.polling.fetch)
        asked = None if self.source is None else shown(to_fetch(self.source.location, self.base))
        found: list[str] = []
        _compare(found, "source", before, asked)
        if found or self.source is None:
            return found
        given = self.source.reader
        wanted = addendum.reader if given is None else given.to_dict()
        for what, there, here in (
            ("reader", addendum.reader, wanted),
            ("max_bad", addendum.max_bad, self.source.max_bad),
            ("max_bytes", addendum.max_bytes, self.source.max_bytes),
            ("allow_empty", addendum.allow_empty, self.source.allow_empty),
            ("on_bad_file", addendum.on_bad_file or STOP, self.source.on_bad_file),
        ):
            if there != here:
                found.append(f"{what} of the source: it is {there}, asked for is {here}")
        return found


def _is_float(kind: t.DataType) -> bool:
    return isinstance(kind.inner if isinstance(kind, t.Option) else kind, t.Float16 | t.Float32 | t.Float64)


def _compare(found: list[str], what: str, before: str | None, asked: str | None, default: str = "") -> None:
    if (before or default) != (asked or default):
        found.append(f"{what}: it is {before!r}, asked for is {asked!r}")


def _schema_differences(tail: Tail, asked: t.DataSchema) -> list[str]:
    from trueline.chain.schema import differences, fields_of

    if tail.schema is None:
        return ["schema: it has none yet, asked for is one"]
    now = fields_of(tail.schema)
    return [f"schema: {text}" for text in differences(now, asked.fields, "")] + [
        f"schema: column {field.name} is new"
        for field in asked.fields
        if field.name not in {f.name for f in now}
    ]


def lateness_of(asked: str | float | timedelta | None) -> int:
    """Return a lateness in nanoseconds, of whole milliseconds as event times are.

    >>> lateness_of("2h"), lateness_of(None)
    (7200000000000, 0)
    """
    length = 0.0 if asked is None else seconds(asked)
    if length > MAX_LATENESS:
        raise InputError(
            f"a lateness of {in_units(length)} is more than a hundred years",
            remedy="give a number and s, m, h, d or w, for example 2h",
            code="BadDuration",
        )
    return round(length * 1000) * 1_000_000


def check_options(checks: Sequence[object], on_change: object) -> None:
    """Refuse what `create` cannot do yet, or never."""
    checked(checks)
    if on_change == "rebuild":
        raise InputError(
            "on_change is 'rebuild': a root holds what was recorded and cannot be rebuilt",
            remedy='give on_change="from_here", or choose another name for another definition',
        )
    if on_change not in ("error", "from_here"):
        raise InputError(
            f"on_change is {on_change!r:.80}", remedy='give "error", or "from_here" to change the definition'
        )


def exists_otherwise(name: str, differences: list[str], *, changeable: bool = False) -> DatasetExists:
    """The error of creating a dataset again with another definition."""
    change = 'change it with on_change="from_here" (`--on-change from_here`)'
    return DatasetExists(
        f"dataset {name!r} exists with another definition\n"
        + "\n".join(f"    {line}" for line in differences),
        remedy=f"use ws[{name!r}] to open it as it is, or {change if changeable else 'choose another name'}",
        name=name,
        differences=tuple(differences),
    )


def vocabulary(event_time: str | None) -> SetVocab:
    """Return the names of the system columns for a declared event time."""
    return SetVocab(event_time_column=event_time)


def _not_a_system_column(event_time: str | None) -> None:
    if event_time in SetVocab().names[:3]:
        raise SchemaError(
            f"column {event_time!r} is a system column and cannot be the event time",
            remedy="rename the column",
            column=event_time,
        )


def to_odf(merge: Strategy) -> MergeStrategy:
    """Return a merge strategy as blocks store it."""
    match merge:
        case Append():
            return MergeAppend()
        case Ledger(key):
            return MergeLedger(key)
        case Snapshot(key, compare):
            return MergeSnapshot(key, compare)
        case Changelog(key):
            return MergeChangelogStream(key)
        case Upsert(key):
            return MergeUpsertStream(key)


def from_odf(stored: MergeStrategy) -> Strategy:
    """Return a merge strategy as people name it."""
    match stored:
        case MergeAppend():
            return Append()
        case MergeLedger(key):
            return Ledger(key)
        case MergeSnapshot(key, compare):
            return Snapshot(key, compare)
        case MergeChangelogStream(key):
            return Changelog(key)
        case MergeUpsertStream(key):
            return Upsert(key)


def strategy_of(tail: Tail) -> Strategy:
    """Return the merge strategy in force; a dataset that declares none appends."""
    return from_odf(tail.merge) if tail.merge is not None else Append()


def merge_of(tail: Tail) -> str | None:
    """Name the merge strategy in force, None if nothing was declared."""
    return str(strategy_of(tail)) if tail.push or tail.polling else None


def check_appendable(name: str, tail: Tail, *, nothing: bool = False) -> None:
    """Refuse to append where the dataset's own definition asks for more than adding rows.

    Appending `nothing` moves the watermark, which a dataset with a polling source allows.
    """
    if tail.dataset_kind is not DatasetKind.Root:
        raise InputError(
            f"dataset {name!r} is derived: its rows are computed from its inputs",
            remedy="append to the datasets it is made from",
            code="NotARoot",
        )
    if tail.polling is not None and not nothing:
        raise InputError(
            f"dataset {name!r} is filled from its source, {shown(tail.polling.fetch)}",
            remedy=f"put the data there and use ws.pull({name!r}), or append to another dataset",
            in_shell=f"put the data there and use `trueline pull {name}`, or ingest into another dataset",
            code="HasSource",
            source=shown(tail.polling.fetch),
        )
    source = tail.push.get(SOURCE) or next(iter(tail.push.values()), None)
    if source is not None and source.preprocess is not None:
        raise InputError(
            f"source {source.source_name!r} of dataset {name!r} has a preprocessing query, "
            "which this version cannot run",
            remedy="append prepared rows to a dataset without one",
            code="UnknownPreprocess",
        )


PATH: Final = "trueline.json"
FORMAT: Final = "trueline/definition"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Addendum:
    """How late rows may come, how files of a declared source are read where a read step cannot say it,
    which merge keys are equal ("numeric" is -0.0 equals 0.0, without it keys are compared by their bits),
    and whether new columns are added or ignored; without it they are refused.

    >>> Addendum(lateness_ns=7_200_000_000_000).to_text()
    '{"format":"trueline/definition","lateness_ns":7200000000000,"version":1}'
    >>> Addendum.from_text(Addendum(max_bad=0.1).to_text()).max_bad
    0.1
    """

    lateness_ns: int = 0
    reader: Mapping[str, Any] | None = None
    max_bad: float | None = None
    max_bytes: int | None = None
    key_equality: str | None = None
    allow_empty: bool = False
    on_bad_file: str | None = None
    new_columns: NewColumns | None = None
    checks: tuple[DatasetCheck, ...] = ()

    def to_text(self) -> str:
        """Return the canonical text: equal definitions have equal bytes."""
        usual = Addendum(checks=())
        said = {name: getattr(self, name) for name in self.__slots__}
        said["checks"] = tuple(each.to_dict() for each in self.checks)
        said = {name: value for name, value in said.items() if value != getattr(usual, name)}
        return Extra.of({**said, "format": FORMAT, "version": VERSION}).entries

    @classmethod
    def from_text(cls, text: str) -> Addendum:
        """Read the document; what is not understood is an error, for rows would be read wrongly."""
        value = read_document(text)
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise _damaged("it is not a definition")
        known = {name: item for name, item in value.items() if name not in ("format", "version")}
        unknown = sorted(set(known) - set(cls.__slots__))
        if value.get("version") != VERSION or unknown:
            what = f"{unknown[0]!r}" if unknown else f"version {value.get('version')!r}"
            raise UnsupportedVersion(
                f"the attachment {PATH} says {what}, which is not known here", remedy="upgrade trueline"
            )
        if not isinstance(known.get("checks", []), list):
            raise _damaged(f"the checks are {known['checks']!r:.80}")
        if "checks" in known:
            known["checks"] = tuple(map(DatasetCheck.of, known["checks"]))
        return cls(**known)

    def __post_init__(self) -> None:
        if type(self.lateness_ns) is not int or self.lateness_ns < 0:
            raise _damaged(f"the lateness is {self.lateness_ns!r}")
        _known_equality(self.key_equality)
        if type(self.allow_empty) is not bool:
            raise _damaged(f"allow_empty is {self.allow_empty!r:.80}")
        if self.new_columns not in (None, *POLICIES):
            raise UnsupportedVersion(
                f"the attachment {PATH} says new_columns {self.new_columns!r:.80}, which is not known here",
                remedy="upgrade trueline",
            )
        if self.reader is not None and not isinstance(self.reader, Mapping):
            raise _damaged(f"the reader is {self.reader!r:.80}")
        if self.on_bad_file not in (None, SKIP):
            raise _damaged(f"on_bad_file is {self.on_bad_file!r:.80}")
        limits: tuple[object, ...] = (self.max_bad, self.max_bytes)
        for limit in limits:
            if limit is not None and (not isinstance(limit, int | float) or not 0 <= limit < 1 << 63):
                raise _damaged(f"a limit is {limit!r:.80}")

    def attached(self, before: SetAttachments | None = None) -> SetAttachments | None:
        """Return the attachments with this document in them; None if that changes nothing."""
        others = tuple(item for item in _items(before) if item.path != PATH)
        mine = (AttachmentEmbedded(PATH, self.to_text()),) if self != Addendum() else ()
        after = SetAttachments(AttachmentsEmbedded((*others, *mine)))
        same = after == before or (before is None and not mine)
        return None if same else after


def addendum_of(chain: Chain) -> Addendum:
    """Return the addendum in force."""
    tail = chain.tail()
    return addendum_at(tail) if tail is not None else Addendum()


def addendum_at(tail: Tail) -> Addendum:
    """Return the addendum in force at a tail."""
    for item in _items(tail.attachments):
        if item.path == PATH:
            return Addendum.from_text(item.content)
    return Addendum()


def key_equality_at(tail: Tail) -> KeyEquality:
    """Say which merge keys are equal; reading asks too, so what else the document says does not matter."""
    for item in _items(tail.attachments):
        if item.path == PATH:
            value = read_document(item.content)
            return _known_equality(value.get("key_equality") if isinstance(value, dict) else None)
    return KeyEquality.BITWISE


def _known_equality(given: object) -> KeyEquality:
    if given is None:
        return KeyEquality.BITWISE
    if isinstance(given, str) and given in (KeyEquality.NUMERIC, KeyEquality.GROUP):
        return KeyEquality(given)
    raise UnsupportedVersion(
        f"the attachment {PATH} says key_equality {given!r:.80}, which is not known here",
        remedy="upgrade trueline",
    )


def lateness_shown(chain: Chain) -> str | None:
    """Say how late rows may come, as it is written ("2h"); None if that is not said or not known here.

    Looking at a dataset must not fail for a document that only adding to it needs.
    """
    try:
        length = addendum_of(chain).lateness_ns
    except InputError:
        return None
    return in_units(length / 1e9) if length else None


def _items(event: SetAttachments | None) -> tuple[AttachmentEmbedded, ...]:
    return event.attachments.items if event is not None else ()


def _damaged(why: str) -> InputError:
    return InputError(
        f"the attachment {PATH} cannot be read: {why}",
        remedy="it was not written by this software; replace the attachment",
        code="BadAddendum",
    )
