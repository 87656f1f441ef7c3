"""Workspaces to test with."""

from __future__ import annotations

import pytest

import trueline as tl


@pytest.fixture
def ws(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as workspace:
        yield workspace


@pytest.fixture
def ds(ws):
    return ws.create("trades")
