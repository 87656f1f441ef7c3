"""The log of cuts: numbers given once, positions that never go back, and how much is read for it."""

from __future__ import annotations

import json

import pytest

from tests.chain.histories import (
    History,
    add_data,
    dataset_id,
    execute,
    set_data_schema,
    set_transform,
    taken,
)
from tests.workspace.cuts.lake import HeadCounter, Lake, Watched, offsets
from trueline.chain import Folder
from trueline.chain.block import COMMIT_KEY
from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin
from trueline.errors import CorruptionError, InputError, StoreError
from trueline.workspace.cuts import log as log_module
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.locations import place_of


def test_before_the_first_cut_there_is_the_empty_one(lake):
    log = lake.log()
    assert (log.newest(), log.newest().number, list(log.cuts())) == (Cut(), 0, [])
    name = lake.root("a")
    assert log.record([name]).number == 0, "a root without data has no position"
    assert lake.objects.names("cut") == []


@pytest.mark.contract("cut:P3")
def test_a_number_is_given_when_something_moved_and_names_the_same_positions_for_ever(lake):
    a, b = lake.root("a"), lake.root("b")
    log, other = lake.log(), lake.log()
    lake.append(a)
    first = log.record([a, b])
    assert (first.number, offsets(first, a, b)) == (1, [9, -1])
    assert other.record([a, b]).number == 1
    lake.append(b, 5)
    second = other.record([a, b])
    assert (second.number, offsets(second, a, b)) == (2, [9, 4])
    assert log.record([a]).number == 2
    for each in (log, other, lake.log()):
        assert [cut.to_bytes() for cut in each.cuts()] == [first.to_bytes(), second.to_bytes()]
        assert [offsets(each.cut(number), a, b) for number in (1, 2)] == [[9, -1], [9, 4]]


def test_nothing_is_written_when_nothing_moved(quick):
    a = quick.root("a")
    quick.append(a)
    quick.log().record([a])
    watched = Watched(quick.objects)
    assert quick.log(watched).record([a]).number == 1
    assert watched.counts["put_new"] + watched.counts["swap"] + watched.counts["put"] == 0


def test_metadata_does_not_move_a_cut_and_a_watermark_alone_does(quick):
    a, log = quick.root("a"), quick.log()
    quick.append(a)
    cut = log.record([a])
    quick.describe(a)
    assert log.record([a]).number == cut.number
    quick.append(a, 0)
    moved = log.record([a])
    assert (moved.number, moved[a].offset) == (2, cut[a].offset)
    assert moved[a].block == quick.roots[a].head != cut[a].block


@pytest.mark.contract("cut:P2")
def test_a_cut_is_never_inside_a_commit_of_several_parts(quick):
    a, log = quick.root("a"), quick.log()
    quick.append(a)
    cut = log.record([a])
    for part in (1, 2):
        quick.append(a, extra={COMMIT_KEY: {"part": part, "parts": 3}})
        assert log.record([a]) == cut
    quick.append(a, extra={COMMIT_KEY: {"part": 3, "parts": 3}})
    assert (log.record([a]).number, log.record([a])[a].offset) == (2, 39)


@pytest.mark.contract("cut:P2", "cut:P18")
def test_a_clone_of_a_derived_dataset_is_a_root_that_is_never_taken_inside_its_commits(quick):
    first = execute(taken("in", None, "a1", None, 9), data=(0, 9), leaves="c1")
    steps = (set_transform("in"), set_data_schema())
    history = History("Derivative", *steps, label="clone", store=HeadCounter())
    name = dataset_id("clone")
    quick.roots[name] = history
    log = quick.log()
    assert log.record([name]).number == 0
    # Checkpoints of other software: what it wrote counts as at rest.
    for opaque in (b"c1", b"c2"):
        history.store.put(Folder.CHECKPOINTS, opaque)
    history.append(first)
    assert offsets(log.record([name]), name) == [9]
    part = execute(taken("in", "a1", None, 9), data=(10, 19), prev=9, was="c1", leaves="c1")
    history.append(part, strict=False)
    assert (log.record([name]).number, offsets(log.record([name]), name)) == (1, [9])
    end = execute(taken("in", "a1", "a2", 9, 19), data=(20, 29), prev=19, was="c1", leaves="c2")
    history.append(end)
    assert (log.record([name]).number, offsets(log.record([name]), name)) == (2, [29])


