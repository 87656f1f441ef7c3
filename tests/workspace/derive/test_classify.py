"""Which queries follow by the increment, and the stable code of those that do not."""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow as pa
import pytest

from tests.workspace.derive.classified import INPUTS, QUERIES
from tests.workspace.derive.queries import QUERIES as LIBRARY
from tools import incremental
from trueline.errors import InputError
from trueline.kernel.power_sums import ESCAPED
from trueline.workspace.derive import strategies
from trueline.workspace.derive.strategies.accumulators import accumulation, parsed
from trueline.workspace.derive.strategies.classify import REASONS, WHOLE_REASONS, classify
from trueline.workspace.derive.strategies.increment import Impossible
from trueline.workspace.derive.strategies.keyed import check_accumulators


@pytest.mark.contract("derive:V19")
@pytest.mark.parametrize(("text", "strategy", "reason"), QUERIES)
def test_a_query_has_a_strategy_or_a_reason(text, strategy, reason):
    verdict = classify(text, INPUTS)
    assert (verdict.strategy, verdict.reason) == (strategy, reason)
    assert verdict.is_incremental == (strategy != "recompute")
    assert bool(verdict.explained) == bool(reason)


def test_every_reason_is_explained_and_shown_by_a_query():
    asked_of_spark = {"steps", "inexact", "key_type", "round_trip", "function"}
    assert {reason for _, _, reason in QUERIES if reason} | asked_of_spark == set(REASONS)


def test_every_reason_is_in_the_documentation(monkeypatch):
    assert incremental.page() == incremental.PAGE.read_text(encoding="utf-8"), (
        "run `python -m tools.incremental`"
    )
    assert incremental.main(["--check"]) == 0
    assert [code for code, why in REASONS.items() if f"| `{code}` | {why} |" not in incremental.page()] == []
    assert {query.reason.partition(":")[0] for query in LIBRARY if query.reason} <= set(REASONS)
    for query in LIBRARY:
        assert not query.is_run or f"| `{query.sql}` | `{query.how}` |" in incremental.page() or query.reason
    monkeypatch.setattr(incremental, "QUERIES", LIBRARY[:3])
    assert incremental.main(["--check"]) == 1


def test_every_reason_to_compute_the_whole_is_one_that_is_given():
    folder = Path(strategies.__file__).parent
    text = "".join(path.read_text(encoding="utf-8") for path in sorted(folder.glob("*.py")))
    given = set(re.findall(r'Impossible\("(\w+)"\)', text)) - set(REASONS)
    given |= {strategies._remediable(InputError("", code="RowsDisagree"))}
    given |= {strategies._remediable(InputError(ESCAPED))}
    assert given == set(WHOLE_REASONS)


def test_a_function_that_is_not_known_may_be_an_aggregate_unless_spark_says_otherwise():
    text = "select some_function_of_tomorrow(t.a) as n from t"
    assert classify(text, INPUTS, operators={"Project", "SubqueryAlias", "View"}).strategy == "stateless"
    assert classify(text, INPUTS, operators={"Aggregate", "SubqueryAlias", "View"}).reason == "operator"
    assert classify("select t.a from t", INPUTS, operators={"Deduplicate", "View"}).reason == "operator"


@pytest.mark.contract("derive:V4")
def test_a_plain_sum_of_doubles_is_not_an_accumulator():
    made = accumulation(parsed("select sum(t.x) as s, max(t.x) as m from t"), append_only=True)
    exact = pa.schema({"a0": pa.int64(), "a1": pa.int64(), "a2": pa.float64()})
    assert list(made.sums.values()) == ["sum", "sum", "max"]
    check_accumulators(made, exact)
    with pytest.raises(Impossible, match="inexact"):
        check_accumulators(made, exact.set(0, pa.field("a0", pa.float64())))


def test_extremes_of_inputs_that_lose_rows_are_computed_from_values():
    query = parsed("select t.k, min(t.x) as lo, count(*) as n from t group by t.k")
    assert accumulation(query, append_only=True).values == ()
    kept = accumulation(query, append_only=False)
    assert kept.values == ("v0",)
    assert kept.kept == ("k0", "n", "a0", "m")
