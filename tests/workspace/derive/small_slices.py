"""Slices of few rows, so that little data is commits of several blocks."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

# It takes the size of its files from there when it is loaded.
import trueline.dataset.compact  # noqa: F401
from trueline.dataset.append import append as committing
from trueline.dataset.append import pieces


@contextmanager
def slices_of(rows: int) -> Iterator[None]:
    """Cut into slices of so many rows: where is decided in this process, whoever writes them."""
    with pytest.MonkeyPatch.context() as patch:
        for room in (pieces, committing):
            patch.setattr(room, "ROWS_OF_A_SLICE", rows)
        patch.setattr(pieces.cut, "__defaults__", (rows,))
        yield


def parts_of(dataset):
    """Return the blocks of a derived dataset that are a part of a commit and not its end, oldest first."""
    return [name for name, block in dataset.blocks() if getattr(block.event, "is_part", False)][::-1]


def slices_by_commit(dataset):
    """Return how many slices each commit has, oldest first."""
    return [len(commit.blocks) for commit in dataset.log() if commit.inputs][::-1]
