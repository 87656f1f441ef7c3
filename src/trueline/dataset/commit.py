"""A commit: what one move of a head did."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from trueline.chain.block import (
    KINDS,
    Block,
    CommitRecord,
    commit_record,
    is_commit_end,
    noted_hash,
    noted_numbers,
    noted_object,
    noted_texts,
)
from trueline.chain.chain import Chain
from trueline.chain.checkpoint import STRATEGY, derived_checkpoint
from trueline.chain.counts import derived_counts, kept_counts, left_by
from trueline.chain.events import ExecuteTransform, ExecuteTransformInput, SetTransform
from trueline.chain.instant import Instant
from trueline.chain.store.store import Folder
from trueline.errors import InputError, ObjectMissing, TruelineError
from trueline.identity.multihash import Multihash
from trueline.view.origin import Origin, noted, of_note

if TYPE_CHECKING:
    from trueline.view import View


Linked = tuple[Multihash, Block]
_EXAMPLES: Final = 3


class Advice(NamedTuple):
    """Something about appended rows that people should look at, and what to do: in Python, in the shell."""

    code: str
    problem: str
    remedy: str
    in_shell: str = ""


@dataclass(frozen=True, slots=True)
class Commit:
    """What was recorded together, named by its last block.

    `offsets` is the range of records it added (empty if none), `blocks` are
    its blocks, oldest first, and `events` says what they are. An append that
    had nothing to record has no blocks; its `block` is the head it found.
    `steps` prepared its rows; `left_out` are files they could not, and why;
    `origins` are the datasets, each at a commit, that an appended view was made from.
    `duplicates` are files that were passed over because they have the bytes of others, which they name.
    `operations` counts the rows it inserted, updated and deleted (an update is two events), None if
    nobody has counted them; `current_rows` is how many rows a keyed dataset has after it. One that restored
    the rows of an earlier commit names it in `reverted_to`.
    Of a derived dataset `inputs` are the intervals it took of others, `strategy` how it was computed. What
    defines it anew says by which `on_change`, and in a new chain in place of which dataset (`replaces`).
    `ignored` counts rows, `ignored_columns` are columns that were left out as
    was asked for; `checks` counts the rows that broke a check that warns or leaves
    rows out. `advice`, where rows were just appended, is what to look at.
    """

    dataset: str
    block: Multihash
    sequence_number: int
    system_time: Instant
    offsets: range
    watermark: Instant | None = None
    events: tuple[str, ...] = ()
    blocks: tuple[Multihash, ...] = ()
    size: int = 0
    idempotency_key: str | None = None
    rounded: int = 0
    late: int = 0
    files: tuple[str, ...] = ()
    bad: Mapping[str, int] = field(default_factory=dict)
    ignored: Mapping[str, int] = field(default_factory=dict)
    skipped: tuple[str, ...] = ()
    bad_cells_file: Multihash | None = None
    removal: str | None = None
    steps: tuple[str, ...] = ()
    left_out: Mapping[str, str] = field(default_factory=dict)
    duplicates: Mapping[str, str] = field(default_factory=dict)
    operations: Mapping[str, int] | None = None
    current_rows: int | None = None
    reverted_to: Multihash | None = None
    origins: tuple[Origin, ...] = ()
    ignored_columns: tuple[str, ...] = ()
    checks: Mapping[str, int] = field(default_factory=dict)
    inputs: tuple[ExecuteTransformInput, ...] = ()
    strategy: str | None = None
    on_change: str | None = None
    replaces: str | None = None
    advice: tuple[Advice, ...] = field(default=(), repr=False, compare=False)
    chain: Chain | None = field(default=None, repr=False, compare=False)
    waiting: Callable[..., Any] | None = field(default=None, repr=False, compare=False)

    @property
    def rows(self) -> int:
        """How many records it added."""
        return self.offsets.stop - self.offsets.start

    @property
    def short(self) -> str:
        """The last eight characters of its name, enough for people."""
        return self.block.short

    def wait(self, *names: str, timeout: str | float | timedelta | None = None) -> Any:
        """Wait until datasets show what was made with this commit; returns the snapshot of them that does.

        Without names these are all that are computed from its dataset. After `timeout` (seconds, or "10s")
        `WaitTimeout` says who lags and whether anybody pulls; the commit stays. Somebody has to pull: a
        `ws.pull` here or elsewhere.
        """
        if self.waiting is None:
            raise InputError(
                f"commit {self.short} of {self.dataset!r} is not of a workspace that is open here",
                remedy=f"take it from its dataset: ws[{self.dataset!r}].commit({self.short!r})",
                code="NoWorkspace",
            )
        return self.waiting(self, names, timeout)

    @classmethod
    def of(cls, dataset: str, linked: Iterable[Linked], chain: Chain | None = None) -> Commit:
        """Describe the blocks of one commit, oldest first."""
        pairs = list(linked)
        name, last = pairs[-1]
        data = [block.data_event for _, block in pairs if block.data_event is not None]
        slices = [event.new_data for event in data if event.new_data is not None]
        record = commit_record(last)
        notes: dict[str, Any] = dict(record.notes or {})
        if slices:
            offsets = range(slices[0].offset_interval.start, slices[-1].offset_interval.end + 1)
        else:
            end = data[-1].last_offset if data else None
            offsets = range(0) if end is None else range(end + 1, end + 1)
        key, rounded = notes.get("idempotency_key"), notes.get("rounded")
        inputs = last.event.query_inputs if isinstance(last.event, ExecuteTransform) else ()
        left = left_by(chain, last.event) if inputs and chain is not None else None
        strategy = left.more.get(STRATEGY) if left is not None else None
        counted = derived_counts(left) if left is not None else None
        on_change, replaces = _changed_by(pairs, chain)
        return cls(
            dataset,
            name,
            last.sequence_number,
            last.system_time,
            offsets,
            data[-1].new_watermark if data else None,
            tuple(block.event.KIND for _, block in pairs),
            tuple(name for name, _ in pairs),
            sum(piece.size for piece in slices),
            key if isinstance(key, str) else None,
            rounded if isinstance(rounded, int) else 0,
            notes["late"] if isinstance(notes.get("late"), int) else 0,
            tuple(name for name, _ in record.files),
            noted_numbers(notes.get("bad")),
            noted_numbers(notes.get("ignored")),
            bad_cells_file=noted_object(notes, "bad_cells"),
            removal=_removal(notes.get("removal")),
            steps=noted_texts(notes.get("steps")),
            operations=(counted and counted.operations) or _operations(record, pairs, len(offsets), chain),
            current_rows=record.current_rows if counted is None else counted.current,
            reverted_to=noted_hash(notes.get("reverted_to")),
            origins=_origins(notes.get("origins")),
            ignored_columns=noted_texts(notes.get("ignored_columns")),
            checks=noted_numbers(notes.get("checks") or _derived_checks(last, chain)),
            inputs=inputs,
            strategy=strategy if isinstance(strategy, str) else None,
            on_change=on_change,
            replaces=replaces,
            chain=chain,
        )

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values, for programs."""
        return {
            "dataset": self.dataset,
            "commit": str(self.block),
            "time": str(self.system_time),
            "rows": self.rows,
            "operations": None if self.operations is None else dict(self.operations),
            "current_rows": self.current_rows,
            "reverted_to": None if self.reverted_to is None else str(self.reverted_to),
            "offsets": [self.offsets.start, self.offsets.stop - 1] if self.rows else None,
            "watermark": None if self.watermark is None else str(self.watermark),
            "bytes": self.size,
            "sequence_number": self.sequence_number,
            "events": list(self.events),
            "blocks": [str(block) for block in self.blocks],
            "idempotency_key": self.idempotency_key,
            "files": list(self.files),
            "bad": dict(self.bad),
            "ignored": dict(self.ignored),
            "ignored_columns": list(self.ignored_columns),
            "checks": dict(self.checks),
            "skipped": list(self.skipped),
            "late": self.late,
            "removal": self.removal,
            "steps": list(self.steps),
            "left_out": dict(self.left_out),
            "duplicates": dict(self.duplicates),
            "origins": [noted(origin) for origin in self.origins],
            "inputs": [_interval(taken) for taken in self.inputs],
            "strategy": self.strategy,
            "on_change": self.on_change,
            "replaces": self.replaces,
        }

    def __repr__(self) -> str:
        bad = f", {self.bad_summary}" if self.bad else ""
        return f"<Commit {self.short} of {self.dataset}: {self.summary}{bad}>"

    @property
    def bad_summary(self) -> str:
        """How many cells could not be read, by column, with examples as long as they are kept; else empty."""
        if not self.bad:
            return ""
        total = sum(self.bad.values())
        columns = ", ".join(f"{name} {count:,}" for name, count in self.bad.items())
        examples = "".join(f", for example {text}" for text in ["; ".join(self._bad_examples())] if text)
        return f"{total:,} bad cell{'s' * (total != 1)} ({columns}){examples}"

    def _bad_examples(self) -> list[str]:
        """Show the first cells that could not be read; none where they were removed or cannot be reached."""
        try:
            cells = self.bad_cells().limit(_EXAMPLES).to_arrow().to_pylist()
        except TruelineError:
            return []
        return [
            f"{cell['text'][:40]!r} in {cell['column']} ({cell['file']}"
            + (f", line {cell['line']:,})" if cell["line"] is not None else ")")
            for cell in cells
            if cell["text"] is not None
        ]

    @property
    def changes(self) -> str:
        """The rows it inserted (+), updated (~) and deleted (-); `?` where nobody has counted them."""
        if self.operations is None:
            return f"? rows in {self.rows:,} event{'s' * (self.rows != 1)}"
        signed = {sign: self.operations.get(kind, 0) for sign, kind in zip("+~-", KINDS, strict=True)}
        counts = " ".join(f"{sign}{count:,}" for sign, count in signed.items() if count)
        return f"{counts or '+0'} row{'s' * (sum(signed.values()) != 1)}"

    @property
    def summary(self) -> str:
        """What it did, in a few words."""
        if self.rows:
            ends = (
                f"{self.offsets.start:,} to {self.offsets.stop - 1:,}"
                if self.rows > 1
                else f"{self.offsets.start:,}"
            )
            reverted = "" if self.reverted_to is None else f"reverted to {self.reverted_to.short}: "
            return f"{reverted}{self.changes}, offset{'s' * (self.rows != 1)} {ends}"
        if not self.blocks:
            return "nothing to record"
        if self.removal is not None:
            return self.removal
        if self.events == ("AddData",):
            return "watermark" if self.watermark is not None else "no rows"
        if self.events == ("ExecuteTransform",):
            return "no rows changed"
        place = "" if self.replaces is None else f", in place of {self.replaces}"
        change = "" if self.on_change is None else f" ({self.on_change}{place})"
        return ", ".join(dict.fromkeys(self.events)) + change

    def bad_cells(self) -> View:
        """View the cells that could not be read: file, row, line, column and text.

        Where records of the commit were removed they went along; the error says when and why.
        """
        import pyarrow as pa

        from trueline.readers.parquet_file import BoundedFile
        from trueline.view import View

        if self.bad_cells_file is None or self.chain is None:
            columns = {"file": pa.string(), "row": pa.int64(), "line": pa.int64()}
            empty = pa.schema({**columns, "column": pa.string(), "text": pa.string()}).empty_table()
            return View.from_arrow(empty)
        try:
            with self.chain.store.open(Folder.DATA, self.bad_cells_file) as file:
                name = f"data/{self.bad_cells_file}"
                return View.from_arrow(BoundedFile(file, name, self.chain.limits).table())
        except ObjectMissing:
            if (removed := self._cells_removed(self.chain, self.bad_cells_file)) is not None:
                raise removed from None
            raise

    def _cells_removed(self, chain: Chain, cells: Multihash) -> InputError | None:
        """Say that the bad cells were removed on purpose, if they were."""
        from trueline.dataset.remove.record import removals_of

        removal = removals_of(chain).of_object(chain.block(self.block), cells)
        if removal is None:
            return None
        many = "s" * (removal.rows != 1)
        return InputError(
            f"the bad cells of commit {self.short} were removed, with {removal.rows:,} row{many} of "
            f"{self.dataset!r}: {removal.reason}",
            remedy=f"how many there were is still known: {sum(self.bad.values()):,} (commit.bad)",
            code="Removed",
            commit=self.block,
            rows=removal.rows,
            reason=removal.reason,
        )

    @property
    def told(self) -> str:
        """What it did and what was left out, in a line for people."""
        parts = [self.summary]
        if self.files:
            parts.append(f"{len(self.files):,} file{'s' * (len(self.files) != 1)}")
        if self.bad:
            columns = ", ".join(f"{name} {count:,}" for name, count in self.bad.items())
            total = sum(self.bad.values())
            parts.append(f"{total:,} bad cell{'s' * (total != 1)} ({columns})")
        if self.ignored:
            reasons = ", ".join(f"{why} {count:,}" for why, count in self.ignored.items())
            parts.append(f"ignored: {reasons}")
        if self.checks:
            parts.append("checks: " + ", ".join(f"{check} {n:,}" for check, n in self.checks.items()))
        if self.ignored_columns:
            names = ", ".join(self.ignored_columns[:3]) + ("…" if len(self.ignored_columns) > 3 else "")
            parts.append(f"ignored column{'s' * (len(self.ignored_columns) != 1)}: {names}")
        if self.late:
            parts.append(f"{self.late:,} late")
        known = [name for name in self.skipped if name not in self.duplicates]
        if known:
            parts.append(f"known already: {', '.join(known[:3])}" + ("…" if len(known) > 3 else ""))
        if self.duplicates:
            parts.append(same_bytes(self.duplicates))
        if self.left_out:
            parts.append(
                f"left out: {', '.join(list(self.left_out)[:3])}" + ("…" if len(self.left_out) > 3 else "")
            )
        return ", ".join(parts)

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html

        values: dict[str, object] = {
            "dataset": self.dataset,
            "time": f"{str(self.system_time)[:19].replace('T', ' ')} UTC",
            "did": self.summary,
        }
        listed: dict[str, object] = {"files": self.files[:20], "from": tuple(map(str, self.origins))}
        listed |= {"bad cells": self.bad_summary}
        return html(f"Commit {self.short}", values | {name: each for name, each in listed.items() if each})


