from __future__ import annotations

import pytest

import trueline as tl
from tests.workspace.snapshot.bank import Bank


@pytest.fixture
def bank(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as workspace:
        # Syncing files proves nothing here, and takes most of the time.
        workspace.config.set("storage.durable", "false")
        yield Bank(workspace)