@pytest.mark.contract("cut:P2", "cut:P18")
def test_a_clone_of_a_derived_dataset_is_taken_where_it_is_at_rest(quick):
    name, log = dataset_id("clone"), quick.log()
    steps = (set_transform("in"), set_data_schema())
    history = quick.roots[name] = History("Derivative", *steps, label="clone", store=HeadCounter())
    for number, at_rest in enumerate((False, True, False, False, True)):
        made = DerivedCheckpoint(
            DerivedOrigin(), at_rest, history.head, "test", more={"number": number}
        ).to_file()
        left = {"physicalHash": str(history.store.put(Folder.CHECKPOINTS, made.to_bytes())), "size": 10}
        tail = history.chain.tail()
        step = taken("in", f"a{number}" if number else None, f"a{number + 1}")
        event = execute(step, data=(tail.next_offset, tail.next_offset), prev=tail.last_offset)
        event |= {"newCheckpoint": left} | ({"prevCheckpoint": str(tail.checkpoint)} if number else {})
        history.append(event)
        assert offsets(log.record([name]), name) == [[-1], [1], [1], [1], [4]][number]


@pytest.mark.contract("cut:P3")
def test_the_heads_are_read_after_the_number_or_positions_would_go_back(quick):
    """A reads x at 1, B records cut 1 with x at 2, A puts: it must not be cut 2 with x at 1."""
    x, b = quick.root("x"), quick.log()
    quick.append(x)

    def faster(verb, name):
        if (verb, name) == ("put_new", "cut/1"):
            watched.before = None
            quick.append(x)
            assert b.record([x]).number == 1

    watched = Watched(quick.objects, faster)
    cut = quick.log(watched).record([x])
    assert (cut.number, offsets(cut, x)) == (1, [19])
    assert [offsets(each, x) for each in b.cuts()] == [[19]]


@pytest.mark.contract("cut:P3")
def test_whoever_is_slower_begins_again_with_what_moved_meanwhile(quick):
    x, y, b = quick.root("x"), quick.root("y"), quick.log()
    quick.append(x)

    def faster(verb, name):
        if verb == "put_new" and b.newest().number < 3:
            quick.append(y)
            b.record([y])

    cut = quick.log(Watched(quick.objects, faster)).record([x])
    assert (cut.number, offsets(cut, x, y)) == (4, [9, 29])
    assert [offsets(each, x, y) for each in b.cuts()] == [[-1, 9], [-1, 19], [-1, 29], [9, 29]]


@pytest.mark.contract("cut:P3")
def test_only_the_heads_that_are_asked_for_are_read_and_each_once(quick):
    names = [quick.root(f"r{n}") for n in range(500)]
    log = quick.log()
    for name in names:
        quick.append(name)
    quick.heads_read()
    log.record(names)
    assert quick.heads_read() == 500
    quick.append(names[0])
    quick.append(names[1])
    quick.heads_read()
    cut = log.record(names[:1])
    assert quick.heads_read() == 1
    assert offsets(cut, *names[:3]) == [19, 9, 9], "the others keep their last position"
    assert len(cut) == 500
    assert quick.log().record(names[5:7]).number == cut.number
    assert quick.heads_read() == 2


def test_the_time_of_a_cut_is_not_before_its_blocks_nor_the_cut_before(quick):
    a, log = quick.root("a"), quick.log()
    quick.append(a)
    first = log.record([a])
    assert first.time == quick.clock()
    quick.clock.forward(-3600)
    quick.append(a)
    assert log.record([a]).time == first.time
    history = quick.roots[a]
    ahead = "2026-12-24T18:00:00.123456789Z"
    history.append(add_data((20, 29), prev=19, watermark=500), systemTime=ahead)
    assert str(log.record([a]).time) == ahead