def same_bytes(duplicates: Mapping[str, str]) -> str:
    """Say which files were passed over because they have the bytes of others.

    >>> same_bytes({"b.csv": "a.csv"})
    'passed over, same bytes as another: b.csv = a.csv'
    """
    pairs = [f"{name} = {twin}" for name, twin in list(duplicates.items())[:3]]
    return f"passed over, same bytes as another: {', '.join(pairs)}" + ("…" if len(duplicates) > 3 else "")


def _operations(
    record: CommitRecord, blocks: list[Linked], rows: int, chain: Chain | None
) -> dict[str, int] | None:
    """Return the rows by operation: as the commit noted them, else as they were counted since."""
    if record.operations is not None:
        return record.operations
    tail = chain.tail() if chain is not None and rows else None
    if chain is None or tail is None or not tail.replaces_rows:
        return {**dict.fromkeys(KINDS, 0), "insert": rows}
    total = dict.fromkeys(KINDS, 0)
    for name, block in blocks:
        if block.data_event is not None and block.data_event.new_data is not None:
            counted = kept_counts(chain, name).operations
            if counted is None:
                return None
            total = {kind: total[kind] + counted[kind] for kind in KINDS}
    return total


def _interval(taken: ExecuteTransformInput) -> dict[str, object]:
    """Show what was taken of an input: the records and blocks after the first, up to the last."""
    blocks = (taken.prev_block_hash, taken.last_block)
    return {
        "dataset": str(taken.dataset_id),
        "offsets": [taken.prev_offset, taken.last_offset],
        "blocks": [None if block is None else str(block) for block in blocks],
    }


