"""A checkpoint file: what a transaction leaves for the next, in a form anyone can read.

Small canonical JSON that names the files it rests on by hash, the records it
was made from (its origin), and what a commit without rows has to say. State
files lie beside it; together they are a cache that can be rebuilt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from trueline.chain.datatypes import Extra
from trueline.errors import InputError
from trueline.identity.multihash import Multihash

FORMAT = "trueline/checkpoint"
VERSION = 1
MAX_CHECKPOINT_BYTES = 64 << 20


@dataclass(frozen=True, slots=True)
class StateFile:
    """A file a checkpoint rests on, stored among the checkpoints."""

    hash: Multihash
    size: int
    notes: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckpointFile:
    """The content of a checkpoint: its files, and `notes` (origin, engine, commit record …).

    >>> text = CheckpointFile(notes={"origin": {}}).to_bytes()
    >>> CheckpointFile.from_bytes(text).notes
    {'origin': {}}
    """

    files: tuple[StateFile, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the canonical text: equal checkpoints have equal bytes."""
        files = [{**file.notes, "hash": str(file.hash), "size": file.size} for file in self.files]
        return Extra.of({**self.notes, "format": FORMAT, "version": VERSION, "files": files}).entries.encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> CheckpointFile:
        """Read a checkpoint; one that is not ours raises `InputError`."""
        value = _parse(raw)
        if value is None:
            raise InputError("not a checkpoint of this software", remedy="it belongs to another engine")
        if type(value.get("version")) is not int or value["version"] != VERSION:
            raise InputError(f"checkpoint version {value.get('version')!r} is not known", remedy="upgrade")
        files = value.get("files")
        if not isinstance(files, list):
            raise InputError("a checkpoint without a list of files", remedy="the file is damaged")
        notes = {key: item for key, item in value.items() if key not in ("format", "version", "files")}
        return cls(tuple(_state_file(item) for item in files), notes)


def is_ours(raw: bytes) -> bool:
    """Say whether a checkpoint file is one of ours; other engines' are opaque."""
    return _parse(raw) is not None


def _parse(raw: bytes) -> dict[str, Any] | None:
    if len(raw) > MAX_CHECKPOINT_BYTES or FORMAT.encode() not in raw:
        return None
    try:
        value = json.loads(raw)
    except (ValueError, RecursionError):
        return None
    return value if isinstance(value, dict) and value.get("format") == FORMAT else None


def _state_file(item: object) -> StateFile:
    if (
        not isinstance(item, dict)
        or not isinstance(item.get("hash"), str)
        or type(item.get("size")) is not int
        or item["size"] < 0
    ):
        raise InputError("a checkpoint lists a file without hash or size", remedy="the file is damaged")
    notes = {key: value for key, value in item.items() if key not in ("hash", "size")}
    return StateFile(Multihash.parse(item["hash"]), item["size"], notes)