@pytest.mark.contract("cut:P3")
def test_the_first_cut_after_a_reset_says_so(quick):
    a, b, log = quick.root("a"), quick.root("b"), quick.log()
    early = quick.append(a)
    quick.append(a)
    quick.append(b)
    assert log.record([a, b]).reset == frozenset()
    quick.roots[a].chain.reset(early)
    back = log.record([a, b])
    assert (back.number, offsets(back, a, b), back.reset) == (2, [9, 9], {a})
    quick.append(a)
    assert log.record([a, b]).reset == frozenset()
    quick.roots[a].chain.reset(early)
    quick.append(a, 30)
    again = log.record([a, b])
    assert (offsets(again, a, b), again.reset) == ([39, 9], {a}), "further on than before, on another branch"
    seed = next(iter(quick.roots[a].chain.entries())).hash
    quick.roots[a].chain.reset(seed)
    empty = log.record([a, b])
    assert (offsets(empty, a, b), empty.reset) == ([-1, 9], {a})
    assert quick.log().cut(empty.number).reset == {a}


def test_a_reset_of_metadata_alone_is_not_a_reset_of_the_cut(quick):
    a, log = quick.root("a"), quick.log()
    head = quick.append(a)
    log.record([a])
    quick.describe(a)
    quick.roots[a].chain.reset(head)
    assert log.record([a]).number == 1


def test_a_root_that_is_gone_keeps_its_last_position(quick):
    a, b, log = quick.root("a"), quick.root("b"), quick.log()
    quick.append(a)
    quick.append(b)
    log.record([a, b])
    del quick.roots[a]
    quick.append(b)
    assert offsets(log.record([a, b]), a, b) == [9, 19]


@pytest.mark.parametrize("number", [0, -1, 2, 10**15])
def test_a_number_that_was_not_given_is_an_error(quick, number):
    a, log = quick.root("a"), quick.log()
    quick.append(a)
    log.record([a])
    with pytest.raises(InputError) as caught:
        log.cut(number)
    assert (caught.value.code, caught.value.number) == ("CutNotFound", number)
    assert "newest: 1" in caught.value.remedy


# --- finding the newest -----------------------------------------------------------------


def recorded(lake: Lake, count: int) -> None:
    """Put so many cuts without looking for the newest each time."""
    for number in range(1, count + 1):
        lake.objects.put_new(f"cut/{number}", Cut({}, number, lake.clock()).to_bytes())


def asked(lake: Lake, **more: bool) -> int:
    watched = Watched(lake.objects)
    log = lake.log(watched)
    assert log.newest().number == more.get("expected", 600)
    return watched.counts["read"]


def test_the_newest_is_found_by_a_few_requests_however_many_there_are(quick):
    recorded(quick, 600)
    without = asked(quick)
    assert without <= 2 * 10 + 12
    for hint, most in ((b"600", 4), (b"592", 14), (b"1", without + 2), (b"999999999", without + 3)):
        quick.objects.put("newest", hint)
        assert asked(quick) <= most, hint
    for garbage in (b"", b"x", b"-1", b"9" * 40, "٣".encode(), b"\xff"):
        quick.objects.put("newest", garbage)
        assert asked(quick) <= without + 1


def test_recording_again_asks_five_times_and_puts_once(quick):
    a, watched = quick.root("a"), Watched(quick.objects)
    log = quick.log(watched)
    quick.append(a)
    log.record([a])
    most = 0
    for _ in range(40):
        quick.append(a)
        watched.counts.clear()
        log.record([a])
        assert (watched.counts["put_new"], watched.counts["swap"], watched.counts["names"]) == (1, 0, 0)
        most = max(most, watched.counts["read"])
    # The next number and its fold, the intents twice, the fold again after the put.
    assert most == 5
    assert quick.objects.read("newest").raw == b"32"


def test_the_hint_is_found_to_be_one_where_it_cannot_be_written(quick):
    a = quick.root("a")

    def refuse(verb, name):
        if verb == "put":
            raise StoreError("no", remedy="no")

    log = quick.log(Watched(quick.objects, refuse))
    for number in range(1, 20):
        quick.append(a)
        assert log.record([a]).number == number
    assert quick.log().newest().number == 19