def _removal(noted: object) -> str | None:
    """Say what was removed and why, as a commit noted it."""
    if not isinstance(noted, Mapping) or type(noted.get("rows")) is not int:
        return None
    return f"removed {noted['rows']:,} row{'s' * (noted['rows'] != 1)}: {noted.get('reason')}"


def _derived_checks(last: Block, chain: Chain | None) -> object:
    """Return what a commit of a derived dataset says of its checks: that is in its checkpoint."""
    if chain is None or not isinstance(last.event, ExecuteTransform):
        return None
    try:
        left = derived_checkpoint(chain.store, last.event)
    except TruelineError:
        return None  # looking at the past must not fail for a file that is gone
    return None if left is None else left.more.get("checks")


def _origins(noted: object) -> tuple[Origin, ...]:
    """Read what an appended view was made from, as a commit noted it."""
    found = [of_note(each) for each in noted] if isinstance(noted, list) else []
    return tuple(origin for origin in found if origin is not None)


def _changed_by(pairs: list[Linked], chain: Chain | None) -> tuple[str | None, str | None]:
    """Say by which `on_change` a commit defines a dataset anew, and in place of which other."""
    if chain is None or not any(isinstance(block.event, SetTransform) for _, block in pairs):
        return None, None
    from trueline.dataset.derivation import changed_by

    return changed_by(pairs, chain)


