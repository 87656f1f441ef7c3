"""A checkpoint file: what a transaction leaves for the next, in a form anyone can read.

Small canonical JSON that names the files it rests on by hash, the records it
was made from (its origin), and what a commit without rows has to say. State
files lie beside it; together they are a cache that can be rebuilt.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trueline.chain.datatypes import Extra
from trueline.errors import InputError, UnsupportedVersion
from trueline.identity.multihash import Multihash

FORMAT = "trueline/checkpoint"
VERSION = 1
# Of a checkpoint with a file whose keys have another encoding than the first: earlier software refuses it.
VERSION_WITH_ENCODINGS: Final = 2
# In the notes of a file: how its keys are encoded; it is not there for encoding 1.
ENCODING: Final = "encoding"
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

    Notes that are not known here are kept, those of files too, and so is a version above what they need.

    >>> text = CheckpointFile(notes={"origin": {}}).to_bytes()
    >>> CheckpointFile.from_bytes(text).notes
    {'origin': {}}
    """

    files: tuple[StateFile, ...] = ()
    notes: Mapping[str, Any] = field(default_factory=dict)
    version: int = VERSION

    def to_bytes(self) -> bytes:
        """Return the canonical text: equal checkpoints have equal bytes."""
        files = [{**file.notes, "hash": str(file.hash), "size": file.size} for file in self.files]
        needed = VERSION_WITH_ENCODINGS if any(ENCODING in file.notes for file in self.files) else VERSION
        version = max(self.version, needed)
        return Extra.of({**self.notes, "format": FORMAT, "version": version, "files": files}).entries.encode()

    @classmethod
    def from_bytes(cls, raw: bytes) -> CheckpointFile:
        """Read a checkpoint; one that is not ours raises `InputError`."""
        value = _parse(raw)
        if value is None:
            raise InputError("not a checkpoint of this software", remedy="use the software that wrote it")
        version = value.get("version")
        if type(version) is not int or not VERSION <= version <= VERSION_WITH_ENCODINGS:
            raise UnsupportedVersion(
                f"checkpoint version {version!r} is not known here", remedy="upgrade trueline"
            )
        files = value.get("files")
        if not isinstance(files, list):
            raise InputError(
                "a checkpoint without a list of files", remedy="restore it from a copy of the dataset"
            )
        notes = {key: item for key, item in value.items() if key not in ("format", "version", "files")}
        found = tuple(_state_file(item) for item in files)
        if version < VERSION_WITH_ENCODINGS and any(ENCODING in file.notes for file in found):
            raise InputError(
                f"a checkpoint of version {version} names an encoding of keys",
                remedy="restore it from a copy of the dataset",
            )
        return cls(found, notes, version)


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
        raise InputError(
            "a checkpoint lists a file without hash or size", remedy="restore it from a copy of the dataset"
        )
    notes = {key: value for key, value in item.items() if key not in ("hash", "size")}
    return StateFile(Multihash.parse(item["hash"]), item["size"], notes)
