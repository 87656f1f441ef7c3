"""Random chains of operators: the same bytes, ids and order in this process and on Spark (exchange:E1)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.spark.lowering.chains import SOURCES, VERBS, Choice, made, opened
from tests.spark.lowering.counting import check
from tests.spark.lowering.nasty import everything, in_process
from trueline.dataset.read import events
from trueline.spark.lowering import partial_groups
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.ordered_join import join_in_order
from trueline.spark.lowering.partial_groups import GroupsOfParts

# Spark takes seconds for a chain: `make test` looks at a few, always the same; `make soak` at many new ones.
FEW, MANY = 3, 150
LINKS = st.lists(st.tuples(st.sampled_from(sorted(VERBS)), st.integers(0, 99)), min_size=1, max_size=6)
CHAINS = st.tuples(st.sampled_from(sorted(SOURCES)), LINKS)
# Together they meet every verb and every source, and what is read, grouped and joined where slices are.
JOINED_IN_ORDER = ("slices", [("join_itself", 18)])
GROUPED_BY_TASKS = ("slices", [("group_by", 14)])
MET = [
    JOINED_IN_ORDER,
    GROUPED_BY_TASKS,
    ("slices", [("filter", 17), ("sort", 72), ("join", 97), ("skip", 8), ("group_by", 32)]),
    ("keyed", [("drop_nulls", 15), ("concat", 63), ("cache", 97), ("window", 57), ("sample", 60)]),
    ("nasty", [("fill_null", 83), ("as_of", 48), ("explode", 26), ("draw", 12), ("limit", 62)]),
    ("mixed", [("shuffle", 92), ("tail", 29), ("zip", 75), ("with_row_id", 13), ("rename", 40)]),
    ("numbers", [("with_columns", 3), ("cross", 2), ("distinct", 3), ("select", 83), ("split", 69)]),
    ("nothing", [("concat", 1), ("sort", 48), ("join", 87), ("limit", 27)]),
]


@pytest.fixture(scope="module")
def sources(tmp_path_factory):
    with opened(tmp_path_factory.mktemp("chains") / "ws") as found:
        yield found


@pytest.fixture(scope="module")
def session(spark):
    """Several partitions, batches that are not aligned with anything; parts of groups of however few rows."""
    found = spark.newSession()
    found.conf.set("spark.sql.shuffle.partitions", "3")
    found.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "17")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(events, "_ROWS_OF_A_PIECE", 30)
        patch.setattr(partial_groups, "_ROWS_OF_A_PART", 0)
        yield found


def view_of(chain, sources):
    source, links = chain
    return made(sources[source], links)


@pytest.mark.contract("exchange:E1", "exchange:E2")
@pytest.mark.parametrize("chain", MET, ids=str)
def test_a_chain_that_was_chosen_is_equal_to_the_bit(chain, session, sources):
    check(view_of(chain, sources), session)


@pytest.mark.contract("exchange:E1", "exchange:E2")
@given(chain=CHAINS)
@settings(max_examples=FEW)
def test_a_chain_of_operators_is_equal_to_the_bit(session, sources, chain):
    check(view_of(chain, sources), session)


@pytest.mark.soak
@pytest.mark.timeout(0)
@given(chain=CHAINS)
@settings(max_examples=MANY)
def test_many_chains_of_operators_are_equal_to_the_bit(session, sources, chain):
    check(view_of(chain, sources), session)


def test_the_chains_that_were_chosen_meet_every_source_and_every_verb(sources):
    verbs = {verb for _, links in MET for verb, _ in links}
    assert verbs == {*VERBS}
    assert {source for source, _ in MET} == {*SOURCES}
    for source, links in MET:
        view = sources[source]
        for place, (verb, number) in enumerate(links):
            before, view = view, VERBS[verb](Choice(view, number, place))
            assert view.node is not before.node, f"{verb} finds nothing to do"


def test_chains_are_joined_in_order_and_grouped_by_tasks(session, sources):
    joined, grouped = (view_of(each, sources) for each in (JOINED_IN_ORDER, GROUPED_BY_TASKS))
    assert join_in_order(joined.node, everything(joined), LoweringTarget(session)) is not None
    found = LoweringTarget(session).lower(grouped.node, everything(grouped))
    assert any(getattr(step, "func", None) is GroupsOfParts for step in found.steps)


@pytest.mark.parametrize("verb", sorted(VERBS))
def test_every_verb_of_the_chains_can_follow_every_source(verb, sources):
    """What the chains are made of is valid, here without Spark: a chain never fails for want of a column."""
    for source in sources.values():
        for number in range(4):
            in_process(made(source, [("sort", number), (verb, number), (verb, number)]))
