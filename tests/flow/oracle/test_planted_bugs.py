"""The random programs find every mistake that was planted in the compiler."""

from __future__ import annotations

import logging

import pytest

from tests.flow.oracle.bugs import BUGS, planted
from tests.flow.oracle.test_random_programs import SEEDS, check


@pytest.fixture(autouse=True)
def _quiet():
    logging.disable(logging.WARNING)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug):
    with planted(bug):
        for seed in SEEDS:
            try:
                check(seed)
            except Exception:  # noqa: BLE001 (a crash shows it too)
                return
    pytest.fail(f"no program of {len(SEEDS)} shows that {bug}")


def test_without_a_bug_the_same_programs_find_nothing():
    for seed in SEEDS[:100]:
        check(seed)
