"""Where an appended view came from is part of the commit."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from trueline.chain.block import CommitRecord
from trueline.chain.head_state import next_add_data, next_block
from trueline.chain.instant import Instant


@pytest.fixture
def ws(tmp_path):
    with tl.open(tmp_path / "shop", create=True) as ws:
        ws.create("sales").append(pa.table({"city": ["Bern", "Zug"], "price": [1.5, 2.0]}))
        ws.create("towns").append(pa.table({"city": ["Bern"], "people": [130_000]}))
        yield ws


def test_a_commit_says_which_commits_its_view_was_made_from(ws):
    old = ws["sales"].view()
    ws["sales"].append(pa.table({"city": ["Chur"], "price": [3.0]}))
    view = old.join(ws["towns"].view(), on="city")
    commit = ws.create("rich").append(view)
    assert {origin.dataset: origin for origin in commit.origins} == dict(view.origins)
    assert {origin.dataset for origin in commit.origins} == {"sales", "towns"}
    assert ws["rich"].commit().origins == commit.origins
    assert next(ws["rich"].log()).origins == commit.origins
    (found,) = [origin for origin in commit.origins if origin.dataset == "sales"]
    assert ws["sales"].view(at=found.block).count() == 2


def test_the_changes_between_two_commits_are_an_origin_with_a_beginning(ws):
    first = ws["sales"].commit()
    ws["sales"].append(pa.table({"city": ["Chur"], "price": [3.0]}))
    commit = ws.create("new").append(ws["sales"].changes(after=first).select("city"))
    assert [origin.after for origin in commit.origins] == [str(first.block)]
    assert ws["new"].commit().origins == commit.origins


def test_rows_that_come_from_no_dataset_have_no_origins(ws):
    table = pa.table({"x": [1]})
    assert ws.create("x").append(table).origins == ()
    assert ws["x"].append(tl.View.from_arrow(table)).origins == ()


def test_a_record_of_another_writer_that_is_not_ours_is_passed_over(ws):
    chain = ws["sales"].chain
    tail = chain.tail()
    notes = {"origins": [1, {"dataset": "a"}, {"dataset": "a", "id": "b", "block": "c", "offset": "d"}]}
    event = next_add_data(tail, new_watermark=Instant.parse("2026-01-01T00:00:00Z"))
    event = type(event)(
        **{**{n: getattr(event, n) for n in event.__slots__}, "extra": CommitRecord(notes=notes).to_extra()}
    )
    chain.append(next_block(tail, event, Instant(tail.system_time + 1)))
    assert ws["sales"].commit().origins == ()


def test_the_answer_of_a_query_is_kept_with_what_it_was_computed_from(tmp_path, spark):
    with tl.open(tmp_path / "shop", create=True, spark=spark) as ws:
        sales = ws.create("sales")
        sold = sales.append(pa.table({"price": [1.5, 2.0]}))
        commit = ws.create("sums").append(ws.sql("select sum(price) as total from sales"))
        assert [(origin.dataset, origin.block) for origin in commit.origins] == [("sales", str(sold.block))]
