"""What a dataset is and holds now, for people and programs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from trueline.chain.events import (
    AddPushSource,
    DisablePollingSource,
    DisablePushSource,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetInfo,
    SetLicense,
    SetPollingSource,
    SetTransform,
    SetVocab,
)
from trueline.chain.head_state import Tail
from trueline.chain.index import Index
from trueline.chain.index_rows import Damaged, Unusable
from trueline.chain.instant import Instant
from trueline.dataset.commit import commits, joined
from trueline.dataset.counts import current_rows
from trueline.dataset.declared_source import shown
from trueline.dataset.definition import lateness_shown, merge_of
from trueline.errors import CorruptionError, InputError, StoreError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

_METADATA: Final = (
    Seed,
    SetVocab,
    SetInfo,
    SetLicense,
    SetAttachments,
    SetDataSchema,
    SetTransform,
    SetPollingSource,
    AddPushSource,
    DisablePushSource,
    DisablePollingSource,
)
# Looking metadata up one by one beats walking the chain while there is little of it.
_FEW: Final = 64


@dataclass(frozen=True, slots=True)
class Info:
    """What is known of a dataset without reading its rows: counts, times, definition.

    `rows` are the current ones, as a view has them, None where commits of an earlier version do not say how
    many there are (`verify` or the next append counts them); `events` is how many records there are.
    A derived dataset says its `inputs`, its `strategy` and the `reason` for it, how far it is behind its
    roots, in commits and seconds, and the number of the cut it is at.
    """

    name: str
    kind: str
    id: DatasetId
    head: Multihash
    rows: int | None
    events: int
    commits: int
    blocks: int
    created: Instant
    updated: Instant
    watermark: Instant | None
    lateness: str | None
    event_time: str | None
    merge: str | None
    sources: tuple[str, ...]
    description: str | None
    last_slice_bytes: int
    location: str
    inputs: tuple[str, ...] = ()
    strategy: str | None = None
    reason: str | None = None
    behind_commits: int | None = None
    behind_seconds: float | None = None
    last_cut: int | None = None
    checks: tuple[str, ...] = ()

    @property
    def rows_shown(self) -> str:
        """The current rows for people: `?` where nobody has counted them."""
        return "?" if self.rows is None else f"{self.rows:,}"

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values, for programs."""
        values = {name: getattr(self, name) for name in self.__slots__}
        moments = {
            name: None if values[name] is None else str(values[name])
            for name in ("created", "updated", "watermark")
        }
        lists = {name: list(values[name]) for name in ("sources", "inputs", "checks")}
        return values | moments | lists

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html

        values = {name: value for name, value in self.to_dict().items() if value not in (None, [], 0, "")}
        return html(f"Dataset {self.name}", notebook_values(values))


def notebook_values(values: Mapping[str, object]) -> dict[str, object]:
    """Return values as a notebook shows them: moments to the second, hashes by their last characters."""
    shown = dict(values)
    for name in ("created", "updated", "watermark"):
        if shown.get(name) is not None:
            shown[name] = f"{str(shown[name])[:19].replace('T', ' ')} UTC"
    if shown.get("head") is not None:
        shown["head"] = str(shown["head"])[-8:]
    return shown


@dataclass(frozen=True, slots=True)
class Health:
    """What goes on around a dataset: the state of its index, and since when a commit is in flight.

    `too_old` are its checks `max_age` that fail now, with how old the newest data are.
    """

    index: str
    in_flight_since: float | None
    too_old: tuple[str, ...] = ()


def info_of(dataset: Dataset) -> Info:
    """Describe a dataset at its head, by a few block reads whatever the length of the chain."""
    tail, chain = dataset._tail, dataset.chain
    seed = chain.entry_number(0)
    described = chain.newest(SetInfo)
    new = tail.data.new_data if tail.data else None
    fresh = None
    if dataset.kind == "derived":
        from trueline.workspace.derive.freshness import freshness_of

        fresh = freshness_of(dataset)
    return Info(
        name=dataset.name,
        kind=dataset.kind,
        id=tail.dataset_id,
        head=tail.head,
        rows=current_rows(chain, tail),
        events=tail.next_offset,
        commits=_count_commits(dataset, tail),
        blocks=tail.sequence_number + 1,
        created=chain.block(seed.hash).system_time if seed else tail.system_time,
        updated=tail.system_time,
        watermark=tail.watermark,
        lateness=lateness_shown(chain),
        event_time=tail.vocab.event_time_column,
        merge=merge_of(tail),
        sources=(*tail.push, *([shown(tail.polling.fetch)] if tail.polling else [])),
        description=described.event.description
        if described and isinstance(described.event, SetInfo)
        else None,
        last_slice_bytes=new.size if new else 0,
        location=chain.store.location,
        inputs=dataset.inputs,
        strategy=fresh.strategy if fresh else None,
        reason=fresh.reason if fresh else None,
        behind_commits=fresh.commits if fresh else None,
        behind_seconds=fresh.seconds if fresh else None,
        last_cut=fresh.cut if fresh else None,
        checks=_checks_shown(tail),
    )


def _checks_shown(tail: Tail) -> tuple[str, ...]:
    """Return the checks as they are written; looking at a dataset must not fail for one that is not known."""
    if tail.attachments is None:
        return ()
    from trueline.dataset.derivation import checks_at

    try:
        return tuple(map(str, checks_at(tail)))
    except InputError:
        return ()


def _count_commits(dataset: Dataset, tail: Tail) -> int:
    """The index counts every block of metadata as a commit end; those joined to the next are not."""
    chain = dataset.chain
    entry = chain.entry(tail.head)
    assert entry is not None
    count = entry.commits
    for nth in range(_FEW):
        block = chain.newest(*_METADATA, nth=nth, upto=tail.head)
        if block is None:
            return count
        following = chain.entry_number(block.sequence_number + 1)
        if following is not None and joined(block, chain.block(following.hash)):
            count -= 1
    return sum(1 for _ in commits(dataset.name, chain.walk(tail.head)))


def health_of(dataset: Dataset) -> Health:
    """Say how the index compares with the head, and whether a commit is in flight."""
    try:
        since = dataset.chain.store.oldest_lease()
    except StoreError:
        since = None  # a place that cannot be written has no commits in flight
    return Health(_index_state(dataset), since, _too_old(dataset))


def _too_old(dataset: Dataset) -> tuple[str, ...]:
    try:
        if dataset._tail.attachments is None:
            return ()
        from trueline.dataset.derivation import checks_at

        if all(check.kind != "max_age" for check in checks_at(dataset._tail)):
            return ()
        from trueline.workspace.derive.freshness import broken_ages

        return tuple(map(str, broken_ages(dataset)))
    except (CorruptionError, InputError):
        return ()  # whoever looks at the dataset itself is told


def _index_state(dataset: Dataset) -> str:
    if not dataset._index.exists():
        return "to be built"
    peek = Index(dataset._index)
    try:
        tip = peek.tip()
        return "up to date" if tip is not None and tip.hash == dataset.chain.head else "behind"
    except Damaged:
        return "to be rebuilt"
    except Unusable:
        return "in memory: its folder cannot be written"
    finally:
        peek.close()
