"""Clone, push, drop-data and the options of verify, from the command line."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl


@pytest.fixture
def shop(tmp_path):
    with tl.open(tmp_path / "shop", create=True) as ws:
        sales = ws.create("sales")
        sales.append(pa.table({"n": [1, 2], "who": ["ann", "bob"]}))
        sales.append(pa.table({"n": [3], "who": ["ann"]}))
    return tmp_path / "shop"


def test_a_dataset_goes_out_and_comes_in(run, shop, tmp_path):
    sent = run("-C", str(shop), "push", "sales", str(tmp_path / "out"))
    assert sent.code == 0, sent.err
    assert "5 blocks, 2 files" in sent.out
    assert "up to date" in run("-C", str(shop), "push", "sales", str(tmp_path / "out")).out
    run("init", str(tmp_path / "copy"))
    done = run("-C", str(tmp_path / "copy"), "clone", str(tmp_path / "out"), "sales", "--json")
    assert done.code == 0, done.err
    assert (done.json["rows"], done.json["origin"]["url"]) == (3, str(tmp_path / "out"))
    assert run("-C", str(tmp_path / "copy"), "verify").code == 0


def test_a_tag_that_cannot_be_sent_is_named(run, shop, tmp_path):
    with tl.open(shop) as ws, ws.snapshot("sales") as snap:
        ws["sales"].reset(to="offset:1")
        ws.tag("q3", snap)
    sent = run("-C", str(shop), "push", "sales", str(tmp_path / "out"))
    assert sent.code == 0, sent.err
    assert "the tag q3 was not sent: a reset has cut off the commit it names" in sent.out + sent.err


def test_a_clone_that_is_refused_says_why(run, shop, tmp_path):
    done = run("-C", str(shop), "clone", str(tmp_path / "nothing"), "x", "--json")
    assert (done.code, done.error["code"]) == (2, "NotADataset")
    with tl.open(shop) as ws:
        ws["sales"].push(tmp_path / "out")
    other = run("-C", str(shop), "create", "mine")
    assert other.code == 0
    assert run("-C", str(shop), "clone", str(tmp_path / "out"), "mine").code == 2


def test_records_are_removed_and_verify_is_content(run, shop):
    args = ("-C", str(shop), "drop-data", "sales", "--where", "who = 'ann'")
    assert run(*args).code == 2, "a reason is asked for"
    done = run(*args, "--reason", "request 17")
    assert done.code == 0, done.err
    assert "removed 2 rows of 2 slices" in done.out
    assert "no records match" in run(*args, "--reason", "again").out
    verified = run("-C", str(shop), "verify")
    assert verified.code == 0
    assert "lost 1 of 2 rows to removal 1: request 17" in verified.out
    assert "removed 2 rows: request 17" in run("-C", str(shop), "log", "sales").out


def test_verify_takes_bounds_of_one_dataset(run, shop):
    with tl.open(shop) as ws:
        first = list(ws["sales"].log())[1].short
    done = run("-C", str(shop), "verify", "sales", "--after", first, "--json")
    assert (done.code, done.json["datasets"][0]["blocks"]) == (0, 1)
    assert run("-C", str(shop), "verify", "--after", first).code == 2


def test_a_damaged_file_is_told_with_its_name_and_both_hashes(run, shop):
    (path, *_) = (shop / "datasets" / "sales" / "data").iterdir()
    path.write_bytes(path.read_bytes()[:-1] + b"?")
    done = run("-C", str(shop), "verify", "--json")
    assert done.code == 1
    (problem,) = done.json["datasets"][0]["problems"]
    assert problem["file"] == f"data/{path.name}"
    assert problem["expected"] == path.name
    assert problem["actual"] != path.name
