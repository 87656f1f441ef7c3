"""A desk in a folder of its own."""

from __future__ import annotations

import pytest

from tests.journeys.transcript import Desk


@pytest.fixture
def desk(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return Desk(tmp_path)
