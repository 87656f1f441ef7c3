"""What every test has: profiles for hypothesis and the contract mark."""

from __future__ import annotations

import os

import pytest
from hypothesis import HealthCheck, settings

pytest_plugins = ["tests.marks", "pytester"]

# The same examples in every run of `make test`; `make soak` looks at new ones, its seed printed.
settings.register_profile("test", derandomize=True, deadline=None, print_blob=True)
settings.register_profile(
    "soak",
    max_examples=1000,
    deadline=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.load_profile("test")


@pytest.fixture(scope="session")
def soak_minutes() -> float:
    """How long a test marked `soak` may explore."""
    return float(os.environ.get("TRUELINE_SOAK_MINUTES", "0.2"))
