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


@pytest.fixture
def soak_minutes(request, soak_minutes):
    """The minutes of a part of a soak, shared by those of its tests that go on until their time is over."""
    sharing = [item for item in request.session.items if "soak_minutes" in item.fixturenames]
    return soak_minutes / len(sharing)
