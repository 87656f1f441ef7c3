"""Derived datasets follow their inputs: one transaction takes all of them at one cut."""

from __future__ import annotations

from graphlib import TopologicalSorter
from typing import TYPE_CHECKING

from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin, derived_checkpoint
from trueline.chain.events import ExecuteTransform, SetTransform
from trueline.chain.head_state import Position, Tail
from trueline.chain.instant import Instant
from trueline.chain.sources import ENGINE
from trueline.dataset.advance import Advance
from trueline.dataset.commit import Commit
from trueline.dataset.derivation import CANONICAL, Derivation, derivation_at
from trueline.errors import InputError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import Roots
from trueline.workspace.derive.strategies import advance_by
from trueline.workspace.derive.strategies.increment import DerivedTransaction

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace


def inputs_by_alias(workspace: Workspace, derivation: Derivation) -> dict[str, Dataset]:
    """Return the inputs of a definition as they are in the workspace now."""
    names = workspace._names_by_id()
    found = {}
    for each in derivation.inputs:
        name = names.get(each.dataset_ref)
        if name is None:
            raise InputError(
                f"the input {each.alias} ({each.dataset_ref}) is not in the workspace",
                remedy="clone it here",
                code="InputMissing",
            )
        found[each.alias or name] = workspace[name]
    return found


def in_order(workspace: Workspace, names: list[str]) -> list[Dataset]:
    """Return the derived datasets among some and all they rest on, inputs before those that read them."""
    graph: TopologicalSorter[str] = TopologicalSorter()
    waiting, seen = list(names), set()
    while waiting:
        name = waiting.pop()
        if name in seen:
            continue
        seen.add(name)
        tail = workspace[name].chain.tail()
        derivation = derivation_at(tail) if tail is not None else None
        upstream = (
            [] if derivation is None else [ds.name for ds in inputs_by_alias(workspace, derivation).values()]
        )
        graph.add(name, *upstream)
        waiting += upstream
    ordered = (workspace[name] for name in graph.static_order())
    return [dataset for dataset in ordered if is_derived(dataset)]


def is_derived(dataset: Dataset) -> bool:
    """Say whether a dataset is computed here from others."""
    tail = dataset.chain.tail()
    return tail is not None and derivation_at(tail) is not None


def follow_all(workspace: Workspace, names: list[str]) -> dict[str, Commit | None]:
    """Record a cut of the roots that datasets rest on, and bring each derived one exactly there."""
    datasets = in_order(workspace, names)
    if not datasets:
        return {}
    roots = Roots(workspace).under(*(dataset.name for dataset in datasets))
    log = CutLog.of(workspace)
    cut = log.record(roots)
    done = {}
    for dataset in datasets:
        done[dataset.name] = follow_to(workspace, dataset, cut)
        log.put_reached(cut.number, dataset.id)
    return done


def follow_to(workspace: Workspace, dataset: Dataset, cut: Cut) -> Commit | None:
    """Bring one dataset to a cut at which its inputs are; None if it is there already."""
    tail = dataset.chain.tail()
    assert tail is not None
    derivation = derivation_at(tail)
    assert derivation is not None
    inputs = inputs_by_alias(workspace, derivation)
    origin = _origin(dataset, inputs, cut)
    if isinstance(tail.data, ExecuteTransform):
        left = derived_checkpoint(dataset.chain.store, tail.data)
        if left is not None and left.at_rest and left.origin == origin:
            return None
    positions = {each.id: _position(each, cut) for each in inputs.values()}
    taken = {name: at for name, at in positions.items() if at is not None}
    left = DerivedCheckpoint(origin, True, origin.definitions[dataset.id], ENGINE, {"canonical": CANONICAL})
    advance = Advance(taken, left, _watermark(tail, inputs, taken), workspace.clock)
    transaction = DerivedTransaction(workspace, dataset, derivation, inputs, tail, advance)
    return advance_by(transaction).commit


def _position(dataset: Dataset, cut: Cut) -> Position | None:
    """Return where an input is read: a root where the cut has it, a derived one where it was brought."""
    if dataset.id in cut:
        return cut[dataset.id]
    tail = dataset.chain.tail()
    return None if tail is None or tail.data is None else tail.position


def _origin(dataset: Dataset, inputs: dict[str, Dataset], cut: Cut) -> DerivedOrigin:
    """Return the roots and definitions a dataset rests on: those of its inputs, and its own definition."""
    roots: dict[DatasetId, Position] = {}
    definitions: dict[DatasetId, Multihash] = {dataset.id: _definition(dataset)}
    for each in inputs.values():
        if each.id in cut:
            roots[each.id] = cut[each.id]
            continue
        tail = each.chain.tail()
        if tail is not None and isinstance(tail.data, ExecuteTransform):
            left = derived_checkpoint(each.chain.store, tail.data)
            if left is not None:
                roots |= left.origin.roots
                definitions |= left.origin.definitions
    return DerivedOrigin(roots, definitions)


def _definition(dataset: Dataset) -> Multihash:
    found = dataset.chain.newest(SetTransform)
    assert found is not None
    return found.hash


def _watermark(tail: Tail, inputs: dict[str, Dataset], taken: dict[DatasetId, Position]) -> Instant | None:
    """Return max(before, min over the inputs of their watermark at the block taken) (derive:V12).

    An input without an event time does not hold it back; one that has none yet does.
    """
    marks = []
    for dataset in inputs.values():
        at = dataset.chain.tail_at(taken[dataset.id].block)
        if at.vocab.event_time_column is None and at.watermark is None:
            continue
        if at.watermark is None:
            return tail.watermark
        marks.append(at.watermark)
    found = min(marks) if marks else None
    before = tail.watermark
    return before if found is None or (before is not None and before > found) else found
