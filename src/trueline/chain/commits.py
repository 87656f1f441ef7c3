"""What a commit says of itself: which part of it a block is, and where its records came from.

The specification has no field for it, so it lies in the `extra` attributes of
`AddData` under `trueline/commit`; where a commit adds no row, in its
checkpoint file. Metadata blocks of a commit come before its data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from trueline.chain.block import Block
from trueline.chain.datatypes import Extra
from trueline.chain.events import AddData
from trueline.errors import InputError

COMMIT_KEY = "trueline/commit"
MAX_PARTS = 1 << 31


@dataclass(frozen=True, slots=True)
class CommitRecord:
    """Part `part` of `parts`; `notes` holds what the writer adds: idempotency key, files, bad cells.

    >>> CommitRecord(2, 3).is_end, CommitRecord(3, 3).is_end
    (False, True)
    """

    part: int = 1
    parts: int = 1
    notes: Mapping[str, Any] | None = None

    @property
    def is_end(self) -> bool:
        """Whether a commit ends with this part."""
        return self.part >= self.parts

    @property
    def files(self) -> list[tuple[str, str]]:
        """The name and hash of each file the commit took in; what is not of that form is passed over."""
        listed = (self.notes or {}).get("files")
        if not isinstance(listed, list):
            return []
        pairs = [(item.get("name"), item.get("hash")) for item in listed if isinstance(item, Mapping)]
        return [
            (name, content) for name, content in pairs if isinstance(name, str) and isinstance(content, str)
        ]

    def to_extra(self) -> Extra | None:
        """Return the attributes to store, None if there is nothing to say."""
        value: dict[str, Any] = dict(self.notes or {})
        if self.parts > 1:
            value |= {"part": self.part, "parts": self.parts}
        return Extra.of({COMMIT_KEY: value}) if value else None

    @classmethod
    def from_value(cls, value: object) -> CommitRecord:
        """Read the stored form."""
        if not isinstance(value, Mapping):
            raise InputError(
                f"{COMMIT_KEY} is not a mapping", remedy="the block was not written by this software"
            )
        notes = {str(key): item for key, item in value.items() if key not in ("part", "parts")}
        part, parts = value.get("part", 1), value.get("parts", 1)
        if type(part) is not int or type(parts) is not int or not 1 <= part <= parts < MAX_PARTS:
            raise InputError(
                f"{COMMIT_KEY} says part {part!r} of {parts!r}",
                remedy="the block was not written by this software",
            )
        return cls(part, parts, notes or None)


WHOLE = CommitRecord()


def commit_record(block: Block) -> CommitRecord:
    """Return what a block says of its commit; every block without a record is a whole one.

    So is one whose record is not ours: a block of another writer must not make its chain unreadable.
    """
    return record_of(block.event) if isinstance(block.event, AddData) else WHOLE


def record_of(event: AddData) -> CommitRecord:
    """Return what an AddData says of its commit."""
    extra = event.extra
    # The text is searched first: most blocks say nothing, and parsing costs 2 µs.
    if extra is None or COMMIT_KEY not in extra.entries:
        return WHOLE
    value = extra.value
    try:
        return CommitRecord.from_value(value[COMMIT_KEY]) if COMMIT_KEY in value else WHOLE
    except InputError:
        return WHOLE


def is_commit_end(block: Block) -> bool:
    """Say whether readers and plans may stop at a block: not inside a commit of several parts."""
    return commit_record(block).is_end
