"""What a transfer did, and why one is refused."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from trueline.chain.rule import Finding
from trueline.errors import DestinationAhead, Diverged, InputError
from trueline.identity.multihash import Multihash


@dataclass(frozen=True, slots=True)
class Transferred:
    """What went over: new blocks and objects, bytes of both, and `kept`, objects that were there already.

    `findings` are stricter rules a foreign chain breaks, with the block that does; `tags` came along, those
    `left_behind` name commits that a reset has cut off, which no transfer carries.
    """

    dataset: str
    source: str
    target: str
    before: Multihash | None
    head: Multihash
    blocks: int = 0
    objects: int = 0
    bytes: int = 0
    kept: int = 0
    findings: tuple[tuple[Multihash, Finding], ...] = ()
    tags: tuple[str, ...] = ()
    left_behind: tuple[str, ...] = ()

    @property
    def changed(self) -> bool:
        """Whether the head of the target moved."""
        return self.before != self.head

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "findings"}
        findings = [
            {"block": str(block), "rule": found.rule, "problem": found.problem}
            for block, found in self.findings
        ]
        return plain | {"changed": self.changed, "findings": findings}


@dataclass(frozen=True, slots=True)
class Comparison:
    """How two copies of a dataset differ: their last common block, and what each has beyond."""

    common: Multihash | None
    source: int
    target: int

    def refusal(self, source: str, target: str) -> InputError | None:
        """Return why the target cannot follow the source, None if it can."""
        if not self.target:
            return None
        if self.common is not None and not self.source:
            return DestinationAhead(
                f"{target} is {_blocks(self.target)} ahead of {source}",
                remedy="transfer the other way, or discard those blocks with force=True (--force)",
                common=self.common,
                ahead=self.target,
            )
        shared = f"after block {self.common}" if self.common else "from the first block on"
        return Diverged(
            f"{source} and {target} differ {shared}: "
            f"{_blocks(self.source)} there, {_blocks(self.target)} here",
            remedy="replace what the target has with force=True (--force), or "
            "keep both under different names",
            common=self.common,
            source=self.source,
            target=self.target,
        )


def _blocks(count: int) -> str:
    return f"{count:,} block{'s' * (count != 1)}"


def another_dataset(source: str, target: str, ids: tuple[str, str]) -> InputError:
    """The error of a target that holds another dataset; no force changes who a dataset is."""
    return InputError(
        f"{source} is the dataset {ids[0]}, {target} is {ids[1]}",
        remedy="choose another name or place for it",
        code="OtherDataset",
        source=ids[0],
        target=ids[1],
    )
