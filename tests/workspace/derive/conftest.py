from __future__ import annotations

import pytest

import trueline as tl


@pytest.fixture
def spark_workspace(tmp_path, spark):
    """A workspace whose queries run in the one Spark of the suite."""
    with tl.open(tmp_path / "ws", create=True, spark=spark) as workspace:
        yield workspace
