"""What a rule of the chain is: what it looks at, and what it says when it is broken."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from trueline.chain.block import Block
from trueline.chain.events import DatasetKind
from trueline.chain.tail import Tail
from trueline.errors import ChainError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

STRICT = frozenset({"R1", "R2", "R3", "R4", "R5", "R6", "R7", "R8", "H3", "S7", "guard:G7"})
CODES = {
    "C1": "FirstBlockMustBeSeed",
    "C2": "AppendingSeedBlockToNonEmptyChain",
    "C3": "SequenceIntegrity",
    "C4": "SequenceIntegrity",
    "C5": "PrevBlockNotFound",
    "C6": "SystemTimeIsNotMonotonic",
    "C9": "BlockNotFound",
    "D1": "OffsetsAreNotSequential",
    "D4": "WatermarkIsNotMonotonic",
    "D5": "WatermarkIsNotMonotonic",
    "D8": "NoOpEvent",
    "D9": "NoOpEvent",
    "T10": "NoOpEvent",
    "T11": "NoOpEvent",
    "S1": "NoOpEvent",
    "H1": "NoOpEvent",
    "R4": "InvalidInputInterval",
    "guard:G7": "RemovalBeyondTheChain",
}


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that a block breaks: which, how, and what would mend it."""

    rule: str
    problem: str
    remedy: str

    @property
    def code(self) -> str:
        """The name of the error."""
        return CODES.get(self.rule.removeprefix("chain:"), "InvalidEvent")

    @property
    def strict(self) -> bool:
        """Whether only what is appended here must keep the rule."""
        return self.rule.removeprefix("chain:") in STRICT

    def error(self) -> ChainError:
        """As the error that refuses the block."""
        return ChainError(self.problem, remedy=self.remedy, code=self.code, rule=self.rule)


class InputChain(Protocol):
    """What the rules ask of the chain of an input."""

    def sequence_of(self, block: Multihash) -> int | None:
        """Return where a block stands on the present branch, None if it is not on it."""

    def last_offset_at(self, block: Multihash) -> int | None:
        """Return the dataset's last offset at a block of the present branch."""


class Step(NamedTuple):
    """A block about to follow a chain, with what is known around it."""

    tail: Tail | None
    block: Block
    inputs: Mapping[DatasetId, InputChain] | None

    @property
    def kind(self) -> DatasetKind | None:
        return self.tail.dataset_kind if self.tail else None


Findings = Iterator[Finding]
Rule = Callable[[Step, Any], Findings]


def breaks(rule: str, problem: str, remedy: str) -> Finding:
    """Say that a rule is broken."""
    return Finding(f"chain:{rule}", problem, remedy)
