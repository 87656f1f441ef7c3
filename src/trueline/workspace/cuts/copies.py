"""Copies of derived datasets as roots: where a cut takes those that are read together.

A clone counts as a root, also one of a dataset that was computed elsewhere. Two of them may have been made
from different states of what they were computed from. What is computed here from both must not mix these, so
that a cut takes the newest positions at which they agree, as far as can be known.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from functools import cache
from typing import Any, cast

from trueline.chain.head_state import Position
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts.roots import RootHead, positions_of
from trueline.workspace.snapshot.histories import AbsentHistory, ChainHistory
from trueline.workspace.snapshot.made_from import ChainOf, held_to, unlike
from trueline.workspace.snapshot.search import NOTHING, History, Search

# The roots that one dataset rests on, for each of some datasets.
Groups = Collection[frozenset[DatasetId]]


def agreeing_positions(
    heads: Mapping[DatasetId, RootHead], groups: Groups, chain_of: ChainOf
) -> dict[DatasetId, Position | None]:
    """Return where a cut takes each root: copies that are read together where they agree, others at heads.

    None where they agree nowhere, or where they say of something that is not here that they do not.
    """
    found = positions_of(heads)
    copies = {name for name, head in heads.items() if head.is_copy}
    if not any(len(group) > 1 and group & copies for group in groups):
        return found
    known = cache(chain_of)
    here = {name: ChainHistory(cast("Any", None), head.branch, (), known) for name, head in heads.items()}
    rests_on = {name: here[name].rests_on() for name in copies}
    histories = _held_together(here, rests_on, groups)
    held = {name for name in copies if histories[name].inputs}
    # What a copy was made from is held where it is read with that copy, and looked at otherwise.
    held |= {each for group in groups for name in group & copies for each in rests_on[name] if each in group}
    numbers = Search(histories).run(dict.fromkeys(held & set(heads)))
    for group in groups:
        together = [name for name in sorted(group & copies & held) if numbers[name] >= 0]
        if (
            unlike({name: here[name].made_from(numbers[name]).without(heads) for name in together})
            is not None
        ):
            numbers.update(dict.fromkeys(group & held, NOTHING))
    for name, number in numbers.items():
        if name in held:
            entry = heads[name].branch.at(number) if number >= 0 else None
            found[name] = None if entry is None else Position(entry.hash, entry.last_offset)
    return found


def _held_together(
    here: Mapping[DatasetId, ChainHistory],
    rests_on: Mapping[DatasetId, tuple[DatasetId, ...]],
    groups: Groups,
) -> dict[DatasetId, History[DatasetId]]:
    """Hold copies to what they were made from, where that is read with them, or another copy made from it."""
    joined: dict[DatasetId, set[DatasetId]] = {name: set() for name in rests_on}
    for group in groups:
        for name, sources in held_to(
            {name: rests_on[name] for name in group & rests_on.keys()}, group
        ).items():
            joined[name].update(sources)
    found: dict[DatasetId, History[DatasetId]] = dict(here)
    for name, sources in rests_on.items():
        held = tuple(source for source in sources if source in joined[name])
        found[name] = here[name].held_to(held)
        for source in held:
            found.setdefault(source, AbsentHistory())
    return found
