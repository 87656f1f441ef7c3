"""The demo tells a story; here it is checked that the story is true."""

from __future__ import annotations

import trueline as tl


def test_the_story_is_true(run, tmp_path):
    done = run("demo", "--json", "--keep", tmp_path / "kept")
    assert done.code == 0, done.err
    facts = done.json["facts"]
    assert facts["commits"] == 4
    assert facts["race"] == [6, 7]
    assert facts["verified"] is True
    assert (facts["killed before"], facts["killed after"]) == ("old", "new")
    assert facts["swept"] >= 3, "a slice and a block of the dead process, and the slice that lost the race"
    assert len(facts["found"]) == 1
    with tl.open(tmp_path / "kept" / "shop") as ws:
        sales = ws["sales"]
        assert ws.verify().ok
        assert sales.info.rows == 9
        assert facts["found"][0] in {commit.block for commit in sales.log()}
    assert run("demo", "--keep", tmp_path / "kept").code == 2


def test_the_story_can_be_read_and_leaves_nothing(run, tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    done = run("demo")
    assert done.code == 0, done.err
    for chapter in ("Commits", "Two writers at once", "Proof", "A process dies", "A byte changes"):
        assert f"\n{chapter}\n" in done.out
    assert "WRONG" not in done.out
    assert "corrupt: block" in done.out
    assert list(tmp_path.glob("trueline-demo-*")) == []
