"""Few rows are put in order by as many tasks as there are partitions, so that ranges are tried."""

from __future__ import annotations

import pytest

from trueline.spark.lowering import exchange

BYTES_OF_A_RANGE = exchange._BYTES_OF_A_RANGE


@pytest.fixture(autouse=True)
def many_ranges(monkeypatch):
    """Let a range have few rows."""
    monkeypatch.setattr(exchange, "_BYTES_OF_A_RANGE", 1)
