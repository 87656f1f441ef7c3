"""Current rows, changes and net differences of datasets with a key, with and without their state."""

from __future__ import annotations

import pickle
import random
import tempfile
from dataclasses import replace

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.dataset.read.histories import History
from tests.examples import examples
from trueline import merge
from trueline.chain.store.file import FileStore
from trueline.chain.store.store import Folder
from trueline.dataset.read import fold as folding
from trueline.errors import CorruptionError, InputError
from trueline.kernel.key_encoding import MergeKey, ranges

DATA = pa.schema({"id": pa.int64(), "name": pa.string(), "n": pa.float64()})
KEYED = [merge.snapshot("id"), merge.upsert("id"), merge.changelog("id")]


def row(key, name, n=0.0, op=None):
    found = {"id": key, "name": name, "n": n}
    return found if op is None else {"op": op, **found}


@pytest.fixture(params=[True, False], ids=["with state", "without"])
def history(request):
    """An upsert history: 1 stays, 2 changes twice, 3 goes, 4 goes and comes again."""
    history = History(DATA, merge.upsert("id"), with_state=request.param)
    history.merged([row(1, "a", op=0), row(2, "b", op=0), row(3, "c", op=0), row(4, "d", op=0)])
    history.merged([row(2, "B", op=0), row(3, "c", op=1), row(4, "d", op=1)])
    history.merged([row(4, "D", op=0), row(2, "BB", op=0), row(5, "e", op=0)], parts=2)
    history.store.reset()
    return history


def test_each_key_has_its_newest_row_in_key_order(history):
    assert history.view().to_arrow().to_pylist() == [row(1, "a"), row(2, "BB"), row(4, "D"), row(5, "e")]
    assert history.view().count() == 4
    assert history.view(at=history.ends[2]).to_arrow()["name"].to_pylist() == ["a", "B"]
    assert history.view(at=history.ends[1]).to_arrow()["name"].to_pylist() == ["a", "b", "c", "d"]


def test_columns_are_chosen_and_filtered_as_everywhere(history):
    view = history.view().filter("name >= 'D' and name <> 'a'").select("id")
    assert view.to_arrow()["id"].to_pylist() == [4, 5]
    assert history.view().select("name").limit(1).to_arrow().to_pylist() == [{"name": "a"}]


def test_a_filter_sees_current_rows_and_not_events(history):
    assert history.view().filter("name = 'b'").count() == 0
    assert history.view(system=True).filter("offset < 4").select("id").to_arrow()["id"].to_pylist() == [1]


def test_system_columns_are_those_of_the_event_that_set_the_row(history):
    found = history.view(system=True).select("offset", "op", "id").to_arrow().to_pylist()
    events = {event["offset"]: event for event in history.changes().to_arrow().to_pylist()}
    assert [each["id"] for each in found] == [1, 2, 4, 5]
    for each in found:
        assert events[each["offset"]]["id"] == each["id"]
    assert [each["op"] for each in found] == [0, 3, 0, 0]
    assert history.view(system=True).select("offset").to_arrow()["offset"].to_pylist() == [
        each["offset"] for each in found
    ]


def test_one_row_is_found_by_its_key(history):
    assert history.get(2) == history.get((2,)) == history.get({"id": 2}) == row(2, "BB")
    assert history.get(3) is None
    assert history.get(99) is None
    assert history.get(3, at=history.ends[1]) == row(3, "c")


@pytest.mark.parametrize("key", [None, (1, 2), {"name": "a"}, "two", [], {}])
def test_what_is_no_key_is_refused(history, key):
    with pytest.raises(InputError):
        history.get(key)


def test_changes_are_the_events_by_their_words(history):
    found = history.changes(after=history.ends[1], upto=history.ends[2]).to_arrow().to_pylist()
    assert [(e["offset"], e["op"], e["id"], e["name"]) for e in found] == [
        (4, "update_preimage", 2, "b"),
        (5, "update_postimage", 2, "B"),
        (6, "delete", 3, "c"),
        (7, "delete", 4, "d"),
    ]
    assert history.changes().schema.names == ("offset", "op", "system_time", "id", "name", "n")
    assert history.changes(after=history.ends[3]).count() == 0


