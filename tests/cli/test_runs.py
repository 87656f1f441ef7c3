"""What runs wrote down can be looked at."""

from __future__ import annotations

from trueline.run import Inline, Run, Step


def test_a_journal_is_shown(run, tmp_path):
    steps = [Step(map=lambda _, value: value + 1, name="add"), Step(map=lambda _, value: value, name="check")]
    for inputs in ({"a": 1, "b": 2}, {"a": 1, "c": 2}):
        Run(steps, executor=Inline(), journal=tmp_path / "j").execute(inputs)
    done = run("run", "show", tmp_path / "j", "--json")
    assert done.code == 0, done.err
    first, second = done.json["runs"]
    assert [(step["name"], step["finished"], step["changed"]) for step in first["steps"]] == [
        ("add", 2, 2),
        ("check", 2, 0),
    ]
    assert [step["finished"] for step in second["steps"]] == [1, 1], "one key was known"
    assert first["ended"]
    assert second["ended"]
    shown = run("run", "show", tmp_path / "j").out
    assert f"run {second['run']}, begun" in shown


def test_what_is_no_journal_is_refused(run, tmp_path):
    (tmp_path / "text").write_text("hello\n", encoding="utf-8")
    for name in ("text", "missing"):
        assert run("run", "show", tmp_path / name).code == 2
