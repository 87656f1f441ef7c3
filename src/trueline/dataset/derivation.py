"""What a derived dataset is defined by, as events of its chain and back."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import lru_cache
from typing import Any, Final

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.datatypes import DataSchema, Extra
from trueline.chain.events import (
    AttachmentEmbedded,
    AttachmentsEmbedded,
    DatasetKind,
    Event,
    Seed,
    SetAttachments,
    SetDataSchema,
    SetInfo,
    SetTransform,
    SetVocab,
    TransformInput,
)
from trueline.chain.head_state import Tail, linked
from trueline.chain.instant import Instant
from trueline.chain.schema import fields_of, show
from trueline.chain.sources import ENGINE, SqlQueryStep, TransformSql
from trueline.chain.text import read_document
from trueline.check import Action, DatasetCheck, same_checks
from trueline.dataset.definition import PATH, addendum_at
from trueline.errors import InputError, TruelineError, UnsupportedVersion
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.merge import KeyEquality

# The version that a SetTransform of ours names: that of the canonical query.
CANONICAL: Final = "1"
# The module of a function, as it was when the dataset was defined.
SOURCE_PATH: Final = "trueline.function.py"
FORMAT: Final = "trueline/derivation"
VERSION: Final = 1
# Of rows that nothing identifies: which of the equal rows it is. Readers do not see it.
COPY: Final = "copy_number"


class KeyKind(StrEnum):
    """How rows of a result are told apart: by a key that is proven or declared, or by all they hold."""

    PROVEN = "proven"
    DECLARED = "declared"
    BAG = "bag"


@dataclass(frozen=True, slots=True)
class FunctionOf:
    """A function of frames by its import path, `module:function`, and the text of its module."""

    path: str
    source: str

    @property
    def digest(self) -> str:
        """What changes with any byte of the module."""
        return hashlib.sha3_256(self.source.encode()).hexdigest()

    @property
    def step(self) -> SqlQueryStep:
        """What stands for it where a chain has queries."""
        return SqlQueryStep(query=f"-- function {self.path}\n-- sha3-256 {self.digest}")


@dataclass(frozen=True, slots=True)
class Derivation:
    """The queries, their inputs by the names they have there, and what identifies a row of the result.

    `written` is the text before stars were expanded; `strategy` says how the dataset follows its inputs and
    `reason`, a stable code, why not by the increment. `nondet` are inputs read at a cut of their own, by the
    names they have here, with the reason. `replaces` is the dataset that had the name before; with
    `from_here` rows that were there before this definition stay as they are. `file` is the file that says
    all this, with the name of its folder, and `folder` what tells that folder from others of this name.
    `version` is that of the canonical queries. `steps` are the names and texts of several queries, which
    `written` has one after another.
    """

    queries: tuple[SqlQueryStep, ...]
    inputs: tuple[TransformInput, ...]
    key: tuple[str, ...]
    identity: KeyKind
    written: str = ""
    strategy: str = "recompute"
    reason: str = ""
    event_time: str | None = None
    description: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    canonical: tuple[str, ...] = ()
    nondet: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[DatasetCheck, ...] = ()
    function: FunctionOf | None = None
    replaces: str | None = None
    from_here: bool = False
    file: str | None = None
    version: str = field(default_factory=lambda: CANONICAL)
    folder: str | None = None
    steps: tuple[tuple[str, str], ...] = ()

    def over(self, inputs: tuple[TransformInput, ...]) -> Derivation:
        """Return the definition with its inputs."""
        return replace(self, inputs=inputs)

    @property
    def input_ids(self) -> tuple[DatasetId, ...]:
        """The datasets it reads, in the order of the definition."""
        return tuple(DatasetId.parse(each.dataset_ref) for each in self.inputs)

    @property
    def transform(self) -> SetTransform:
        """The event that says how rows are computed."""
        return SetTransform(
            inputs=self.inputs,
            transform=TransformSql(engine=ENGINE, version=self.version, queries=self.queries),
        )

    @property
    def document(self) -> str:
        """What the event has no field for, as canonical text."""
        said: dict[str, Any] = {
            "key": list(self.key),
            "identity": self.identity.value,
            "key_equality": KeyEquality.GROUP.value,
            "strategy": self.strategy,
            "reason": self.reason,
            "written": self.written,
            "columns": dict(self.columns),
            "canonical": list(self.canonical),
            "nondet": dict(self.nondet),
            "checks": [each.to_dict() for each in self.checks],
            "function": None if self.function is None else self.function.path,
            "replaces": self.replaces,
            "from_here": self.from_here,
            "file": self.file,
            "folder": self.folder,
            "steps": [list(step) for step in self.steps],
        }
        said = {name: value for name, value in said.items() if value}
        return Extra.of({**said, "format": FORMAT, "version": VERSION}).entries

    @property
    def attachments(self) -> SetAttachments:
        """What stands beside the transform: the document, and the module of a function."""
        items = [AttachmentEmbedded(PATH, self.document)]
        if self.function is not None:
            items.append(AttachmentEmbedded(SOURCE_PATH, self.function.source))
        return SetAttachments(AttachmentsEmbedded(tuple(items)))

    def events(self, schema: DataSchema) -> Iterator[Event]:
        """Yield the events that follow the Seed."""
        if self.event_time is not None:
            yield SetVocab(event_time_column=self.event_time)
        yield self.transform
        if self.description is not None:
            yield SetInfo(description=self.description)
        yield self.attachments
        yield SetDataSchema(schema=schema)

    def blocks(self, dataset_id: DatasetId, schema: DataSchema, now: Instant) -> list[Block]:
        """Return the blocks of the one commit that makes the dataset."""
        return linked(None, (Seed(dataset_id, DatasetKind.Derivative), *self.events(schema)), now)

    def differences(self, chain: Chain, schema: DataSchema | None = None) -> list[str]:
        """Say how an existing dataset differs from this definition: text, inputs, key, columns."""
        tail = chain.tail()
        assert tail is not None
        there = derivation_at(tail)
        if there is None:
            kind = "a root" if tail.dataset_kind is DatasetKind.Root else "derived by another engine"
            return [f"kind: it is {kind}"]
        found = []
        if there.written != self.written:
            found += _text_differences("query", there.written, self.written)
        elif there.steps and self.steps and there.steps != self.steps:
            found.append("query: the same text is cut into other steps")
        if there.function is not None and self.function is not None:
            found += _text_differences("module", there.function.source, self.function.source)
        for what, before, asked in (
            ("inputs", _shown(there.inputs), _shown(self.inputs)),
            ("nondet", dict(there.nondet), dict(self.nondet)),
            ("key", list(there.shown_key), list(self.shown_key)),
            ("event_time", tail.vocab.event_time_column, self.event_time),
            ("columns", dict(there.columns), dict(self.columns)),
        ):
            if before != asked:
                found.append(f"{what}: it is {before}, asked for is {asked}")
        if not same_checks(there.checks, self.checks):
            shown = [list(map(str, each)) for each in (there.checks, self.checks)]
            found.append(f"checks: it is {shown[0]}, asked for is {shown[1]}")
        if self.description is not None and (before := described(chain)) != self.description:
            found.append(f"description: it is {before!r}, asked for is {self.description!r}")
        if found and schema is not None:
            found += schema_differences(tail, schema)
        return found

    @property
    def leaving_out(self) -> frozenset[str]:
        """The checks that decide which rows there are; others only judge them."""
        return frozenset(str(each) for each in self.checks if each.action is Action.QUARANTINE)

    def change(self, *, is_new: bool) -> str | None:
        """Return the `on_change` by which it came into force, None for the first definition of a dataset."""
        if self.from_here:
            return "from_here"
        return None if is_new and self.replaces is None else "rebuild"

    @property
    def shown_key(self) -> tuple[str, ...]:
        """The key that people know: none where rows are told apart by all they hold."""
        return () if self.identity is KeyKind.BAG else self.key


def changed_by(commit: Sequence[tuple[Multihash, Block]], chain: Chain) -> tuple[str | None, str | None]:
    """Say by which `on_change` a commit defines a dataset anew, and in place of which other (derive:V15)."""
    try:
        derivation = derivation_at(chain.tail_at(commit[-1][0]))
    except TruelineError:
        return None, None  # looking at the past must not fail for what cannot be read
    if derivation is None:
        return None, None
    is_new = isinstance(commit[0][1].event, Seed)
    return derivation.change(is_new=is_new), derivation.replaces if is_new else None


def described(chain: Chain) -> str | None:
    """Return the description in force."""
    info = chain.newest(SetInfo)
    return info.event.description if info is not None and isinstance(info.event, SetInfo) else None


def schema_differences(tail: Tail, asked: DataSchema) -> list[str]:
    """Say which columns a result has that a dataset lacks, lacks that it has, or has of another type."""
    now = {each.name: each.type for each in (fields_of(tail.schema) if tail.schema is not None else ())}
    new = {each.name: each.type for each in asked.fields}
    shown = [name for name in (*now, *(name for name in new if name not in now)) if name != COPY]
    found = []
    for name in shown:
        if name not in new:
            found.append(f"schema: column {name} ({show(now[name])}) is gone")
        elif name not in now:
            found.append(f"schema: column {name} ({show(new[name])}) is new")
        elif now[name] != new[name]:
            found.append(f"schema: column {name} is {show(now[name])}, asked for is {show(new[name])}")
    return found


def _shown(inputs: Sequence[TransformInput]) -> list[str]:
    return [f"{each.alias} = {each.dataset_ref}" for each in inputs]


def _text_differences(what: str, before: str, asked: str) -> list[str]:
    from difflib import unified_diff

    lines = unified_diff(before.splitlines(), asked.splitlines(), "it is", "asked for", lineterm="", n=1)
    return [f"{what}: {line}" for line in lines]


def derivation_at(tail: Tail) -> Derivation | None:
    """Return the definition in force at a tail; None for roots, and for what other engines derive."""
    if tail.dataset_kind is not DatasetKind.Derivative or tail.transform is None:
        return None
    if not tail.transform.transform.is_ours:
        return None
    items = tail.attachments.attachments.items if tail.attachments is not None else ()
    texts = {item.path: item.content for item in items}
    return _read(tail.transform, texts.get(PATH), tail.vocab.event_time_column, texts.get(SOURCE_PATH, ""))


# What an attachment says, by the type it has there; of lists and mappings, that of what is in them.
_TEXTS: Final = ("written", "strategy", "reason")
_TEXTS_OR_NONE: Final = ("function", "replaces", "file", "folder")
_LISTS: Final = ("key", "canonical")
_MAPPINGS: Final = ("nondet", "columns")
_COPY_OF_IT: Final = "restore the dataset from a copy"


def _checks(said: list[Any]) -> tuple[DatasetCheck, ...]:
    """Read checks; of those of later software the kind is kept, and whoever commits refuses them."""
    found = []
    for each in said:
        try:
            found.append(DatasetCheck.of(each))
        except UnsupportedVersion:
            found.append(DatasetCheck(str(each.get("kind")) if isinstance(each, dict) else ""))
    return tuple(found)


@lru_cache(maxsize=256)
def _read(event: SetTransform, content: str | None, event_time: str | None, source: str) -> Derivation:
    said = read_document(content or "")
    if not isinstance(said, dict) or said.get("format") != FORMAT:
        raise InputError(
            f"the attachment {PATH} of a derived dataset cannot be read",
            remedy=_COPY_OF_IT,
            code="BadDerivation",
        )
    if said.get("version") != VERSION or not _is_known(event.transform.version):
        version = said.get("version"), event.transform.version
        raise UnsupportedVersion(
            f"a derivation of version {version} is not known here", remedy="upgrade trueline"
        )
    for name in said:
        if not _is_shaped(name, said[name]):
            raise _bad(name, said[name])
    queries, canonical = event.transform.queries or (), said.get("canonical", [])
    # A function has no queries that are run.
    if not queries or (not said.get("function") and len(canonical) != len(queries)):
        raise _bad("canonical", canonical)
    return Derivation(
        queries,
        event.inputs,
        tuple(said.get("key", ())),
        KeyKind(said.get("identity", "bag")),
        str(said.get("written", "")),
        str(said.get("strategy", "recompute")),
        str(said.get("reason", "")),
        event_time,
        columns=said.get("columns", {}),
        canonical=tuple(canonical),
        nondet=said.get("nondet", {}),
        checks=_checks(said.get("checks", [])),
        function=FunctionOf(str(said["function"]), source) if said.get("function") else None,
        replaces=said.get("replaces"),
        from_here=said.get("from_here") is True,
        file=said.get("file"),
        version=str(event.transform.version),
        folder=said.get("folder"),
        steps=tuple((name, text) for name, text in said.get("steps", ())),
    )


def _is_shaped(name: str, value: object) -> bool:
    """Say whether what an attachment says under a name has the type that it has in ours."""
    if name == "identity":
        return value in list(KeyKind)
    if name in _TEXTS:
        return isinstance(value, str)
    if name in _TEXTS_OR_NONE:
        return value is None or isinstance(value, str)
    if name in _LISTS:
        return isinstance(value, list) and all(isinstance(each, str) for each in value)
    if name == "steps":
        return isinstance(value, list) and all(_is_step(each) for each in value)
    if name in _MAPPINGS:
        return isinstance(value, dict) and all(isinstance(each, str) for each in value.values())
    return name != "checks" or isinstance(value, list)


def _is_step(value: object) -> bool:
    return isinstance(value, list) and len(value) == 2 and all(isinstance(each, str) for each in value)


def _bad(name: str, value: object) -> InputError:
    return InputError(
        f"the attachment {PATH} says {name} is {value!r:.80}", remedy=_COPY_OF_IT, code="BadDerivation"
    )


def _is_known(version: str | None) -> bool:
    """Say whether canonical queries are of this version or an earlier one: those can be read and replayed."""
    return version is not None and version in map(str, range(1, int(CANONICAL) + 1))


def checks_at(tail: Tail) -> tuple[DatasetCheck, ...]:
    """Return the checks in force at a tail."""
    if tail.dataset_kind is DatasetKind.Root:
        return addendum_at(tail).checks if tail.attachments is not None else ()
    derivation = derivation_at(tail)
    return derivation.checks if derivation is not None else ()
