"""Small slices, so that little data goes the way of much."""

from __future__ import annotations

import pytest

from trueline.dataset.append import append as committing
from trueline.dataset.append import merge as merging
from trueline.dataset.append import pieces
from trueline.dataset.append.pieces import cut


@pytest.fixture
def small(monkeypatch):
    """Slices of ten rows, sorted runs of sixteen."""
    monkeypatch.setattr(pieces, "ROWS_OF_A_SLICE", 10)
    monkeypatch.setattr(committing, "ROWS_OF_A_SLICE", 10)
    monkeypatch.setattr(cut, "__defaults__", (10,))
    monkeypatch.setattr(merging, "ROWS_AT_ONCE", 16)
