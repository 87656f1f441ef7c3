"""Proof of a chain: every block hashes to its name, links to the one before, and keeps the rules."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import StrEnum

from trueline.chain import rules
from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.head_state import Tail, follow
from trueline.chain.references import Reference, references
from trueline.chain.rule import Finding, InputChain, removal_beyond
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
    """What a verification found; `findings` are stricter rules a foreign chain breaks, not faults."""

    blocks: int = 0
    objects: int = 0
    bytes: int = 0
    problems: tuple[Problem, ...] = ()
    findings: tuple[tuple[Multihash, Finding], ...] = ()
    not_checked: tuple[str, ...] = ()

    @property
    def ok(self) -> bool:
        """Whether nothing is wrong."""
        return not self.problems

    def __bool__(self) -> bool:
        return self.ok

    def __add__(self, other: VerificationReport) -> VerificationReport:
        return VerificationReport(
            self.blocks + other.blocks,
            self.objects + other.objects,
            self.bytes + other.bytes,
            self.problems + other.problems,
            self.findings + other.findings,
            tuple(dict.fromkeys(self.not_checked + other.not_checked)),
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


class Pinned:
    """Finds the numbers of blocks in pages of the index, read ahead; what is not in them is looked up.

    A derivative takes its inputs forward, so its questions come in order and a
    page serves thousands of them; one by one each costs 20 µs.
    """

    def __init__(self, chain: Chain) -> None:
        self._chain = chain
        tail = chain.tail()
        self._end = tail.sequence_number if tail else -1
        self._next = 0
        self._pages: list[dict[Multihash, tuple[int, int | None]]] = [{}, {}]

    def sequence_of(self, block: Multihash) -> int | None:
        """Return the number of a block, None if it is not on the branch."""
        found = self._find(block)
        return found[0] if found is not None else self._chain.sequence_of(block)

    def last_offset_at(self, block: Multihash) -> int | None:
        """Return the last offset at a block."""
        found = self._find(block)
        return found[1] if found is not None else self._chain.last_offset_at(block)

    def _find(self, block: Multihash) -> tuple[int, int | None] | None:
        for page in self._pages:
            if block in page:
                return page[block]
        if self._next > self._end or block.code != SHA3_256:
            return None
        rows = self._chain.positions(self._next - 1, self._end)
        page = {Multihash.sha3_256(digest): (number, last) for digest, number, last in rows}
        self._pages = [self._pages[1], page]
        self._next = rows[-1][1] + 1 if rows else self._end + 1
        return page.get(block)
