"""The demo tells a story; here it is checked that the story is true."""

from __future__ import annotations

import pytest

import trueline as tl
from trueline import console
from trueline.cli.demo import Story
from trueline.spark import java, session


@pytest.fixture
def stories(monkeypatch):
    """The stories that are told, with what they found."""
    told = []
    init = Story.__init__

    def remembered(story, *arguments):
        init(story, *arguments)
        told.append(story)

    monkeypatch.setattr(Story, "__init__", remembered)
    return told


def test_the_story_is_true_and_can_be_read(run, tmp_path, spark, stories):
    done = run("demo", "--keep", tmp_path / "kept")
    assert done.code == 0, done.err
    (story,) = stories
    facts = story.facts
    assert facts["commits"] == 4
    assert facts["race"] == [12, 13]
    assert facts["bad"] == {"day": 1, "price": 2}
    assert (facts["skipped"], facts["customers"]) == (1, 3)
    assert facts["views"]["same"] is True
    assert facts["views"]["rows"] > 0
    assert facts["views"]["caught"].startswith("K5"), "a broken view is caught by its check"
    assert facts["engines"] == {"rows": 5, "same": True}, "computed here and on Spark"
    prepared = facts["prepared"]
    assert prepared["same"] is True
    assert prepared["visits"]["ahead"] > 0
    assert prepared["visits"]["thrown"] > 0, "one file changes under the hands of a later step"
    assert prepared["visits-in-turn"] == {"done": 12, "ahead": 0, "thrown": 0}
    assert (tmp_path / "kept" / "prepared" / "visits.svg").exists()
    assert facts["derived"] == {
        "planned": dict.fromkeys(("credits", "debits", "balances"), "keyed"),
        "balances": {"anna": 90.0, "bert": 55.25, "cleo": 0.1},
        "replayed": 6,
        "forged": {"shown": 1_000_000.0, "hashes": True, "replay": ["not_reproducible"]},
    }
    assert facts["simulated"] == {"naive": [2], "aligned": True}
    assert facts["bank"] == {"readings": 4, "naive wrong": 1, "snapshots wrong": 0}
    assert facts["verified"] is True
    assert (facts["killed before"], facts["killed after"]) == ("old", "new")
    assert facts["swept"] >= 2, "a slice and a block of the dead process"
    assert len(facts["found"]) == 1
    with tl.open(tmp_path / "kept" / "shop") as ws:
        sales = ws["sales"]
        assert ws.verify().ok
        assert sales.info.rows == 15
        assert facts["found"][0] in {commit.block for commit in sales.log()}
    for chapter in (
        "Commits",
        "Files",
        "Working ahead",
        "Keys",
        "Views",
        "Two engines",
        "Derived datasets",
        "Agreement",
        "Tables that agree",
        "Two writers at once",
        "Proof",
        "A process dies",
        "A byte changes",
    ):
        assert f"\n{chapter}\n" in done.out
    assert "WRONG" not in done.out
    assert "corrupt: block" in done.out
    assert "balance: 1000000.0}, replayed insert" in done.out
    assert run("demo", "--keep", tmp_path / "kept").code == 2


def test_as_json_it_is_its_facts_and_it_leaves_nothing(run, tmp_path, monkeypatch, stories):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    monkeypatch.setattr(Story, "tell", lambda story: story.race(story.commits()))
    done = run("demo", "--json")
    assert done.code == 0, done.err
    assert done.json == {"ok": True, "kept": None, "facts": stories[0].facts}
    assert done.json["facts"]["race"]
    assert list(tmp_path.glob("trueline-demo-*")) == []


def test_without_java_the_story_says_so_and_goes_on(ws, monkeypatch):
    monkeypatch.setattr(session, "_running", lambda: None)
    monkeypatch.setattr(session._Process, "room", None)
    monkeypatch.setattr(java, "candidates", lambda environment=None: iter(()))
    with console.use(console.CapturedConsole()) as seen:
        story = Story(seen, ws)
        story.engines(story.commits())
    assert story.facts["engines"] is None
    assert "left out, as there is no Spark here" in seen.text
    assert "Java" in seen.text
