"""A view says which records it rests on, whatever is done with them."""

from __future__ import annotations

import pytest

import trueline as tl
from tests.testing.registry import OPERATORS, SPLITS
from trueline.testing.generate import mixed


@pytest.fixture(scope="module")
def ws(tmp_path_factory):
    with tl.open(tmp_path_factory.mktemp("origins"), create=True) as ws:
        ws.create("trades").append(mixed(40).to_arrow())
        ws["trades"].append(mixed(5).to_arrow())
        ws.create("prices").append([{"n": 3, "w": 1.5}])
        yield ws


@pytest.fixture(scope="module")
def trades(ws):
    return ws["trades"].view(at=39)


@pytest.mark.parametrize("name", list(OPERATORS))
def test_every_operator_hands_on_what_its_input_rests_on(trades, name):
    assert trades.origins["trades"].offset == 39
    assert OPERATORS[name].make(trades).origins == trades.origins


@pytest.mark.parametrize("name", list(SPLITS))
def test_every_part_of_a_split_rests_on_the_same(trades, name):
    parts = SPLITS[name].make(trades)
    parts = list(parts.values()) if isinstance(parts, dict) else parts
    assert [part.origins for part in parts] == [trades.origins] * len(parts)


def test_a_view_of_two_datasets_rests_on_both(ws, trades):
    prices = ws["prices"].view()
    both = {**trades.origins, **prices.origins}
    assert set(both) == {"trades", "prices"}
    for view in (
        trades.join(prices, on="n"),
        trades.select("n").join(prices, on="n", how="anti"),
        trades.select("n").concat(prices.select("n")),
        trades.select("x").zip(prices),
    ):
        assert view.filter("true").limit(3).origins == both


def test_a_view_of_one_dataset_at_two_commits_names_both(ws, trades):
    new = ws["trades"].view()
    for view in (
        trades.concat(new),
        trades.join(new.select("n"), on="n"),
        trades.concat(new, trades).limit(2),
    ):
        last = new.origins["trades"]
        assert dict(view.origins) == {**trades.origins, f"trades@{last.block[-8:]}": last}
    assert len(new.concat(trades.concat(new)).origins) == 2
    since = ws["trades"].changes(after=39).select("n")
    both = since.concat(new.select("n")).concat(trades.select("n"))
    assert {(origin.offset, origin.after is None) for origin in both.origins.values()} == {
        (44, False),
        (44, True),
        (39, True),
    }


def test_what_rests_on_no_dataset_says_so(trades):
    assert tl.View.range(3).origins == {}
    assert tl.View.from_arrow(trades.to_arrow()).origins == {}
