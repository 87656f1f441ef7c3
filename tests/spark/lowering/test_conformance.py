"""The conformance kit over every operator, computed on Spark: cursors, sets and seeds as in this process."""

from __future__ import annotations

import pytest

from tests.testing.registry import OPERATORS
from trueline.testing import check, checks
from trueline.testing.generate import mixed

# What depends on how rows come: sets that share them, and a row under its id, shuffled too.
ONLY = ["K10.merged", "K12.same_row"]
# One of each way in which rows come; `test_equal` has every node, and the others run under `make soak`.
LOWERED = [
    "explode outer",
    "sort",
    "concat",
    "zip",
    "tail",
    "group_by",
    "window by",
    "join full",
    "join as of",
]


def holds(*names):
    found = [each for each in checks("view").values() if {each.name, each.number} & set(names)]
    return pytest.mark.contract(*sorted({name for each in found for name in each.contracts}))


@pytest.fixture(scope="module")
def session(spark):
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "2")
    return found


@holds(*ONLY)
@pytest.mark.parametrize("name", LOWERED)
def test_an_operator_on_spark(name, session):
    report = check(OPERATORS[name].make(mixed()).on_spark(session), only=ONLY)
    assert set(report.held) == set(ONLY)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", list(OPERATORS))
def test_all_that_is_checked_of_an_operator(name, session):
    assert check(OPERATORS[name].make(mixed()).on_spark(session)).held