def joined(older: Block, newer: Block) -> bool:
    """Say whether two neighbours belong to one commit (decision 10).

    Metadata is recorded in one move with what follows it at the very same
    time; a commit of several parts goes on until its last.
    """
    if older.data_event is not None:
        return not is_commit_end(older)
    return older.system_time == newer.system_time


def commits(dataset: str, newest_first: Iterable[Linked], chain: Chain | None = None) -> Iterator[Commit]:
    """Group blocks into commits, newest first, reading no further than asked."""
    group: list[Linked] = []
    for name, block in newest_first:
        if group and not joined(block, group[-1][1]):
            yield Commit.of(dataset, reversed(group), chain)
            group = []
        group.append((name, block))
    if group:
        yield Commit.of(dataset, reversed(group), chain)


def commit_at(dataset: str, chain: Chain, block: Multihash) -> Commit:
    """Return the commit a block belongs to."""
    end, found = block, chain.block(block)
    while (following := chain.entry_number(found.sequence_number + 1)) is not None:
        newer = chain.block(following.hash)
        if not joined(found, newer):
            break
        end, found = following.hash, newer
    return next(commits(dataset, chain.walk(end), chain))


def keyed_commit(dataset: str, chain: Chain, key: str) -> Commit:
    """Return the commit that was appended with an idempotency key."""
    block = chain.token(key)
    if block is None:
        raise InputError(
            f"no commit of {dataset!r} has the idempotency key {key!r:.80}",
            remedy="append the data with it; nothing was committed under it",
            code="KeyNotFound",
            key=key,
        )
    return commit_at(dataset, chain, block.hash)


def earlier(name: str, chain: Chain, key: str | None, is_same_as: Callable[[str], bool]) -> Commit | None:
    """Return the commit that carries a key already; other data under the same key is an error.

    What is the same is said of the recorded digest, which may be one that earlier versions wrote.
    """
    block = chain.token(key) if key is not None else None
    if block is None:
        return None
    commit = commit_at(name, chain, block.hash)
    before = (commit_record(block).notes or {}).get("digest")
    if before is not None and not is_same_as(before):
        raise InputError(
            f"the idempotency key {key!r} belongs to commit {commit.short}, which added other data",
            remedy="use a new key for new data",
            code="KeyReused",
            key=key,
            commit=commit.block,
        )
    return commit
