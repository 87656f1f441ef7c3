"""One pull of sources and of what is computed from them: sources, then one cut, then the others. No Spark."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from trueline.errors import PullError
from trueline.workspace.cuts.log import CutLog

COLUMNS = {"account": pa.string(), "total": pa.float64()}
HOUR = 3_600_000


@pytest.fixture
def shop(ws, tmp_path):
    """Two sources with a row each, a dataset over both and one over the second."""
    for name in ("sales", "stock"):
        arrived(tmp_path, name, "a")
        ws.create(name, source=f"{tmp_path}/{name}/*.csv")
    ws.pull()
    define_by_hand(ws, "both", "select 1", ["sales", "stock"], columns=COLUMNS)
    define_by_hand(ws, "left", "select 2", ["stock"], columns=COLUMNS)
    with computing(counted):
        yield ws


def arrived(tmp_path, name, file, raw=None):
    (tmp_path / name).mkdir(exist_ok=True)
    (tmp_path / name / f"{file}.csv").write_bytes(raw or f"id\n{file}\n".encode())


def total(ws, name):
    (row,) = ws[name].view().to_arrow().to_pylist()
    return row["total"]


def rows(report):
    return {each.dataset: each.rows for each in report}


def test_one_pull_reads_sources_and_brings_what_is_computed_from_them_to_one_cut(shop, tmp_path):
    arrived(tmp_path, "sales", "b")
    report = shop.pull()
    assert rows(report) == {"sales": 1, "stock": 0, "both": 1, "left": 1}
    assert [each.dataset for each in report][:2] == ["sales", "stock"]
    assert (total(shop, "both"), total(shop, "left")) == (3.0, 1.0)
    assert {each.cut for each in report if each.is_derived} == {CutLog.of(shop).newest().number}


def test_a_derived_dataset_that_is_named_brings_its_sources_along_and_no_others(shop, tmp_path):
    shop.pull()
    for name in ("sales", "stock"):
        arrived(tmp_path, name, "b")
    assert rows(shop.pull("left")) == {"stock": 1, "left": 2}
    assert (total(shop, "left"), shop["sales"].view().count()) == (2.0, 1)
    assert rows(shop.pull("both")) == {"sales": 1, "stock": 0, "both": 2}
    assert total(shop, "both") == 4.0


@pytest.mark.contract("derive:V20")
def test_a_source_that_fails_keeps_its_place_and_what_is_computed_goes_on_with_the_others(shop, tmp_path):
    shop.pull()
    before = shop["stock"].head
    arrived(tmp_path, "sales", "b")
    arrived(tmp_path, "stock", "b", b"\x1f\x8bnot gzip")
    with pytest.raises(PullError) as caught:
        shop.pull()
    report = caught.value.report
    assert list(report.errors) == ["stock"]
    assert rows(report) == {"stock": 0, "sales": 1, "both": 2, "left": 0}
    assert (shop["stock"].head, total(shop, "both"), total(shop, "left")) == (before, 3.0, 1.0)
    # Once it can be read again all are where they would have been.
    arrived(tmp_path, "stock", "b")
    assert rows(shop.pull()) == {"stock": 1, "sales": 0, "both": 2, "left": 2}
    assert (total(shop, "both"), total(shop, "left")) == (4.0, 2.0)


def test_a_copy_of_a_root_is_brought_up_to_date_before_what_is_computed_from_it(ws, tmp_path):
    with tl.open(tmp_path / "there", create=True) as there:
        rates = there.create("rates")
        rates.append([{"id": 1}])
        ws.clone(f"{there.location}/datasets/{rates._folder}")
        define_by_hand(ws, "counts", "select 1", ["rates"], columns=COLUMNS)
        rates.append([{"id": 2}])
        with computing(counted):
            report = ws.pull("counts")
            assert [each.dataset for each in report if each.is_derived] == ["counts"]
            assert (ws["rates"].head, total(ws, "counts")) == (rates.head, 2.0)


# --- watermarks -----------------------------------------------------------------------------------


def at(*hours):
    moments = pa.array([HOUR * each for each in hours], pa.timestamp("ms", "UTC"))
    return pa.table({"account": ["a"] * len(hours), "total": [1.0] * len(hours), "at": moments})


@pytest.mark.contract("derive:V12")
def test_the_watermark_is_that_of_the_slowest_input_which_has_an_event_time(ws):
    one, other = (ws.create(name, event_time="at") for name in ("one", "other"))
    ws.create("timeless").append([{"account": "a"}])
    reads = {"pair": ["one", "other"], "mixed": ["one", "timeless"], "none": ["timeless"]}
    for name, inputs in reads.items():
        define_by_hand(ws, name, f"select '{name}'", inputs, columns=COLUMNS)

    def watermarks():
        return [str(found) if (found := ws[name].chain.tail().watermark) else None for name in reads]

    hour = "1970-01-01T0{}:00:00Z".format
    with computing(counted):
        one.append(at(5), watermark=hour(5))
        ws.pull()
        # An input that has none yet holds back, one without event time does not.
        assert watermarks() == [None, hour(5), None]
        other.append(at(3), watermark=hour(3))
        ws.pull()
        assert watermarks() == [hour(3), hour(5), None]
        # What moves nothing but a watermark is a commit without rows.
        other.append([], watermark=hour(9))
        report = ws.pull()
        assert watermarks() == [hour(5), hour(5), None]
        assert {each.dataset: (each.rows, len(each.commits)) for each in report if each.commits} == {
            "pair": (0, 1)
        }
        assert ws["pair"].verify().problems == ()