def test_a_damaged_cut_is_named_and_nothing_is_put_after_it(lake):
    a, log = lake.root("a"), lake.log()
    lake.append(a)
    log.record([a])
    lake.objects.put("cut/1", b'{"format":"trueline/cut"')
    lake.append(a)
    with pytest.raises(CorruptionError) as caught:
        lake.log().record([a])
    assert caught.value.code == "CutsDamaged"
    assert caught.value.path.endswith("cut/1")
    assert lake.objects.names("cut") == ["1"]


def test_a_cut_under_another_number_is_damage(lake):
    lake.objects.put_new("cut/1", Cut({}, 2).to_bytes())
    with pytest.raises(CorruptionError, match="cut/1"):
        lake.log().newest()


def test_what_is_too_large_is_refused_before_it_is_read(tmp_path):
    objects = place_of(tmp_path).cuts()
    objects.put("cut/1", b"x")
    with (tmp_path / "datasets" / ".cuts" / "cut" / "1").open("wb") as file:
        file.truncate(17 << 20)
    with pytest.raises(CorruptionError) as caught:
        Lake(objects).log().newest()
    assert caught.value.code == "CutsDamaged"


# --- who has come to rest where -----------------------------------------------------------


def test_who_has_reached_a_cut_is_listed(lake):
    a, b, log = lake.root("a"), lake.root("b"), lake.log()
    assert log.reached(7) == frozenset()
    log.put_reached(7, a)
    log.put_reached(7, a)
    log.put_reached(7, b)
    log.put_reached(70, b)
    lake.objects.put("reached/7/nonsense", b"")
    assert (lake.log().reached(7), lake.log().reached(70)) == ({a, b}, {b})
    assert log.newest().number == 0, "it is a hint, not a cut"


# --- folding ------------------------------------------------------------------------------


@pytest.fixture
def tens(monkeypatch):
    """Fold ten cuts instead of a thousand."""
    monkeypatch.setattr(log_module, "FOLD", 10)


def grown(lake: Lake, count: int) -> list[bytes]:
    a = lake.root("a")
    log = lake.log()
    found = []
    for _ in range(count):
        lake.append(a)
        found.append(log.record([a]).to_bytes())
    return found


def test_cuts_fold_and_are_the_same(lake, tens):
    found = grown(lake, 37)
    assert sorted(map(int, lake.objects.names("cut"))) == list(range(21, 38))
    assert sorted(lake.objects.names("folded"), key=int) == ["1", "11"]
    for log in (lake.log(), lake.log()):
        assert [cut.to_bytes() for cut in log.cuts()] == found
        assert [log.cut(n).to_bytes() for n in (1, 10, 11, 20, 21, 37)] == [
            found[n - 1] for n in (1, 10, 11, 20, 21, 37)
        ]
        assert [cut.number for cut in log.cuts(after=8, upto=23)] == list(range(9, 24))
    lake.append(dataset_id("a"))
    assert lake.log().record([dataset_id("a")]).number == 38


def test_folding_forgets_who_had_reached_what_is_folded(lake, tens):
    a = dataset_id("a")
    log = lake.log()
    for number in (3, 10, 11, 30):
        log.put_reached(number, a)
    grown(lake, 20)
    assert sorted(lake.objects.names("reached")) == [f"{n}/{a.removeprefix('did:odf:')}" for n in (11, 30)]


def test_the_newest_is_found_without_a_hint_over_what_is_folded(quick, tens):
    grown(quick, 95)
    quick.objects.remove("newest")
    assert quick.log().newest().number == 95


def test_a_reader_misses_no_cut_while_others_fold(quick, tens, monkeypatch):
    monkeypatch.setattr(log_module.CutLog, "_after", lambda *_: None)
    found = grown(quick, 30)
    steps = 0

    def reading(_verb, _name):
        nonlocal steps
        steps += 1
        watched.before = None
        assert [cut.to_bytes() for cut in quick.log().cuts()] == found
        assert quick.log().cut(7).to_bytes() == found[6]
        watched.before = reading

    watched = Watched(quick.objects, reading)
    assert quick.log(watched).fold() == 2
    assert steps > 40


