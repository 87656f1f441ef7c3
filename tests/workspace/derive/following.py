"""Bring derived datasets to a new cut and nothing else: a pull without sources."""

from __future__ import annotations

from trueline.workspace.dependencies import Dependencies
from trueline.workspace.pull.derived import pull_derived


def follow_all(workspace, names):
    """Record a cut and bring datasets, with what they rest on, there; the newest commit of each, by name."""
    known = Dependencies.of(workspace)
    wanted = {each for name in names for each in (name, *known.upstream(name))}
    done = pull_derived(workspace, known, sorted(wanted), clock=workspace.clock)
    for each in done:
        if each.error is not None:
            raise each.error
    return {each.dataset: each.commit for each in done}
