"""Random chains of operators: the same bytes, ids and order in this process and on Spark (exchange:E1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.lowering.chains import SOURCES, VERBS, made
from tests.spark.lowering.nasty import difference, everything, in_process, rows_of
from trueline.spark.lowering.deliver import delivered

# Spark takes seconds for a chain: `make test` looks at a few, always the same; `make soak` at many new ones.
FEW, MANY = 6, 150
LINKS = st.lists(st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 99)), min_size=1, max_size=6)
CHAINS = st.tuples(st.sampled_from(sorted(SOURCES)), LINKS)


@pytest.fixture(scope="module")
def session(spark):
    """Several partitions, batches that are not aligned with anything."""
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "3")
    found.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "17")
    return found


def check(chain, session):
    view = made(*chain)
    found = rows_of(delivered(view.node, everything(view), session))
    assert difference(in_process(view), found, view) == "", view.explain()


@pytest.mark.contract("exchange:E1")
@given(CHAINS)
@settings(max_examples=FEW)
def test_a_chain_of_operators_is_equal_to_the_bit(session, chain):
    check(chain, session)


@pytest.mark.soak
@pytest.mark.timeout(0)
@given(CHAINS)
@settings(max_examples=MANY)
def test_many_chains_of_operators_are_equal_to_the_bit(session, chain):
    check(chain, session)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_of_the_chains_can_follow_every_source(verb):
    """What the chains are made of is valid, here without Spark: a chain never fails for want of a column."""
    for source in SOURCES:
        for number in range(6):
            view = made(source, [("sort", number), (verb, number), (verb, number)])
            assert difference(in_process(view), in_process(view), view) == ""