def test_a_reader_is_not_confused_by_a_fold_between_any_two_of_its_questions(quick, tens, monkeypatch):
    monkeypatch.setattr(log_module.CutLog, "_after", lambda *_: None)
    found = grown(quick, 30)
    for at in range(1, 60):
        asked = 0

        def folding(_verb, _name, at=at):
            nonlocal asked
            asked += 1
            if asked == at:
                quick.log().fold()

        copy = Watched(quick.objects, folding)
        log = quick.log(copy)
        assert [cut.to_bytes() for cut in log.cuts()] == found
        assert log.newest().number == 30
        if asked >= at:
            # Undo the fold for the next question.
            for number, raw in enumerate(found[:20], 1):
                quick.objects.put(f"cut/{number}", raw)
            quick.objects.remove("folded/1", "folded/11")


def test_a_fold_that_stops_at_any_step_is_harmless_and_done_later(quick, tens, monkeypatch):
    monkeypatch.setattr(log_module.CutLog, "_after", lambda *_: None)
    found = grown(quick, 30)

    class Stopped(Exception):
        pass

    stopped = 0
    for at in range(1, 200):
        asked = 0

        def stopping(verb, _name, at=at):
            nonlocal asked
            if verb in ("put_new", "remove", "put"):
                asked += 1
                if asked == at:
                    raise Stopped

        try:
            quick.log(Watched(quick.objects, stopping)).fold()
        except Stopped:
            stopped += 1
        assert [cut.to_bytes() for cut in quick.log().cuts()] == found
        if asked < at:
            break
    assert stopped >= 2
    assert sorted(map(int, quick.objects.names("cut"))) == list(range(21, 31))


def test_some_removals_of_a_fold_that_stopped_are_harmless(quick, tens, monkeypatch):
    monkeypatch.setattr(log_module.CutLog, "_after", lambda *_: None)
    found = grown(quick, 30)
    quick.log().fold()
    for number in (1, 5, 9, 12):
        quick.objects.put(f"cut/{number}", found[number - 1])
    log = quick.log()
    assert [cut.to_bytes() for cut in log.cuts()] == found
    assert log.newest().number == 30
    log.fold()
    assert sorted(map(int, quick.objects.names("cut"))) == list(range(21, 31))


@pytest.mark.contract("cut:P3")
@pytest.mark.parametrize("dies", [False, True], ids=["goes on", "dies after its put"])
def test_a_number_is_not_given_again_to_who_slept_while_it_was_folded(quick, tens, dies):
    x, y = quick.root("x"), quick.root("y")
    quick.append(x)
    others: list[bytes] = []

    class Died(Exception):
        pass

    def sleeping(verb, name):
        if (verb, name) == ("put_new", "cut/1"):
            watched.before = dying if dies else None
            for _ in range(25):
                quick.append(y)
                others.append(quick.log().record([y]).to_bytes())
            assert "1" not in quick.objects.names("cut"), "it was folded and removed"

    def dying(verb, name):
        if (verb, name) == ("read", "folded/1"):
            raise Died

    watched = Watched(quick.objects, sleeping)
    slow = quick.log(watched)
    if dies:
        with pytest.raises(Died):
            slow.record([x])
        assert "1" in quick.objects.names("cut")
    else:
        assert slow.record([x]).number == 26
    for log in (quick.log(), quick.log()):
        assert [log.cut(n).to_bytes() for n in range(1, 26)] == others
        assert [cut.to_bytes() for cut in log.cuts(upto=25)] == others
    assert quick.log().record([x]).number == 26
    assert json.loads(others[0])["number"] == 1


def test_a_folded_object_that_is_damaged_is_named(quick, tens):
    grown(quick, 25)
    quick.objects.put("folded/1", b"{}")
    with pytest.raises(CorruptionError) as caught:
        quick.log().cut(3)
    assert caught.value.path.endswith("folded/1")
    assert quick.log().cut(22).number == 22


def test_a_thousand_is_the_number(quick):
    assert log_module.FOLD == 1_000
    recorded(quick, 2_000)
    assert quick.log().fold() == 1
    assert len(quick.objects.names("cut")) == 1_000
    assert (quick.log().newest().number, quick.log().cut(1).number, quick.log().cut(1000).number) == (
        2000,
        1,
        1000,
    )
