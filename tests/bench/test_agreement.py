"""The bank of the bench: what goes wrong with its readings is raised to those who wait for them."""

from __future__ import annotations

import pytest

from bench.agreement import Dashboard
from trueline.errors import InputError


def test_readings_that_failed_end_the_bank(tmp_path):
    dashboard = Dashboard(tmp_path / "nowhere")
    with pytest.raises(InputError), dashboard.reading():
        while dashboard.lacks(4):
            dashboard.is_over.wait(0.001)
    assert dashboard.is_over.is_set()
    with pytest.raises(InputError), dashboard.reading():
        pass  # nobody waited
