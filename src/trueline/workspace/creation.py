"""Making a dataset in one commit; the same definition again finds it, another may change what can change."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING

from trueline.chain.block import Block
from trueline.chain.chain import Chain
from trueline.chain.events import Event
from trueline.chain.head_state import linked
from trueline.chain.instant import Instant
from trueline.dataset.declared_source import check_no_secrets
from trueline.dataset.definition import Definition, exists_otherwise
from trueline.dataset.lost_head import head_missing
from trueline.dataset.redefinition import is_fixed, redefined
from trueline.errors import ChainError, InputError, RefCASFailed, RetryError
from trueline.identity.dataset_id import DatasetId, DatasetKey
from trueline.workspace.locations import keep_key

if TYPE_CHECKING:
    from trueline.chain.manifest import DatasetSnapshot
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


@dataclass(frozen=True, slots=True)
class CreationPlan:
    """How to make a dataset, and how to tell whether an existing one is the same.

    `changes` are the events that bring an existing one to the definition, where that was asked for.
    """

    blocks: Callable[[DatasetId, Instant], list[Block]]
    differences: Callable[[Chain], list[str]]
    changes: Callable[[Chain], list[Event]] | None = None

    @classmethod
    def of(cls, definition: Definition, on_change: str) -> CreationPlan:
        """CreationPlan for a definition; only with `on_change="from_here"` an existing dataset is changed."""
        changes = (lambda chain: redefined(definition, chain)) if on_change == "from_here" else None
        return cls(definition.blocks, definition.differences, changes)

    @classmethod
    def of_manifest(cls, workspace: Workspace, snapshot: DatasetSnapshot) -> CreationPlan:
        """CreationPlan for a manifest; inputs that are named are those of the workspace."""

        def resolve(other: str) -> DatasetId | None:
            return workspace[other].id if other in workspace else None

        def differences(chain: Chain) -> list[str]:
            tail = chain.tail()
            assert tail is not None
            asked = [block.event for block in snapshot.blocks(tail.dataset_id, resolve)]
            there = [chain.entry_number(number) for number in range(len(asked))]
            events = [chain.block(entry.hash).event if entry else None for entry in there]
            return [
                f"event {number}: it is {now.KIND if now else 'absent'}, asked for is {event.KIND}"
                + (" with other values" if now and now.KIND == event.KIND else "")
                for number, (now, event) in enumerate(zip(events, asked, strict=True))
                if now != event
            ]

        return cls(lambda dataset_id, now: snapshot.blocks(dataset_id, resolve, now), differences)


def make(workspace: Workspace, name: str, plan: CreationPlan) -> Dataset:
    """Make a dataset, or return the one there is."""
    there = workspace._catalogue.find(name)
    if there is not None:
        return _same(workspace, workspace._dataset(there), plan)
    key = DatasetKey.generate()
    blocks = plan.blocks(key.id, _now(workspace))
    check_no_secrets(block.event for block in blocks)
    dataset = workspace._unborn(name)
    path = keep_key(workspace._location, key)
    try:
        dataset.chain.append(*blocks)
    except (InputError, RetryError) as error:
        with suppress(OSError):
            path.unlink(missing_ok=True)
        if not isinstance(error, RefCASFailed | ChainError) or dataset.chain.head is None:
            workspace._catalogue.release(dataset._folder)
            raise
        # Another process made it first.
        return _same(workspace, dataset, plan)
    # What an index has seen of an earlier creation that a power cut took back is of no account.
    dataset.chain.forget_heads()
    workspace._catalogue.confirm(dataset._folder, str(key.id))
    return dataset


def _now(workspace: Workspace) -> Instant:
    return (workspace.clock or Instant.now)()


def _same(workspace: Workspace, dataset: Dataset, plan: CreationPlan) -> Dataset:
    if dataset.chain.tail() is None:
        raise head_missing(dataset.chain.store)
    found = plan.differences(dataset.chain)
    if not found:
        return dataset
    if plan.changes is None or any(map(is_fixed, found)):
        raise exists_otherwise(dataset.name, found, changeable=not any(map(is_fixed, found)))
    chain = dataset.chain
    with dataset._writing, chain.store.turn():
        tail = chain.tail()
        assert tail is not None
        events = plan.changes(chain)
        check_no_secrets(events)
        # A time of its own: neighbours with equal times are one commit.
        chain.append(*linked(tail, events, Instant(max(_now(workspace), tail.system_time + 1))))
    return dataset
