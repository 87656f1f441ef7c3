"""A server of Spark Connect that sees no folder of its client: what cannot work is refused by name."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

from tests.examples import is_soak
from tests.spark import connect_elsewhere
from tests.spark.cluster import PATHS

pytestmark = [pytest.mark.jvm, pytest.mark.sampled, pytest.mark.timeout(600)]
CHECKS = [name for name in vars(connect_elsewhere) if name.startswith("check_")]


@pytest.fixture(scope="module")
def said(connect_server):
    """What each check said."""
    if connect_server.hidden is None:
        pytest.skip("hiding a folder from a process needs mount namespaces")
    names = [] if is_soak() else connect_elsewhere.VIEWS
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.connect_elsewhere", connect_server.address, *names],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": PATHS, "TMPDIR": str(connect_server.hidden)},
        timeout=500,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout)


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("check", CHECKS)
def test_it_holds_where_no_folder_is_shared(check, said):
    assert list(said) == CHECKS
    assert said[check] == "ok", said[check]