def test_changes_are_filtered_by_word_and_offset(history):
    view = history.changes().filter("op = 'delete' and offset > 6")
    assert view.to_arrow()["id"].to_pylist() == [4]
    assert history.changes().select("op").count() == history.changes().count() == 12


def test_the_difference_is_net(history):
    def net(a, b=None):
        return [(e["op"], e["id"], e["name"]) for e in history.diff(a, b).to_arrow().to_pylist()]

    assert net(history.ends[1]) == [
        ("update_preimage", 2, "b"),
        ("update_postimage", 2, "BB"),
        ("delete", 3, "c"),
        ("update_preimage", 4, "d"),
        ("update_postimage", 4, "D"),
        ("insert", 5, "e"),
    ]
    assert net(history.ends[0], history.ends[1])[0] == ("insert", 1, "a")
    assert net(history.ends[3]) == net(history.ends[2], history.ends[2]) == []
    with pytest.raises(InputError, match="swap"):
        history.diff(history.ends[2], history.ends[1])


def test_a_difference_reads_only_what_is_between(history):
    view = history.diff(history.ends[2])
    history.store.reset()
    assert view.count() > 0
    assert history.store.gets[Folder.DATA] == 2
    assert history.store.gets[Folder.CHECKPOINTS] == 0


@pytest.mark.parametrize("strategy", KEYED, ids=lambda strategy: type(strategy).__name__)
@pytest.mark.parametrize("with_state", [True, False], ids=["with state", "without"])
def test_ranges_of_keys_have_the_changes_of_the_whole(tmp_path, strategy, with_state):
    history = History(DATA, strategy, with_state=with_state, store=FileStore(tmp_path))
    random_ = random.Random(5)
    for _ in range(4):
        rows = [row(key, random_.choice("ab"), op=0) for key in random_.sample(range(60), 40)]
        if isinstance(strategy, merge.Snapshot):
            rows = [{name: value for name, value in each.items() if name != "op"} for each in rows]
        history.merged(rows)
    whole = history.diff(history.ends[2]).node.source
    names = whole.schema.names
    expected = [each for batch in whole.batches(names, {}) for each in batch.to_pylist()]
    assert len(expected) > 20
    assert whole.travels == (with_state or not isinstance(strategy, merge.Changelog))
    pieces = whole.pieces()
    if not whole.travels:
        assert pieces is None
        return
    found = []
    for key_range in ranges(whole.after.merge_key.encode(pa.table({"id": [13, 14, 40]})).to_pylist()):
        piece = pickle.loads(pickle.dumps(replace(pieces[0], key_range=key_range)))
        found += [each for batch in piece.batches(names, {}) for each in batch.to_pylist()]
    assert found == expected


def test_a_key_that_changed_and_changed_back_did_not_change(history):
    history.merged([row(1, "x", op=0)])
    history.merged([row(1, "a", op=0)])
    assert history.diff(history.ends[3]).count() == 0
    assert history.diff(history.ends[3]).to_arrow().num_rows == 0


def test_with_state_no_slice_is_read():
    history = History(DATA, merge.upsert("id"), with_state=True)
    for number in range(20):
        history.merged([row(number, "a"), row(number + 1, "b")])
    history.store.reset()
    assert history.view().count() == 21
    assert history.get(7) == row(7, "a")
    assert history.view(system=True).select("id", "offset").to_arrow().num_rows == 21
    assert history.store.gets[Folder.DATA] == 0


def test_lost_state_is_computed_anew():
    history = History(DATA, merge.upsert("id"), with_state=True)
    history.merged([row(1, "a"), row(2, "b")])
    history.merged([row(2, "B")])
    whole = history.view().to_arrow()
    history.store.delete(Folder.CHECKPOINTS, history.state.files[0].hash)
    assert history.view().to_arrow() == whole
    assert "all its events" in history.view().explain()
    assert history.get(2) == row(2, "B")


def test_a_lost_checkpoint_is_no_loss():
    history = History(DATA, merge.upsert("id"), with_state=True)
    history.merged([row(1, "a")])
    history.store.delete(Folder.CHECKPOINTS, history.chain.tail().checkpoint)
    assert history.view().to_arrow().to_pylist() == [row(1, "a")]


