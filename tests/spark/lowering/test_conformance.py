"""The conformance kit over what makes views, computed on Spark: cursors, sets, seeds as in this process."""

from __future__ import annotations

import pytest

from tests.spark.lowering.counting import counted
from tests.testing.registry import OPERATORS, SOURCES, SPLITS
from trueline.testing import Split, check, checks
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
# Rows that tasks read, of files and of slices.
READ = ["read_parquet", "a dataset"]
DIVIDED = ["split by key"]
PARTED = ["K12.disjoint", "K12.complete"]


def holds(*names, of="view"):
    found = [each for each in checks(of).values() if {each.name, each.number} & set(names)]
    return pytest.mark.contract(*sorted({name for each in found for name in each.contracts}))


@pytest.fixture(scope="module")
def session(spark):
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "2")
    return found


@holds(*ONLY)
@pytest.mark.parametrize("name", LOWERED)
def test_an_operator_on_spark(name, session):
    with counted(session) as passed:
        report = check(OPERATORS[name].make(mixed()).on_spark(session), only=ONLY)
    assert set(report.held) == set(ONLY)
    passed.check_answers(session)


@holds(*ONLY)
@pytest.mark.parametrize("name", READ)
def test_a_source_on_spark(name, session, tmp_path):
    report = check(SOURCES[name](tmp_path).on_spark(session), only=ONLY)
    assert set(report.held) == set(ONLY)


def parted(name, session):
    """Return a split whose parts are computed on Spark."""

    def make(view):
        found = SPLITS[name].make(view)
        parts = found.items() if isinstance(found, dict) else enumerate(found)
        return {str(key): part.on_spark(session) for key, part in parts}

    return Split(make)


@holds(*PARTED, of="split")
@pytest.mark.parametrize("name", DIVIDED)
def test_a_split_on_spark(name, session):
    report = check(parted(name, session), mixed(), only=PARTED)
    assert set(report.held) == set(PARTED)


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", list(SOURCES))
def test_all_that_is_checked_of_a_source(name, session, tmp_path):
    assert check(SOURCES[name](tmp_path).on_spark(session)).held


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", list(SPLITS))
def test_all_that_is_checked_of_a_split(name, session):
    assert check(parted(name, session), mixed()).held


@pytest.mark.soak
@pytest.mark.timeout(0)
@pytest.mark.parametrize("name", list(OPERATORS))
def test_all_that_is_checked_of_an_operator(name, session):
    assert check(OPERATORS[name].make(mixed()).on_spark(session)).held
