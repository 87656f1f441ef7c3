"""Names of datasets: what is allowed, and that no name leads out of the workspace."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline.errors import BadName, DatasetNotFound
from trueline.workspace.names import check_name, is_name

GOOD = ["a", "trades", "Trades-2026.v1_x", "0", "a" * 128, "a.b"]
BAD = [
    "", ".", "..", "../x", "a/b", "a\\b", "/etc", ".hidden", "-x", "_x", "a.", "a..b", "a" * 129, "a b", "ä",
    "a\0", "a\n", "con", "NUL.txt", "a:b", "~", None, 7, b"a",
]  # fmt: skip


@pytest.mark.parametrize("name", GOOD)
def test_plain_names_are_allowed(name):
    assert check_name(name) == name


@pytest.mark.parametrize("name", BAD)
def test_other_names_are_refused_with_the_rule(name):
    with pytest.raises(BadName, match="cannot name a dataset") as caught:
        check_name(name)
    assert "letters" in caught.value.remedy


@given(st.text(max_size=12) | st.text(alphabet="./\\ab\0", max_size=12))
def test_an_allowed_name_is_one_path_segment_inside_its_folder(text):
    if is_name(text):
        path = Path(os.path.normpath(Path("base") / text))
        assert path.parent == Path("base")
        assert path.name == text


@pytest.mark.parametrize("name", ["../outside", "..", "a/../../b", "/abs"])
def test_a_bad_name_touches_nothing(ws, tmp_path, name):
    before = sorted(tmp_path.rglob("*"))
    for use in (lambda: ws[name], lambda: ws.create(name)):
        with pytest.raises(BadName):
            use()
    assert name not in ws
    assert sorted(tmp_path.rglob("*")) == before


def test_a_dataset_folder_that_is_a_link_out_of_the_workspace_is_refused(ws, tmp_path):
    ws.create("trades")
    outside = tmp_path / "outside"
    (tmp_path / "ws" / "datasets" / "trades").rename(outside)
    (tmp_path / "ws" / "datasets" / "trades").symlink_to(outside)
    ws.close()
    before = sorted(outside.rglob("*"))
    for use in (lambda: ws["trades"], lambda: ws.create("trades")):
        with pytest.raises(BadName, match="leads out of the workspace"):
            use()
    assert "trades" not in ws
    assert list(ws) == []
    ws.gc(older_than=0)
    assert sorted(outside.rglob("*")) == before


def test_a_link_within_the_workspace_is_followed(ws, tmp_path):
    ws.create("trades")
    folder = tmp_path / "ws" / "datasets"
    (folder / "same").symlink_to(folder / "trades")
    assert ws["same"].id == ws["trades"].id


def test_names_that_differ_only_by_case_are_refused(ws):
    ws.create("Trades")
    with pytest.raises(BadName, match="differ only by case"):
        ws.create("trades")


def test_a_missing_dataset_is_named_with_the_one_that_may_have_been_meant(ws):
    with pytest.raises(DatasetNotFound, match=r"ws\.create"):
        ws["trades"]
    ws.create("trades")
    with pytest.raises(DatasetNotFound, match="did you mean 'trades'"):
        ws["trade"]
    with pytest.raises(KeyError):
        ws["quite-other"]
