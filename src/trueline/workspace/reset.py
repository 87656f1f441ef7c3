"""Going back: the head moves to an earlier commit; what rests on later ones is named or rebuilt."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING

from trueline.chain.branch import Branch
from trueline.chain.checkpoint import is_at_rest
from trueline.chain.events import ExecuteTransform
from trueline.dataset.at import At, resolve
from trueline.dataset.derivation import derivation_at
from trueline.errors import DataWarning, InputError, visible
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.derive.redefine import append_definition, replacements, resting_on

if TYPE_CHECKING:
    from trueline.identity.multihash import Multihash
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


def reset(dataset: Dataset, to: At = None, *, rebuild: bool = False) -> tuple[str, ...]:
    """Move the head of a dataset back; returns the names of what else was reset, or should be."""
    workspace = dataset.workspace
    derivation = derivation_at(dataset._tail)
    if to is None and (derivation is None or not rebuild):
        why = "is not derived here, so nothing can rebuild it" if rebuild else "can go back to any commit"
        raise InputError(
            f"dataset {dataset.name!r} {why}", remedy="say where to: reset(to=…)", code="ResetWhere"
        )
    if derivation is not None and to is None:
        _rebuild(workspace, dataset)
    else:
        _move(workspace, dataset, resolve(dataset.chain, to).block)
    return _tell(workspace, dataset, rebuild)


def _move(workspace: Workspace, dataset: Dataset, block: Multihash) -> None:
    chain, head = dataset.chain, dataset.head
    if block == head:
        return
    target = chain.entry(block)
    assert target is not None
    later = []
    for name, tagged in workspace._tags.of(str(dataset.id)).items():
        entry = chain.entry(tagged)
        if entry is not None and entry.sequence_number > target.sequence_number:
            later.append(name)
    if later:
        again = ", ".join(f"ws.untag({name!r})" for name in sorted(later))
        raise InputError(
            f"dataset {dataset.name!r} has tags on later commits: {', '.join(sorted(later))}",
            remedy=f"first remove them: {again}",
            code="DatasetInUse",
            name=dataset.name,
            tags=tuple(sorted(later)),
        )
    with dataset._writing, chain.store.turn():
        chain.reset(block, expected=head)


def _rebuild(workspace: Workspace, dataset: Dataset) -> None:
    """Go back to the newest commit whose inputs are all still there; the next pull goes on from it."""
    before = derivation_at(dataset._tail)
    assert before is not None
    replaced = replacements(workspace)
    if any(each.dataset_ref in replaced for each in before.inputs):
        from trueline.workspace.derive.define import derived_again

        derived_again(workspace, dataset)
        return
    schema = dataset._tail.schema
    block = _sound(workspace, dataset)
    if block is None or block == dataset.head:
        return
    _move(workspace, dataset, block)
    # The definition in force stays, though it is younger than what is left of the rows.
    append_definition(workspace, dataset, before, schema)


def _sound(workspace: Workspace, dataset: Dataset) -> Multihash | None:
    """Return the newest commit at rest whose inputs are on their chains, or what is before all rows."""
    names = workspace._names_by_id()
    chain = dataset.chain
    newest: Multihash | None = None
    for end in Branch.of(chain).data_ends():
        event = chain.block(end.hash).event
        newest = newest or end.hash
        if not isinstance(event, ExecuteTransform) or not is_at_rest(chain.store, event):
            continue
        if _on_branch(workspace, event, names):
            # Definitions after the newest rows stay where they are.
            return None if end.hash == newest else end.hash
    first: Multihash | None = None
    for _, block in chain.walk(dataset.head):
        if isinstance(block.event, ExecuteTransform):
            first = block.prev_block_hash
    return first


def _on_branch(workspace: Workspace, event: ExecuteTransform, names: dict[str, str]) -> bool:
    for taken in event.query_inputs:
        name, block = names.get(str(taken.dataset_id)), taken.last_block
        if name is None or (block is not None and workspace[name].chain.entry(block) is None):
            return False
    return True


def _tell(workspace: Workspace, dataset: Dataset, rebuild: bool) -> tuple[str, ...]:
    """Rebuild what has taken commits that are gone, or say who has."""
    torn = [each for each in resting_on(workspace, str(dataset.id)) if _took_what_is_gone(each, dataset)]
    if rebuild:
        return tuple(name for each in torn for name in (each.name, *reset(each, rebuild=True)))
    if torn:
        shown = ", ".join(repr(each.name) for each in torn)
        again = ", ".join(f"ws[{each.name!r}].reset(rebuild=True)" for each in torn)
        message = f"{shown} {'was' if len(torn) == 1 else 'were'} computed from commits that are gone now"
        warnings.warn(visible(f"{dataset.name}: {message}\n  → {again}"), DataWarning, stacklevel=4)
    return tuple(each.name for each in torn)


def _took_what_is_gone(upper: Dataset, lower: Dataset) -> bool:
    taken = upper._tail.taken.get(DatasetId.parse(str(lower.id)))
    block = None if taken is None else taken.last_block
    return block is not None and lower.chain.entry(block) is None