def test_a_column_added_later_is_missing_in_older_state(history):
    history.evolve(pa.schema([*DATA, pa.field("more", pa.int64())]))
    assert history.view().to_arrow()["more"].to_pylist() == [None] * 4
    history.merged(pa.table({"id": [2], "name": ["z"], "n": [0.0], "more": pa.array([7])}))
    assert history.view().select("id", "more").to_arrow()["more"].to_pylist() == [None, 7, None, None]
    assert history.diff(history.ends[3]).to_arrow()["more"].to_pylist() == [None, 7]


def test_a_changelog_is_believed_for_what_is_and_not_for_what_was():
    history = History(DATA, merge.changelog("id"))
    history.merged([row(1, "a", op=0)])
    history.merged([row(1, "b", op=0), row(2, "x", op=1)])
    assert history.view().to_arrow().to_pylist() == [row(1, "b")]
    found = history.diff(history.ends[1]).to_arrow().to_pylist()
    assert [(e["op"], e["name"]) for e in found] == [("update_preimage", "a"), ("update_postimage", "b")]


def test_a_ledger_keeps_every_record_and_finds_one_by_key():
    for with_state in (True, False):
        history = History(DATA, merge.ledger("id"), with_state=with_state)
        history.merged([row(2, "b"), row(1, "a")])
        history.merged([row(3, "c"), row(1, "ignored")])
        assert history.view().to_arrow()["id"].to_pylist() == [2, 1, 3]
        assert history.get(1) == row(1, "a")
        assert history.get(9) is None
        assert [e["op"] for e in history.diff(history.ends[1]).to_arrow().to_pylist()] == ["insert"]


def test_keys_of_several_columns_and_types():
    data = pa.schema({"city": pa.string(), "year": pa.int32(), "people": pa.int64()})
    history = History(data, merge.upsert(["year", "city"]))
    history.merged([{"city": "b\0c", "year": 1, "people": 1}, {"city": "b", "year": 1, "people": 2}])
    history.merged([{"city": "b", "year": 1, "people": 3}])
    assert history.view().to_arrow()["people"].to_pylist() == [3, 1]
    assert history.get((1, "b"))["people"] == 3
    assert history.get({"city": "b\0c", "year": 1})["people"] == 1
    with pytest.raises(InputError, match="2 columns"):
        history.get("b")


def test_an_operation_that_is_not_known_is_damage():
    history = History(DATA, merge.changelog("id"))
    history.add(pa.table({"op": [7], "id": [1]}))
    with pytest.raises(CorruptionError, match="unknown operations"):
        history.changes().to_arrow()


# --- large histories -----------------------------------------------------------------


@pytest.mark.parametrize("rows_at_once", [2, 5, 1000])
def test_what_does_not_fit_into_memory_goes_through_sorted_runs_and_gives_the_same(monkeypatch, rows_at_once):
    history = History(DATA, merge.upsert("id"))
    for number in range(12):
        history.merged(
            [row(k * 7 % 31, f"{number}-{k}", op=int(k % 5 == number % 5)) for k in range(number, 30)]
        )
    whole, net = history.view(system=True).to_arrow(), history.diff(history.ends[4]).to_arrow()
    runs = []
    kept = folding.sort_run
    monkeypatch.setattr(folding, "sort_run", lambda *a, **k: runs.append(a) or kept(*a, **k))
    monkeypatch.setattr(folding, "ROWS_AT_ONCE", rows_at_once)
    assert history.view(system=True).to_arrow() == whole
    assert history.diff(history.ends[4]).to_arrow() == net
    assert bool(runs) == (rows_at_once < 60)


