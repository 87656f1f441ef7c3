"""Runs can be seen: what was begun ahead, kept and thrown away, as pieces, trace, drawing and text."""

from __future__ import annotations

import json
import threading
import xml.etree.ElementTree as ET

import pytest

from tests.run.sequential import random_run
from trueline.run import ERASED, Inline, Recording, Run, Step, watching
from trueline.run.timeline import RecordedBatch, lanes

SVG = "{http://www.w3.org/2000/svg}"


def worked_ahead(*, changes: bool, deliberate: bool = False) -> Recording:
    """A run whose second step begins on the key before the first has ended, unless it is deliberate."""
    begun = threading.Event()

    def parse(key, value):
        if not deliberate:
            assert begun.wait(30), "the second step never began"
        return value.upper() if changes else value

    def check(key, value):
        begun.set()
        return value

    recording = Recording()
    steps = [Step(map=parse, name="parse"), Step(map=check, name="check")]
    run = Run(steps, workers=2, observers=[recording], deliberate=deliberate)
    assert run.execute({"a": "x"}) == {"a": "X" if changes else "x"}
    return recording


def fates(recording: Recording) -> list[tuple[str, str, int]]:
    return [(piece.name, piece.fate, piece.ahead) for piece in recording.pieces]


def test_work_begun_ahead_is_kept_where_nothing_changed():
    assert fates(worked_ahead(changes=False)) == [("parse", "kept", 0), ("check", "kept", 1)]


def test_work_begun_ahead_is_thrown_away_where_its_input_changed():
    assert fates(worked_ahead(changes=True)) == [
        ("parse", "kept", 0),
        ("check", "thrown away", 1),
        ("check", "kept", 0),
    ]


def test_one_step_after_another_begins_nothing_ahead():
    recording = worked_ahead(changes=True, deliberate=True)
    assert fates(recording) == [("parse", "kept", 0), ("check", "kept", 0)]
    parse, check = recording.pieces
    assert 0 <= parse.start <= parse.end <= check.start <= check.end <= recording.seconds


@pytest.mark.parametrize("first", range(0, 300, 100))
def test_a_recording_counts_as_the_report_does(first):
    for seed in range(first, first + 100):
        steps, inputs = random_run(seed)
        recording = Recording()
        run = Run(steps, executor=Inline(seed, workers=1 + seed % 5), observers=[recording])
        run.execute(inputs)
        for index, step in enumerate(run.report.steps):
            pieces = [piece for piece in recording.pieces if piece.step == index]
            done, kept = sum(len(p.keys) for p in pieces), sum(p.kept for p in pieces)
            assert (done, kept) == (step.calls, step.kept), f"seed {seed}, step {index}"
            assert step.wasted == done - kept


def test_the_work_of_a_step_that_was_skipped_is_thrown_away():
    def fails(key, value):
        raise ValueError(key)

    recording = Recording()
    steps = [Step(map=fails, on_error="skip_step", name="fails"), Step(map=lambda key, value: value)]
    run = Run(steps, executor=Inline(), observers=[recording])
    assert run.execute({"a": 1}) == {"a": 1}
    assert [piece.fate for piece in recording.pieces] == ["thrown away", "kept"]
    assert (run.report.steps[0].kept, run.report.steps[0].wasted, run.report.steps[0].skipped) == (0, 1, True)


def test_work_on_a_key_that_is_gone_is_thrown_away():
    recording = Recording()
    steps = [
        Step(map=lambda key, value: ERASED if key == "b" else value, name="drop"),
        Step(map=lambda key, value: value, name="after"),
    ]
    # With this seed the second step works on both keys before the first one drops one of them.
    run = Run(steps, executor=Inline(3, workers=4), observers=[recording])
    assert run.execute({"a": 1, "b": 2}) == {"a": 1}
    after = [(piece.keys, piece.fate) for piece in recording.pieces if piece.name == "after"]
    assert (["b"], "thrown away") in after
    assert (["a"], "kept") in after


def test_batches_beyond_the_limit_are_counted_only():
    recording = Recording(limit=3)
    steps = [Step(map=lambda key, value: value, batch_size=2)]
    Run(steps, executor=Inline(), observers=[recording]).execute(dict.fromkeys(range(20), 0))
    assert (len(recording.pieces), recording.left_out) == (3, 7)
    assert "7 batches more" in recording.svg()


def test_runs_made_by_others_are_watched_one_behind_the_other():
    recording = Recording()
    with watching(recording):
        for name in ("first", "second"):
            Run([Step(map=lambda key, value: value, name=name)], executor=Inline()).execute({"a": 1})
    Run([Step(map=lambda key, value: value, name="unseen")]).execute({"a": 1})
    assert recording.steps == ["first", "second"]
    one, two = recording.pieces
    assert (one.step, two.step, one.fate, two.fate) == (0, 1, "kept", "kept")
    assert one.end <= two.start


def test_runs_inside_a_run_are_watched_too():
    recording = Recording()

    def outer(key, value):
        with watching(recording):
            inner = Run([Step(map=lambda key, value: value + 1, name="inner")], workers=2)
            return inner.execute({"a": value, "b": value})["a"]

    with watching(recording):
        run = Run([Step(map=outer, name="outer", batch_size=1)], workers=4)
        assert run.execute({"a": 1, "b": 2, "c": 3}) == {"a": 2, "b": 3, "c": 4}
    assert sorted(recording.steps) == ["inner", "inner", "inner", "outer"]
    assert all(piece.fate == "kept" and not piece.ahead for piece in recording.pieces)
    assert sorted(key for piece in recording.pieces if piece.name == "inner" for key in piece.keys) == list(
        "aaabbb"
    )


