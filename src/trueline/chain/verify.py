"""Proof of a chain: every block hashes to its name, links to the one before, and keeps the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import NamedTuple

from trueline.chain import rules
from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.head_state import Tail, follow
from trueline.chain.references import Reference, references
from trueline.chain.rule import BlockPosition, Finding, InputChain, removal_beyond, unended
from trueline.errors import (
    ChainError,
    CorruptionError,
    InputError,
    ObjectMissing,
    TruelineError,
    check_memory,
)
from trueline.identity.multihash import SHA3_256, Multihash, physical_hash


class ProblemKind(StrEnum):
    """What is wrong: bytes changed, gone or removed on purpose, a replay that differs, a head gone back."""

    CORRUPT = "corrupt"
    MISSING = "missing"
    REMOVED = "removed"
    NOT_REPRODUCIBLE = "not_reproducible"
    OTHER_ENGINE = "other_engine"
    ROLLED_BACK = "rolled_back"
    REPLACED = "replaced"


@dataclass(frozen=True, slots=True)
class Problem:
    """One thing that is wrong, with the block it was found at."""

    kind: ProblemKind
    message: str
    remedy: str = ""
    block: Multihash | None = None
    sequence_number: int | None = None
    rule: str | None = None

    def __str__(self) -> str:
        where = f"block {self.sequence_number} ({self.block.short}): " if self.block else ""
        return f"{self.kind}: {where}{self.message}"


@dataclass(frozen=True, slots=True)
class VerificationReport:
    """What a verification found; `findings` are stricter rules a foreign chain breaks, not faults.

    `replayed` counts the commits of derived datasets that were computed again, and `datasets` says what was
    found of each dataset.
    """

    blocks: int = 0
    objects: int = 0
    bytes: int = 0
    problems: tuple[Problem, ...] = ()
    findings: tuple[tuple[Multihash, Finding], ...] = ()
    not_checked: tuple[str, ...] = ()
    replayed: int = 0
    by_dataset: tuple[tuple[str, VerificationReport], ...] = ()

    @property
    def datasets(self) -> dict[str, VerificationReport]:
        """The same for each dataset by its name, where a workspace was verified.

        >>> report = VerificationReport(blocks=3).of("sales") + VerificationReport(blocks=1).of("days")
        >>> report.blocks, {name: each.blocks for name, each in report.datasets.items()}
        (4, {'sales': 3, 'days': 1})
        """
        found: dict[str, VerificationReport] = {}
        for name, report in self.by_dataset:
            found[name] = found[name] + report if name in found else report
        return found

    def of(self, name: str) -> VerificationReport:
        """Return it as what it says of the dataset of a name.

        >>> list(VerificationReport().of("sales").datasets)
        ['sales']
        """
        return replace(self, by_dataset=((name, self),))

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html

        verdict = "ok" if self.ok else f"{len(self.problems):,} problems"
        counts: dict[str, object] = {"blocks": self.blocks, "files": self.objects, "bytes": self.bytes}
        if self.replayed:
            counts["commits replayed"] = self.replayed
        problems = {f"problem {number}": str(each) for number, each in enumerate(self.problems[:20], 1)}
        return html(f"Verification: {verdict}", counts | problems)

    def __add__(self, other: VerificationReport) -> VerificationReport:
        return VerificationReport(
            self.blocks + other.blocks,
            self.objects + other.objects,
            self.bytes + other.bytes,
            self.problems + other.problems,
            self.findings + other.findings,
            tuple(dict.fromkeys(self.not_checked + other.not_checked)),
            self.replayed + other.replayed,
            self.by_dataset + other.by_dataset,
        )


Progress = Callable[[int], None]


def verify_blocks(
    chain: Chain,
    after: Multihash | None = None,
    upto: Multihash | None = None,
    progress: Progress | None = None,
) -> VerificationReport:
    """Fold the chain once, oldest first, in time linear in its length.

    With `after` the part before it is taken as proven and only (after, upto]
    is read. The index says which block comes next; links and hashes prove it.
    """
    try:
        return _fold(chain, after, upto, progress)
    except _IndexIsWrong:
        chain.rebuild_index()
        return _fold(chain, after, upto, progress)
    except CorruptionError as error:
        return VerificationReport(problems=(_problem(error, None, None),))


class _IndexIsWrong(Exception):
    """A block does not continue the one before it, so the index is wrong."""


def _fold(
    chain: Chain, after: Multihash | None, upto: Multihash | None, progress: Progress | None
) -> VerificationReport:
    tail: Tail | None = chain.tail_at(after) if after is not None else None
    count = 0
    findings: list[tuple[Multihash, Finding]] = []
    unchecked: dict[str, None] = {}
    inputs = {name: _pinned(source) for name, source in (chain.inputs or {}).items()} or None
    for entry in chain.entries(after, upto):
        try:
            block = chain.block(entry.hash)
        except (TruelineError, OSError) as error:
            check_memory(error, f"reading block {entry.hash}")
            return VerificationReport(count, problems=(_problem(error, entry.hash, entry.sequence_number),))
        if block.prev_block_hash != (tail.head if tail else None):
            raise _IndexIsWrong
        for finding in rules.check(tail, block, inputs):
            if not finding.strict:
                problem = Problem(
                    ProblemKind.CORRUPT,
                    finding.problem,
                    finding.remedy,
                    entry.hash,
                    entry.sequence_number,
                    finding.rule,
                )
                return VerificationReport(count, problems=(problem,), findings=tuple(findings))
            findings.append((entry.hash, finding))
        if (forged := removal_beyond(chain.store, block)) is not None:
            findings.append((entry.hash, forged))
        if unproven := rules.not_checked(block, inputs):
            unchecked |= dict.fromkeys(unproven)
        tail = follow(tail, block)
        count += 1
        if progress is not None and count % 1000 == 0:
            progress(count)
    end = upto if upto is not None else chain.head
    if tail is not None and end is not None and tail.head != end and count:
        raise _IndexIsWrong
    if count and tail is not None and (open_end := unended(tail)) is not None:
        findings.append((tail.head, open_end))
    return VerificationReport(count, findings=tuple(findings), not_checked=tuple(unchecked))


def _pinned(source: InputChain) -> InputChain:
    return Pinned(source) if isinstance(source, Chain) else source


def verify_objects(
    chain: Chain,
    after: Multihash | None = None,
    upto: Multihash | None = None,
    progress: Progress | None = None,
) -> VerificationReport:
    """Check that every object the blocks refer to is there, has its size and hashes to its name."""
    problems: list[Problem] = []
    count = size = 0
    seen: set[Multihash] = set()
    for name, block in chain.between(after, upto):
        try:
            for reference in references(block, chain.store, seen):
                count += 1
                size += reference.size or 0
                problem = _check_object(chain, reference, name, block)
                if problem is not None:
                    problems.append(problem)
                if progress is not None:
                    progress(count)
        except InputError as error:
            # A checkpoint that says it is ours but cannot be understood.
            problems.append(_problem(error, name, block.sequence_number))
    return VerificationReport(objects=count, bytes=size, problems=tuple(problems))


def _check_object(chain: Chain, reference: Reference, name: Multihash, block: Block) -> Problem | None:
    what = f"{reference.role} {reference.hash}"

    def problem(kind: ProblemKind, message: str) -> Problem:
        remedy = "restore the file from a copy of the dataset"
        return Problem(kind, message, remedy, name, block.sequence_number)

    try:
        size = chain.store.size(reference.folder, reference.hash)
        if size is None:
            return problem(ProblemKind.MISSING, f"{what} is not in {chain.store.location}")
        if reference.size is not None and size != reference.size:
            return problem(
                ProblemKind.CORRUPT, f"{what} has {size:,} bytes, the block says {reference.size:,}"
            )
        with chain.store.open(reference.folder, reference.hash) as file:
            actual = physical_hash(file)
    except ObjectMissing:
        return problem(ProblemKind.MISSING, f"{what} is not in {chain.store.location}")
    if actual != reference.hash:
        return problem(ProblemKind.CORRUPT, f"{what} hashes to {actual}")
    return None


def _problem(error: Exception, block: Multihash | None, number: int | None) -> Problem:
    if isinstance(error, TruelineError):
        kind = ProblemKind.MISSING if isinstance(error, ObjectMissing) else ProblemKind.CORRUPT
        rule = (
            getattr(error, "rule", None)
            if isinstance(error, ChainError | CorruptionError | InputError)
            else None
        )
        return Problem(kind, error.problem, error.remedy, block, number, rule)
    return Problem(ProblemKind.CORRUPT, str(error), "check the storage", block, number)


Row = tuple[bytes, int, int | None, int]


class InputBlock(NamedTuple):
    """Where a block of an input is."""

    sequence_number: int
    last_offset: int | None
    is_end: bool


class Pinned:
    """Finds the blocks of an input in pages of its index, read ahead; what is not in them is looked up.

    A derivative takes its inputs forward, so its questions come in order and a
    page serves thousands of them; one by one each costs 20 µs.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        tail = chain.tail()
        self._end = tail.sequence_number if tail else -1
        self._next = 0
        self._pages: list[dict[bytes, Row]] = [{}, {}]
        self._known: tuple[Multihash | None, BlockPosition | None] = (None, None)

    def entry(self, block: Multihash) -> BlockPosition | None:
        """Return where a block is, None if it is not on the branch."""
        # An interval begins where the last one ended, and an input that is idle stays where it was.
        if block != self._known[0]:
            self._known = (block, self._find(block))
        return self._known[1]

    def _find(self, block: Multihash) -> BlockPosition | None:
        if block.code != SHA3_256:
            return None
        digest = block.digest
        found = self._pages[1].get(digest) or self._pages[0].get(digest) or self._turn(digest)
        return self._chain.entry(block) if found is None else InputBlock(found[1], found[2], bool(found[3]))

    def _turn(self, digest: bytes) -> Row | None:
        """Read the next page, where a block that comes later is expected."""
        if self._next > self._end:
            return None
        rows = self._chain.positions(self._next - 1, self._end)
        # By digest and as they come: most rows are never asked for.
        page = {row[0]: row for row in rows}
        self._pages = [self._pages[1], page]
        self._next = rows[-1][1] + 1 if rows else self._end + 1
        return page.get(digest)
