"""Taking files in: each is hashed, known ones are passed over, the others are read into pieces."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from math import inf

import pyarrow as pa

from trueline import readers
from trueline.chain.block import commit_record, is_text
from trueline.chain.chain import Chain
from trueline.chain.head_state import Tail
from trueline.chain.index_rows import IndexEntry
from trueline.chain.store.scratch import Scratch
from trueline.dataset.append.incoming import (
    FileNote,
    FileRead,
    Handed,
    Incoming,
    ReadFiles,
    latest,
    no_rows,
    schema_of,
)
from trueline.dataset.append.intake import AppendRequest
from trueline.dataset.append.lacking import empty_snapshot
from trueline.dataset.append.read_files import ReadRequest, read_files
from trueline.dataset.definition import strategy_of
from trueline.errors import InputError, SchemaError
from trueline.identity.multihash import Multihash, physical_hash
from trueline.kernel.tasks import Tasks
from trueline.merge import Changelog, Snapshot, Strategy, Upsert
from trueline.readers import Source
from trueline.readers.archive import is_archive, member_name

NO_BYTES = Multihash.of(b"")
# The files of a commit are listed in its block, which may have 16 MiB: about 40,000 of them.
BYTES_OF_A_NOTE = 240
BYTES_OF_ALL_NOTES = 14 << 20


def hash_file(source: Source) -> tuple[Multihash, int]:
    """Hash the bytes of a file."""
    with source.open() as file:
        name = physical_hash(file)
        return name, file.tell()


@dataclass(frozen=True, slots=True)
class TakenFile:
    """A file as it is appended: all of it, or the member of a zip archive that was named.

    >>> TakenFile(Source.memory(b"", "days.zip"), "monday.csv").name
    'days.zip#monday.csv'
    """

    source: Source
    member: str | None = None

    @property
    def name(self) -> str:
        """What it is recorded and known by."""
        return self.source.path if self.member is None else f"{self.source.path}#{self.member}"

    @property
    def size(self) -> int | None:
        """How many bytes the file has, where that is known."""
        return self.source.size

    def before(self, chain: Chain) -> tuple[Multihash, IndexEntry] | None:
        """Return what was appended last under its name; earlier versions recorded a member by its archive."""
        return chain.file_named(self.name) or chain.file_named(self.source.path)


@dataclass(frozen=True, slots=True)
class FileIdentity:
    """What a file is known by, and how many bytes it has.

    A member of an archive is known by the archive's bytes and its name there. It is known, too, where the
    archive itself was appended (`other`); so is an archive of which the one member was.
    """

    content: Multihash
    size: int
    other: Multihash | None = None

    @property
    def hashes(self) -> tuple[Multihash, ...]:
        """Any of which says that it was appended."""
        return (self.content,) if self.other is None else (self.content, self.other)

    def entry(self, chain: Chain) -> IndexEntry | None:
        """Return the block that appended it, None if none did."""
        return next((found for each in self.hashes if (found := chain.file(each)) is not None), None)


def identify(file: TakenFile) -> FileIdentity:
    """Hash a file; of an archive it is looked up which member is read, and nothing is unpacked."""
    with file.source.open() as raw:
        packed = is_archive(raw)
        content, size = physical_hash(raw), raw.tell()
    if not packed:
        return FileIdentity(content, size)
    try:
        only = member_name(file.source) if file.member is None else None
    except InputError:
        only = None  # who reads it says what is wrong
    name = file.member or only
    if name is None:
        return FileIdentity(content, size)
    member = Multihash.of(f"{content}#{name}".encode())
    return FileIdentity(content, size, member) if file.member is None else FileIdentity(member, size, content)


def take_files(chain: Chain, tail: Tail, request: AppendRequest, scratch: Scratch, tasks: Tasks) -> Incoming:
    """Read the files that are new, each as one piece, in the given order.

    A preparation changes the rows before they are fitted to the dataset.
    """
    reader, preparation = request.reader, request.preparation
    if preparation is not None:
        preparation = preparation.allowing(request.max_bad)
    sources = readers.find(request.data)
    if preparation is not None and preparation.parse.reader is not None:
        reader = preparation.parse.reader
    chosen = (reader if reader is not None else readers.reader_for(sources)).within(chain.limits)
    given = [TakenFile(source, getattr(chosen, "member", None)) for source in sources]
    _refuse_names(given)
    known = dict(tasks.map(identify, given, label="hash files"))
    hashes = [known[index] for index in range(len(given))]
    digest, earlier = _digests(given, hashes)
    strategy = strategy_of(tail)
    new, skipped, twins = _new_files(chain, request, strategy, given, hashes)
    if not new:
        found = Incoming((), schema_of(tail), tail.vocab, skipped=tuple(skipped), duplicates=twins)
        return replace(found, digest=digest, earlier_digest=earlier)
    _refuse_many([given[index] for index in new])
    full = [index for index in new if hashes[index].content != NO_BYTES]
    op = tail.vocab.op if isinstance(strategy, Changelog | Upsert) else None
    taken: ReadFiles | None
    columns, lenient = request.new_columns or "error", request.max_bad is not None
    wanted = ReadRequest([sources[index] for index in full], chosen, tail, op, columns, lenient=lenient)
    if preparation is not None:
        from trueline.dataset.prepare.prepare import prepared_files

        taken = prepared_files(wanted, preparation, scratch=scratch, tasks=tasks)
        _refuse_incomplete(strategy, taken)
    else:
        taken = _read(wanted, request, scratch, tasks)
    if taken is None:
        notes = tuple(_note(given[i], hashes[i], 0) for i in new)
        found = replace(_nothing(tail, notes, allow_empty=request.allow_empty), skipped=tuple(skipped))
        found = replace(found, digest=digest, earlier_digest=earlier)
        return replace(found, files=notes, taken_at=tail, duplicates=twins)
    reads = [read for read in taken.reads if read is not None]
    names = [sources[i].path for i, read in zip(full, taken.reads, strict=True) if read is not None]
    if taken.with_op:
        _refuse_bad_ops(reads, names, tail.vocab.op)
    # Where the step that parses says what is allowed, it has decided.
    decided = preparation is not None and preparation.parse.max_bad is not None
    stats = _refuse_garbage(reads, names, inf if decided and request.max_bad is None else request.max_bad)
    cells = [read.cells for read in reads if read.cells is not None]
    rows = {index: 0 for index in new if index not in full} | {
        index: read.rows for index, read in zip(full, taken.reads, strict=True) if read is not None
    }
    notes = tuple(_note(given[i], hashes[i], rows[i]) for i in new if i in rows)
    return Incoming(
        tuple(piece for read in reads for piece in read.pieces),
        schema_of(taken.typed),
        taken.typed.vocab,
        latest([read.newest for read in reads]),
        # Times may lose digits as they are read already, where the dataset says what they are stored as.
        sum(read.rounded + sum(read.stats.rounded.values()) for read in reads),
        notes,
        tuple(skipped),
        stats,
        pa.concat_tables(cells).slice(0, readers.MAX_LISTED) if cells else None,
        digest,
        earlier,
        with_op=taken.with_op,
        taken_at=tail,
        steps=taken.steps if notes else (),
        left_out=taken.left_out,
        duplicates=twins,
        by_file=tuple(
            Handed(sources[index].path, read.rows, frozenset(read.given))
            for index, read in zip(full, taken.reads, strict=True)
            if read is not None
        ),
        ignored_columns=taken.ignored,
        new=columns,
        advice=taken.advice,
    )


def _digests(files: Sequence[TakenFile], hashes: Sequence[FileIdentity]) -> tuple[str, str]:
    """Say what was handed in, for retries, and what earlier versions would have said of the same files."""
    archives = [
        each.other if file.member is not None and each.other is not None else each.content
        for file, each in zip(files, hashes, strict=True)
    ]

    def digest(contents: Iterable[Multihash]) -> str:
        return str(Multihash.of("\n".join(sorted(contents)).encode()))

    return digest(each.content for each in hashes), digest(archives)


def _note(file: TakenFile, identity: FileIdentity, rows: int) -> FileNote:
    return FileNote(file.name, identity.content, identity.size, rows)


def _new_files(
    chain: Chain,
    request: AppendRequest,
    strategy: Strategy,
    sources: Sequence[TakenFile],
    hashes: Sequence[FileIdentity],
) -> tuple[list[int], list[str], dict[str, str]]:
    """Say which files are new, by number, which are known, and which have the bytes of another."""
    if request.polled is not None and request.polled.versions:
        return *_next_versions(chain, sources, hashes), {}
    new, skipped = _sort_out(chain, sources, hashes, resend=request.resend)
    twins = _twins(chain, sources, hashes, skipped)
    if new and isinstance(strategy, Snapshot) and skipped:
        # A snapshot is all of its files: without one that is known, its rows would count as gone.
        return _distinct(hashes), [], twins
    return new, skipped, twins


def _read(wanted: ReadRequest, request: AppendRequest, scratch: Scratch, tasks: Tasks) -> ReadFiles | None:
    """Read files; of a declared source, what to choose goes into its declaration."""
    try:
        return read_files(wanted, scratch=scratch, tasks=tasks)
    except SchemaError as error:
        if request.polled is not None and error.code == "TypeNotCertain":
            error.remedy += ": in tl.source(path, reader, max_bad=…) of a new dataset"
        raise


def _refuse_bad_ops(reads: Sequence[FileRead], names: Sequence[str], op: str) -> None:
    for read, name in zip(reads, names, strict=True):
        if read.stats.bad.get(op):
            raise InputError(
                f"{name}: {read.stats.bad[op]:,} operations in column {op!r} cannot be read",
                remedy="use 0 append, 1 retract, 2 correct from, 3 correct to",
                code="BadOp",
                column=op,
                path=name,
            )


def _refuse_incomplete(strategy: Strategy, taken: ReadFiles | None) -> None:
    """Refuse a snapshot without one of its files, whose rows would count as gone."""
    if taken is not None and taken.left_out and isinstance(strategy, Snapshot):
        path, reason = next(iter(taken.left_out.items()))
        raise InputError(
            f"a snapshot needs all of its files, and {path} cannot be read: {reason}",
            remedy="fix the file",
            code="IncompleteSnapshot",
            path=path,
        )


def _nothing(tail: Tail, files: Sequence[FileNote], *, allow_empty: bool) -> Incoming:
    """Record files that have neither rows nor columns as read.

    A snapshot is refused unless it may be empty: an export that failed leaves an empty file, and as
    a snapshot of nothing it would retract every row.
    """
    if isinstance(strategy_of(tail), Snapshot):
        if not allow_empty:
            raise empty_snapshot(files[0].name)
        if tail.schema is not None:
            return no_rows(tail)
    return Incoming((), schema_of(tail), tail.vocab)


def _distinct(hashes: Sequence[FileIdentity]) -> list[int]:
    """Return the first file of each content."""
    first: dict[Multihash, int] = {}
    for index, each in enumerate(hashes):
        first.setdefault(each.content, index)
    return list(first.values())


def _refuse_names(files: Sequence[TakenFile]) -> None:
    wrong = next((file.name for file in files if not is_text(file.name)), None)
    if wrong is not None:
        raise InputError(
            f"the name of the file {wrong!r} is not text", remedy="rename it", code="BadFileName", path=wrong
        )


def _refuse_many(files: Sequence[TakenFile]) -> None:
    """Refuse more files than the record of one commit can list, before any is read."""
    size = sum(len(json.dumps(file.name)) + BYTES_OF_A_NOTE for file in files)
    if size > BYTES_OF_ALL_NOTES:
        at_most = len(files) * BYTES_OF_ALL_NOTES // size
        raise InputError(
            f"{len(files):,} files are too many for one commit",
            remedy=f"append them some at a time, about {at_most:,} files in each",
            code="TooManyFiles",
            files=len(files),
        )


def _sort_out(
    chain: Chain, sources: Sequence[TakenFile], hashes: Sequence[FileIdentity], *, resend: bool
) -> tuple[list[int], list[str]]:
    """Separate files that are new from those that were appended before.

    Known bytes are passed over. A known name with other bytes is refused
    unless it is sent again on purpose: it may be a correction or an accident.
    """
    new: list[int] = []
    skipped: list[str] = []
    here: set[Multihash] = set()
    for index, (file, identity) in enumerate(zip(sources, hashes, strict=True)):
        if not here.isdisjoint(identity.hashes) or identity.entry(chain) is not None:
            skipped.append(file.name)
            continue
        before = file.before(chain)
        if before is not None and before[0] in identity.hashes:
            skipped.append(file.name)  # another writer appended it since it was looked for
            continue
        # A file that was empty gave no row, so nothing can come twice: somebody was about to write it.
        if before is not None and before[0] != NO_BYTES and not resend:
            raise InputError(
                f"{file.name} was appended before with other content, in commit {before[1].hash.short}",
                remedy="give resend=True (`--resend`) if the new content is to be added as well",
                code="FileChanged",
                path=file.source.path,
                commit=before[1].hash,
            )
        here.update(identity.hashes if file.member is None else (identity.content,))
        new.append(index)
    return new, skipped


def _twins(
    chain: Chain,
    sources: Sequence[TakenFile],
    hashes: Sequence[FileIdentity],
    skipped: Sequence[str],
) -> dict[str, str]:
    """Name for each file that was passed over, and never appended by its own name, the one it equals."""
    here: dict[Multihash, str] = {}
    found: dict[str, str] = {}
    passed = set(skipped)
    for file, identity in zip(sources, hashes, strict=True):
        first = here.setdefault(identity.content, file.name)
        if file.name not in passed or identity.content == NO_BYTES or file.before(chain) is not None:
            continue
        entry = identity.entry(chain)
        known = dict.fromkeys(commit_record(chain.block(entry.hash)).files) if entry is not None else {}
        names = [name for name, of in known if of in identity.hashes] or [first]
        if names[0] != file.name:
            found[file.name] = names[0]
    return found


def _next_versions(
    chain: Chain, sources: Sequence[TakenFile], hashes: Sequence[FileIdentity]
) -> tuple[list[int], list[str]]:
    """Separate names whose content changed since it was last appended from those that still have it."""
    new: list[int] = []
    skipped: list[str] = []
    for index, (file, identity) in enumerate(zip(sources, hashes, strict=True)):
        before = file.before(chain)
        if before is not None and before[0] in identity.hashes:
            skipped.append(file.name)
        else:
            new.append(index)
    return new, skipped


def _refuse_garbage(reads: Sequence[FileRead], names: Sequence[str], max_bad: float | None) -> dict[str, int]:
    """Count bad cells by column; refuse more than were allowed, or what looks like a mistake in reading."""
    bad: dict[str, int] = {}
    for read, name in zip(reads, names, strict=True):
        for column, count in read.stats.bad.items():
            bad[column] = bad.get(column, 0) + count
        if max_bad is None and (reason := readers.looks_wrong(read.stats.counts)) is not None:
            raise InputError(
                f"{name} is mostly unreadable: {reason}",
                remedy="fix the reader's options, such as separator and skip_lines "
                "(--delimiter, --skip-lines), or allow it with max_bad",
                code="TooManyBadCells",
                bad=dict(bad),
                path=name,
            )
    rows = sum(read.stats.rows for read in reads)
    total = sum(bad.values())
    if max_bad is not None:
        too_many = (
            total > max_bad if max_bad >= 1 or max_bad == 0 else any(n > max_bad * rows for n in bad.values())
        )
        if too_many:
            shown = ", ".join(f"{column} {count:,}" for column, count in sorted(bad.items()))
            worst = max(range(len(reads)), key=lambda at: sum(reads[at].stats.bad.values()))
            where = f", most of them in {names[worst]}" if len(names) > 1 else f" in {names[worst]}"
            raise InputError(
                f"{total:,} cell{'s' * (total != 1)} in {rows:,} row{'s' * (rows != 1)} cannot be read "
                f"({shown}){where}, more than max_bad={max_bad:g}",
                remedy="look at the files and the reader's options, or raise max_bad",
                code="TooManyBadCells",
                bad=dict(bad),
                path=names[worst],
            )
    return bad