def test_lanes_hold_pieces_that_do_not_overlap():
    pieces = [
        RecordedBatch(n, 0, "s", start, end, 0)
        for n, (start, end) in enumerate([(0, 3), (1, 2), (2, 5), (3, 4)])
    ]
    assert lanes(pieces) == {0: 0, 1: 1, 2: 1, 3: 0}


# --- trace --------------------------------------------------------------------


def test_a_trace_is_what_chrome_reads(tmp_path):
    recording = worked_ahead(changes=True)
    recording.write_trace(tmp_path / "run.json")
    document = json.loads((tmp_path / "run.json").read_text(encoding="utf-8"))
    work = [event for event in document["traceEvents"] if event["ph"] == "X"]
    assert [event["cat"] for event in work] == ["kept", "thrown away,ahead", "kept"]
    for event, piece in zip(work, recording.pieces, strict=True):
        assert event["ts"] == pytest.approx(piece.start * 1e6, abs=0.1)
        assert event["dur"] == pytest.approx(piece.seconds * 1e6, abs=0.1)
        assert (event["args"]["step"], event["args"]["first keys"]) == (piece.step, ["a"])
    assert work[0]["tid"] != work[1]["tid"], "they ran at the same time"
    named = {event["tid"] for event in document["traceEvents"] if event["name"] == "thread_name"}
    assert named == {event["tid"] for event in work}
    assert document["otherData"]["steps"] == ["parse", "check"]


# --- drawing ------------------------------------------------------------------


def bars(svg: str) -> list[tuple[str, float, float, float]]:
    """The bars of a drawing: look, left, right, top."""
    found = []
    for rect in ET.fromstring(svg).iter(f"{SVG}rect"):
        if rect.find(f"{SVG}title") is not None:
            left, width, top = (float(rect.attrib[name]) for name in ("x", "width", "y"))
            found.append((rect.attrib["class"], left, left + width, top))
    return found


def test_a_drawing_shows_work_begun_ahead_below_what_it_is_ahead_of(tmp_path):
    recording = worked_ahead(changes=True)
    recording.write_timeline(tmp_path / "run.svg", "One file")
    svg = (tmp_path / "run.svg").read_text(encoding="utf-8")
    parse, ahead, again = bars(svg)
    assert [look for look, *_ in (parse, ahead, again)] == ["kept", "thrown", "kept"]
    assert ahead[1] < parse[2], "it begins left of the end of what it is ahead of"
    assert again[1] >= parse[2] - 1
    assert parse[3] < ahead[3]
    assert "One file" in svg
    assert recording._repr_svg_().startswith("<svg")


def test_kept_work_begun_ahead_looks_different():
    assert [look for look, *_ in bars(worked_ahead(changes=False).svg())] == ["kept", "ahead"]


def test_a_batch_of_which_a_part_was_thrown_away_is_drawn_in_two():
    recording = Recording()
    recording.steps = ["only"]
    piece = RecordedBatch(1, 0, "only", 0.0, 1.0, 0, keys=["a", "b", "c", "d"], kept=3, ended=True)
    recording._pieces.append(piece)
    recording._now = 1.0
    shown = ET.fromstring(recording.svg())
    bar = [rect for rect in shown.iter(f"{SVG}rect") if rect.attrib.get("x") == "150.00"]
    assert [rect.attrib["class"] for rect in bar] == ["kept", "thrown"]
    assert float(bar[0].attrib["height"]) == pytest.approx(3 * float(bar[1].attrib["height"]))


def test_any_name_and_key_can_be_drawn():
    recording = Recording()
    name = "<b> & \x1b[31m \ud800 \uffff" + "long" * 20
    Run([Step(map=lambda key, value: value, name=name)], executor=Inline(), observers=[recording]).execute(
        {"]]> \x00 </title>": 1}
    )
    ET.fromstring(recording.svg())
    json.dumps(recording.trace())
    assert "\x1b" not in recording.text()


def test_a_run_of_nothing_can_be_drawn():
    recording = Recording()
    Run([], observers=[recording]).execute({})
    ET.fromstring(recording.svg())
    assert recording.text()
    assert recording.trace()["traceEvents"]


def test_many_small_batches_do_not_make_a_large_drawing():
    recording = Recording()
    steps = [Step(map=lambda key, value: value, batch_size=1)]
    Run(steps, executor=Inline(), observers=[recording]).execute(dict.fromkeys(range(20_000), 0))
    assert len(recording.pieces) == 20_000
    assert len(recording.svg()) < 500_000


def test_a_time_line_of_text_marks_each_fate():
    recording = Recording()
    recording.steps = ["parse", "check"]
    for number, (step, start, end, kept, ahead) in enumerate(
        [(0, 0, 4, 1, 0), (0, 0, 8, 1, 0), (1, 1, 6, 1, 1), (1, 3, 8, 0, 1), (1, 8, 10, 1, 0)]
    ):
        name = recording.steps[step]
        recording._pieces.append(
            RecordedBatch(number, step, name, start, end, 0, [number], kept=kept, ahead=ahead)
        )
    recording._now = 10.0
    assert recording.text(27).splitlines() == [
        "parse  ████████",
        "       ████████████████",
        "check    ▓▓▓▓▓▓▓▓▓▓    ████",
        "             ××××××××××",
        "       0            10.00 s",
        "█ kept  ▓ kept, begun ahead  × thrown away",
    ]


# --- report -------------------------------------------------------------------


def test_a_report_reads_as_a_table_and_as_html():
    run = Run([Step(map=lambda key, value: value + 1, name="<add>")], executor=Inline())
    run.execute({"a": 1, "b": 2})
    assert str(run.report).split("\n") == ["step   done  kept  thrown away", "<add>     2     2            0"]
    assert "<td>&lt;add&gt;</td><td>2</td><td>2</td><td>0</td>" in run.report._repr_html_()
