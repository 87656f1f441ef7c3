"""One link of a chain: an event, when it was recorded, and the hash of the link before it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trueline.chain.encode import encode
from trueline.chain.events import AddData, Event, ExecuteTransform
from trueline.chain.instant import Instant
from trueline.chain.shapes import Shapes
from trueline.chain.stencils import Stencils
from trueline.chain.wire import U64, Record
from trueline.identity.multihash import Multihash


@dataclass(frozen=True, slots=True, kw_only=True)
class Block(Record):
    """A metadata block; its name is the sha3-256 of its manifest bytes.

    Bytes that came from outside are kept and handed on as they are, whatever
    version they have; what is made here is written as manifest version 3.

    >>> block = Block.from_dict(
    ...     {
    ...         "systemTime": "2050-01-01T12:00:00Z",
    ...         "sequenceNumber": 0,
    ...         "event": {"kind": "SetInfo", "description": "foo"},
    ...     }
    ... )
    >>> block.hash.short, len(block.to_bytes())
    ('25f4f50f', 120)
    >>> Block.from_bytes(block.to_bytes()) == block
    True
    """

    system_time: Instant
    prev_block_hash: Multihash | None = None
    sequence_number: U64
    event: Event
    _raw: bytes | None = field(default=None, init=False, repr=False, compare=False)
    _hash: Multihash | None = field(default=None, init=False, repr=False, compare=False)

    @classmethod
    def from_bytes(cls, raw: bytes, *, name: Multihash | None = None) -> Block:
        """Read a block; raises `MalformedBlock` or `UnsupportedVersion`.

        `name` is its hash if the caller has just computed it.
        """
        raw = bytes(raw)
        block: Block = _SHAPES.read(raw)
        object.__setattr__(block, "_raw", raw)
        object.__setattr__(block, "_hash", name)
        return block

    @classmethod
    def from_dict(cls, value: Mapping[str, Any]) -> Block:
        """Read the JSON or YAML form, with or without its `kind: MetadataBlock` wrapper."""
        from trueline.chain.text import block_from_dict

        return block_from_dict(value)

    def to_dict(self) -> dict[str, Any]:
        """Return the JSON form; what is absent is left out."""
        from trueline.chain.text import to_dict

        return to_dict(self)

    def to_bytes(self) -> bytes:
        """Return the manifest bytes: the original ones if the block came as bytes."""
        if self._raw is None:
            # Data events come by the thousand in a few shapes, others once.
            write = _STENCILS.write if self.data_event is not None else encode
            object.__setattr__(self, "_raw", write(self))
        assert self._raw is not None
        return self._raw

    @property
    def hash(self) -> Multihash:
        """The block's name."""
        if self._hash is None:
            object.__setattr__(self, "_hash", Multihash.of(self.to_bytes()))
        assert self._hash is not None
        return self._hash

    @property
    def data_event(self) -> AddData | ExecuteTransform | None:
        """The event if it is one that moves data on, else None."""
        return self.event if isinstance(self.event, (AddData, ExecuteTransform)) else None


_SHAPES = Shapes(Block)
_STENCILS = Stencils()
