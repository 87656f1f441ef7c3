"""Copies of derived datasets as roots: where a cut takes those that are read together.

A clone counts as a root, also one of a dataset that was computed elsewhere. Two of them may have been made
from different states of what they were computed from. What is computed here from both must not mix these, so
that a cut takes the newest positions at which they agree, as far as can be known.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from typing import Any, cast

from trueline.chain.head_state import Position
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.cuts.roots import RootHead, positions_of
from trueline.workspace.snapshot.histories import AbsentHistory, ChainHistory, read_by
from trueline.workspace.snapshot.search import History, Search

# The roots that one dataset rests on, for each of some datasets.
Groups = Collection[frozenset[DatasetId]]


def agreeing_positions(
    heads: Mapping[DatasetId, RootHead], groups: Groups
) -> dict[DatasetId, Position | None]:
    """Return where a cut takes each root: copies that are read together where they agree, others at heads."""
    found = positions_of(heads)
    copies = {name for name, head in heads.items() if head.is_copy}
    if not any(len(group) > 1 and group & copies for group in groups):
        return found
    here = {name: ChainHistory(cast("Any", None), head.branch, ()) for name, head in heads.items()}
    made_from = {name: read_by(here[name]) for name in copies}
    histories = _held_together(here, made_from, groups)
    held = {name for name in copies if histories[name].inputs}
    # What a copy was made from is held where it is read with that copy, and looked at otherwise.
    held |= {each for group in groups for name in group & copies for each in made_from[name] if each in group}
    for name, number in Search(histories).run(dict.fromkeys(held & set(heads))).items():
        if name in held:
            entry = heads[name].branch.at(number) if number >= 0 else None
            found[name] = None if entry is None else Position(entry.hash, entry.last_offset)
    return found


def _held_together(
    here: Mapping[DatasetId, ChainHistory],
    made_from: Mapping[DatasetId, tuple[DatasetId, ...]],
    groups: Groups,
) -> dict[DatasetId, History[DatasetId]]:
    """Hold copies to what they were made from, where that is read with them, or another copy made from it."""
    joined: dict[DatasetId, set[DatasetId]] = {name: set() for name in made_from}
    for group in groups:
        together = [name for name in group if name in made_from]
        times = Counter(source for name in together for source in set(made_from[name]))
        for name in together:
            joined[name] |= {each for each in made_from[name] if times[each] > 1 or each in group}
    found: dict[DatasetId, History[DatasetId]] = dict(here)
    for name in made_from:
        held = tuple(source for source in made_from[name] if source in joined[name])
        found[name] = ChainHistory(here[name].dataset, here[name].branch, held)
        for source in held:
            found.setdefault(source, AbsentHistory())
    return found
