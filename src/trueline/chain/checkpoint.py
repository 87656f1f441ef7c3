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
from trueline.chain.events import ExecuteTransform
from trueline.chain.head_state import Position
from trueline.chain.store.store import Folder, Store
from trueline.errors import HashMismatch, InputError, UnsupportedVersion
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash

FORMAT = "trueline/checkpoint"
VERSION = 1
# Of a checkpoint with a file whose keys have another encoding than the first: earlier software refuses it.
VERSION_WITH_ENCODINGS: Final = 2
# In the notes of a file: how its keys are encoded; it is not there for encoding 1.
ENCODING: Final = "encoding"
MAX_CHECKPOINT_BYTES = 64 << 20
# In the notes of a checkpoint: what a transaction of a derived dataset says of itself.
DERIVED: Final = "derived"
DERIVED_VERSION: Final = 1
# Among what a derived commit says beside: how it was computed, and what it did to the rows.
STRATEGY: Final = "strategy"
COUNTS: Final = "counts"
_DERIVED_FIELDS: Final = ("version", "origin", "at_rest", "definition", "engine", "versions")


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


# --- of a derived dataset --------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class DerivedOrigin:
    """What a derived dataset was made from: positions of roots, and the definitions on the way.

    `definitions` names the `SetTransform` block of every derived ancestor and of the dataset itself: two
    datasets with equal positions do not agree if one of them was made under an older definition.
    """

    roots: Mapping[DatasetId, Position] = field(default_factory=dict)
    definitions: Mapping[DatasetId, Multihash] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DerivedCheckpoint:
    """What the end of a derived commit leaves: its origin, whether it is at rest there, its state.

    `state` are files among the checkpoints; `rows` and `encoding` (of keys) are in their notes. `engine`
    is who computed it, `versions` of what. `more` and `notes` are fields of later versions and of others
    (a removal), which copies keep. No cut number is here: it belongs to one workspace.

    >>> made = DerivedCheckpoint(
    ...     DerivedOrigin(), at_rest=True, definition=Multihash.of(b"x"), engine="spark"
    ... )
    >>> DerivedCheckpoint.of(CheckpointFile.from_bytes(made.to_file().to_bytes())) == made
    True
    """

    origin: DerivedOrigin
    at_rest: bool
    definition: Multihash
    engine: str
    versions: Mapping[str, str] = field(default_factory=dict)
    state: tuple[StateFile, ...] = ()
    more: Mapping[str, Any] = field(default_factory=dict)
    notes: Mapping[str, Any] = field(default_factory=dict)
    version: int = VERSION

    def to_file(self) -> CheckpointFile:
        """Return the checkpoint that holds it."""
        roots = {str(name): at.to_dict() for name, at in self.origin.roots.items()}
        definitions = {str(name): str(block) for name, block in self.origin.definitions.items()}
        derived = {
            **self.more,
            "version": DERIVED_VERSION,
            "origin": {"roots": roots, "definitions": definitions},
            "at_rest": self.at_rest,
            "definition": str(self.definition),
            "engine": self.engine,
            "versions": dict(self.versions),
        }
        return CheckpointFile(self.state, {**self.notes, DERIVED: derived}, self.version)

    @classmethod
    def of(cls, file: CheckpointFile) -> DerivedCheckpoint | None:
        """Read what a checkpoint says of a derived commit, None if it says nothing of one."""
        value = file.notes.get(DERIVED)
        if value is None:
            return None
        version = value.get("version") if isinstance(value, dict) else None
        if type(version) is int and version > DERIVED_VERSION:
            raise UnsupportedVersion(
                f"version {version} of a derived checkpoint is not known here", remedy="upgrade trueline"
            )
        try:
            made = _derived(file, value)
        except (InputError, KeyError, TypeError, AttributeError, ValueError) as error:
            said = error.problem if isinstance(error, InputError) else str(error) or type(error).__name__
            raise InputError(
                f"a derived checkpoint does not hold together: {said:.200}",
                remedy="restore it from a copy of the dataset",
                code="DerivedCheckpointDamaged",
            ) from None
        return made


def _derived(file: CheckpointFile, value: Mapping[str, Any]) -> DerivedCheckpoint:
    at_rest, engine, versions = value["at_rest"], value["engine"], value["versions"]
    if value["version"] != DERIVED_VERSION or type(value["version"]) is not int:
        raise ValueError(f"its version is {value['version']!r:.80}")
    if type(at_rest) is not bool or not isinstance(engine, str):
        raise ValueError("at_rest is not true or false, or the engine is not text")
    if not all(isinstance(text, str) for text in versions.values()):
        raise ValueError("a version is not text")
    origin = value["origin"]
    if set(origin) != {"roots", "definitions"}:
        raise ValueError("its origin is not {roots, definitions}")
    roots = {DatasetId.parse(name): Position.of(at) for name, at in origin["roots"].items()}
    definitions = {
        DatasetId.parse(name): Multihash.parse(block) for name, block in origin["definitions"].items()
    }
    return DerivedCheckpoint(
        DerivedOrigin(roots, definitions),
        at_rest,
        Multihash.parse(value["definition"]),
        engine,
        dict(versions),
        file.files,
        {key: item for key, item in value.items() if key not in _DERIVED_FIELDS},
        {key: item for key, item in file.notes.items() if key != DERIVED},
        file.version,
    )


def derived_checkpoint(store: Store, event: ExecuteTransform) -> DerivedCheckpoint | None:
    """Read what a transaction of a derived dataset left; None if it is not ours, or left nothing."""
    if event.new_checkpoint is None:
        return None
    name = event.new_checkpoint.physical_hash
    raw = store.get(Folder.CHECKPOINTS, name, limit=MAX_CHECKPOINT_BYTES)
    actual = Multihash.of(raw)
    if actual != name:
        raise HashMismatch(
            f"checkpoint {name} in {store.location} hashes to {actual}",
            remedy="restore the file from a copy of the dataset",
            expected=name,
            actual=actual,
        )
    return DerivedCheckpoint.of(CheckpointFile.from_bytes(raw)) if is_ours(raw) else None


def is_at_rest(store: Store, event: ExecuteTransform) -> bool:
    """Say whether readers may stop where a transaction ends; one that other software wrote counts as such."""
    if event.is_part:
        return False
    left = derived_checkpoint(store, event)
    return left is None or left.at_rest