def test_runs_lie_in_a_folder_that_goes_with_whoever_reads(monkeypatch, tmp_path):
    """Its owner holds a lock, so that the folder of one that was killed is removed by the next."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    batch = pa.record_batch({"id": [3, 1, 2, 1], "offset": [0, 1, 2, 3]})
    key = MergeKey(("id",))
    reading = folding.folded(
        [batch] * 3, batch.schema, key=key, offset="offset", keep=folding.last, rows_at_once=2
    )
    first = next(reading)
    assert first["id"].to_pylist() == [1, 2]
    assert len(list(tmp_path.glob("trueline-*/owner.lock"))) == 1
    assert [table["id"].to_pylist() for table in reading] == [[3]]
    assert list(tmp_path.iterdir()) == []


# --- against a slow reading ------------------------------------------------------------

ROWS = st.lists(
    st.tuples(st.integers(0, 6), st.sampled_from("abc"), st.sampled_from([0.0, float("nan"), None])),
    max_size=6,
    unique_by=lambda r: r[0],
)


def same(found: pa.Table, expected: list[dict]) -> bool:
    """Equal with NaN equal to NaN."""
    return repr(found.to_pylist()) == repr(expected)


@settings(max_examples=examples(40))
@given(
    st.sampled_from([merge.snapshot("id"), merge.upsert("id")]),
    st.lists(ROWS, min_size=1, max_size=5),
    st.booleans(),
    st.integers(1, 2),
)
def test_state_events_and_a_dictionary_agree_at_every_commit(strategy, batches, with_state, parts):
    history = History(DATA, strategy, with_state=with_state)
    current: dict[int, dict] = {}
    seen = [(history.ends[0], {})]
    for batch in batches:
        rows = [row(*each) for each in batch]
        if isinstance(strategy, merge.Snapshot):
            current = {}
        current = current | {each["id"]: each for each in rows}
        history.merged(pa.Table.from_pylist(rows, schema=DATA), parts=parts if len(rows) > 1 else 1)
        seen.append((history.chain.head, dict(current)))
    for at, expected in seen:
        rows = [expected[key] for key in sorted(expected)]
        assert same(history.view(at).to_arrow(), rows)
        for key in range(7):
            assert repr(history.get(key, at)) == repr(expected.get(key))
    for index, (a, before) in enumerate(seen):
        for b, after in seen[index:]:
            net = history.diff(a, b).to_arrow().to_pylist()
            assert repr(net) == repr(list(difference(before, after)))


def difference(before, after):
    for key in sorted({*before, *after}):
        old, new = before.get(key), after.get(key)
        if repr(old) == repr(new):
            continue
        if old is not None:
            yield {"op": "update_preimage" if new else "delete", **old}
        if new is not None:
            yield {"op": "update_postimage" if old else "insert", **new}


# --- late ----------------------------------------------------------------------------------


@pytest.fixture
def times(tmp_path):
    """Two commits with watermarks; the second, of three parts, has records before and after the first's."""
    schema = pa.schema({"t": pa.timestamp("ms", "UTC"), "x": pa.int64()})
    history = History(schema, event_time="t", store=FileStore(tmp_path))

    def at(*seconds):
        return pa.table(
            {
                "t": pc.assume_timezone(pa.array(seconds, pa.timestamp("s")), "UTC"),
                "x": range(len(seconds)),
            }
        )

    history.add(at(5, 100, None), watermark="1970-01-01T00:01:40Z")
    history.add(at(99, 100, 101, 1, None, 500), parts=3, watermark="1970-01-01T00:08:20Z")
    history.describe("no data")
    history.add(at(499, 500), watermark="1970-01-01T00:08:20Z")
    return history


def test_late_is_decided_by_the_watermark_before_the_commit(times):
    late = times.changes(system=True).to_arrow()["late"].to_pylist()
    assert late == [False] * 3 + [True, False, False, True, False, False] + [True, False]


def test_late_is_the_same_whatever_else_is_read(times):
    view = times.changes(after=times.ends[1], system=True)
    assert view.select("late").to_arrow()["late"].to_pylist()[:2] == [True, False]
    assert view.filter("late").select("x").to_arrow()["x"].to_pylist() == [0, 3, 0]
    assert view.filter("t < timestamp'1970-01-01 00:01:40'").select("late").to_arrow()[
        "late"
    ].to_pylist() == [
        True,
        True,
    ]
    assert "late" not in times.changes().schema


@pytest.mark.contract("derive:V27")
@pytest.mark.parametrize("parts", [0, 2, 5])
def test_late_is_the_same_where_some_slices_are_read_in_other_processes(times, parts):
    whole = times.changes(system=True).to_arrow().select(["x", "late", "op"])
    source = times.changes(system=True).node.source
    pieces = pickle.loads(pickle.dumps(source.pieces(parts=parts)))
    assert len(pieces) >= min(parts, 1)
    for columns in (["x", "late", "op"], ["late"], ["op"], ["x"]):
        read = [batch for piece in pieces for batch in piece.batches(columns, {})]
        assert pa.Table.from_batches(read) == whole.select(columns)
        assert all(
            piece.schema.field(name) == source.schema.field(name) for piece in pieces for name in columns
        )
