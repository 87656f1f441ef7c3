"""Files are prepared by a run: the same as one step after another, whatever worked ahead."""

from __future__ import annotations

import random
import shutil
import threading
from types import SimpleNamespace

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.records import column, slices
from trueline.chain.block import commit_record
from trueline.chain.instant import Instant
from trueline.dataset.prepare import enrich, mask, parse, repair, validate
from trueline.dataset.prepare.preparation import Preparation
from trueline.errors import BrokenFile, CheckFailed, InputError, RunFailed, SchemaError
from trueline.readers import CsvReader
from trueline.run import ERASED, Inline, Step, Threads

NOON = Instant.parse("2030-11-16T12:00:00Z")


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    dice = random.Random(7)
    for number in range(12):
        rows = [
            f"{number * 10 + n},{dice.choice(['Bern', ' Bern', 'Thun'])},{dice.randrange(-1, 50)},u{n}@x.ch\n"
            for n in range(dice.randrange(1, 9))
        ]
        (folder / f"{number:02}.csv").write_text("id,city,price,email\n" + "".join(rows))
    return folder


def steps():
    return [
        validate("price >= 0", drop=True),
        repair(city="trim(city)"),
        mask("email", key="secret"),
        enrich([{"city": "Bern", "canton": "BE"}, {"city": "Thun", "canton": "BE"}], on="city"),
        Step(map=with_path, name="with_path"),
    ]


def with_path(path, table):
    name = path.rpartition("/")[2]
    return table if name > "05" else table.append_column("file", pa.array([name] * table.num_rows))


class Watching:
    def __init__(self):
        self.events = []

    def event(self, event):
        self.events.append(event)

    def of(self, what):
        return [event for event in self.events if event.what == what]


def broken(inbox):
    (inbox / "05.csv").write_bytes(b"\x1f\x8b and no gzip")


# --- the same as one after another --------------------------------------------------------


@pytest.mark.parametrize(
    "executor", [Threads(8), Threads(1), *(Inline(seed, workers=6) for seed in range(4))], ids=str
)
def test_rows_and_hashes_are_those_of_one_step_after_another(tmp_path, inbox, executor, monkeypatch):
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("sales", merge=tl.merge.ledger("id"))
    shutil.copytree(tmp_path / "ws", tmp_path / "copy")
    heads = []
    for name, where, deliberate in (("ws", executor, False), ("copy", Inline(), True)):
        with tl.open(tmp_path / name) as ws, monkeypatch.context() as patch:
            ws.clock = lambda: NOON
            patch.setattr(Preparation.of.__func__, "__kwdefaults__", {"deliberate": deliberate})
            commit = ws["sales"].append(str(inbox / "*.csv"), steps=steps(), executor=where)
            assert ws["sales"].verify().ok
            heads.append((ws["sales"].head, [part.physical_hash for part, _ in slices(ws["sales"])]))
    assert commit.steps == ("parse", "validate", "repair", "mask", "enrich", "with_path")
    assert heads[0] == heads[1]


def test_what_comes_out_is_what_the_steps_make_of_each_file_in_turn(ws, inbox):
    ds = ws.create("sales")
    commit = ds.append(str(inbox / "*.csv"), steps=steps())
    expected = []
    for path in sorted(inbox.iterdir()):
        table = tl.View.read_csv(str(path)).to_arrow()
        for step in steps():
            table = step.map(str(path), table)
        expected += table.to_pylist()
    found = ds.view().to_arrow().to_pylist()
    assert [{k: v for k, v in row.items() if v is not None} for row in found] == expected
    assert commit.rows == len(expected)
    assert len(commit.files) == 12


def test_files_prepared_by_steps_that_change_nothing_are_stored_as_without(ws, inbox):
    plain, prepared = ws.create("plain"), ws.create("prepared")
    ws.clock = lambda: NOON
    plain.append(str(inbox / "*.csv"))
    prepared.append(str(inbox / "*.csv"), steps=[validate("id >= 0"), repair(none="x")])
    assert [p.physical_hash for p, _ in slices(plain)] == [p.physical_hash for p, _ in slices(prepared)]


def test_later_steps_work_ahead_on_a_file_that_earlier_ones_are_still_at(ws, inbox):
    later = threading.Event()

    def slow(path, table):
        assert later.wait(60)
        return table

    def quick(path, table):
        later.set()
        return table

    seen = Watching()
    ws.create("sales").append(
        str(inbox / "00.csv"),
        steps=[Step(map=slow, name="slow"), Step(map=quick, name="quick")],
        observers=[seen],
    )
    assert [event.speculative for event in seen.of("started") if event.step == 2] == [True]
    assert not seen.of("superseded")


def test_nothing_is_begun_on_a_file_that_is_not_parsed(ws, inbox):
    seen = Watching()
    ws.create("sales").append(str(inbox / "*.csv"), steps=steps(), observers=[seen])
    parsed = set()
    for event in seen.events:
        if event.what == "changed" and event.step == 0:
            parsed.add(event.key)
        if event.what == "started" and event.step > 0:
            assert event.key in parsed
    assert len(parsed) == 12


# --- bad files ----------------------------------------------------------------------------


def test_a_broken_file_refuses_all_by_default(ws, inbox):
    broken(inbox)
    ds = ws.create("sales")
    head = ds.head
    with pytest.raises(BrokenFile, match=r"05\.csv"):
        ds.append(str(inbox / "*.csv"), steps=steps())
    assert ds.head == head


def test_a_broken_file_can_be_left_out_and_is_taken_in_when_it_is_mended(ws, inbox):
    whole = (inbox / "05.csv").read_bytes()
    broken(inbox)
    ds = ws.create("sales")
    commit = ds.append(str(inbox / "*.csv"), steps=[parse(on_error="skip_key"), *steps()])
    assert (len(commit.files), list(commit.left_out)) == (11, [str(inbox / "05.csv")])
    assert "gzip" in commit.left_out[str(inbox / "05.csv")]
    assert "left out: " in commit.told
    assert not [i for i in column(ds, "id") if 50 <= i < 60]
    (inbox / "05.csv").write_bytes(whole)
    again = ds.append(str(inbox / "*.csv"), steps=[parse(on_error="skip_key"), *steps()])
    assert again.files == (str(inbox / "05.csv"),)
    assert len(again.skipped) == 11


def test_a_file_that_breaks_a_condition_is_left_out_by_the_policy_of_that_step(ws, inbox):
    (inbox / "00.csv").write_text("id,city,price,email\n1,Bern,-5,a@b\n")
    ds = ws.create("sales")
    with pytest.raises(CheckFailed, match=r"00\.csv"):
        ds.append(str(inbox / "00.csv"), steps=[validate("price >= 0")])
    commit = ds.append(str(inbox / "*.csv"), steps=[validate("price >= -1", on_error="skip_key")])
    assert list(commit.left_out) == [str(inbox / "00.csv")]
    assert ds.append([str(inbox / "00.csv")], steps=[validate("price >= 0", on_error="skip_key")]).rows == 0


def test_too_many_bad_cells_are_the_files_own_failure(ws, inbox):
    (inbox / "03.csv").write_text("id,city,price,email\n" + "x,Bern,y,a@b\n" * 20)
    commit = ws.create("sales", schema=pa.schema({"id": pa.int64(), "price": pa.int64()})).append(
        [str(inbox / "02.csv"), str(inbox / "03.csv")],
        steps=[parse(max_bad=0.5, on_error="skip_key"), drop_columns("city", "email")],
    )
    assert list(commit.left_out) == [str(inbox / "03.csv")]


def drop_columns(*names):
    return Step(map=lambda path, table: table.drop_columns([n for n in names if n in table.column_names]))


def test_a_step_that_fails_can_be_left_out_for_all_files_and_that_is_told(ws, inbox):
    def fail(path, table):
        if path.endswith("07.csv"):
            raise ZeroDivisionError("seven")
        return table.slice(0, 0)

    ds = ws.create("sales")
    with pytest.raises(RunFailed, match=r"step 1 \(fail\) failed on key .*07.csv.*seven"):
        ds.append(str(inbox / "*.csv"), steps=[Step(map=fail, name="fail")])
    with tl.console.use(tl.console.CapturedConsole()) as seen:
        commit = ds.append(str(inbox / "*.csv"), steps=[Step(map=fail, name="fail", on_error="skip_step")])
    assert (commit.steps, commit.rows > 0, dict(commit.left_out)) == (("parse",), True, {})
    assert [item.code for item in seen.items] == ["StepSkipped"]


def test_a_snapshot_is_never_taken_in_without_one_of_its_files(ws, inbox):
    broken(inbox)
    ds = ws.create("stock", merge=tl.merge.snapshot("id"))
    with pytest.raises(InputError) as refused:
        ds.append(str(inbox / "*.csv"), steps=[parse(on_error="skip_key"), *steps()])
    assert (refused.value.code, ds.info.rows) == ("IncompleteSnapshot", 0)


def test_when_every_file_is_left_out_nothing_is_recorded(ws, inbox):
    ds = ws.create("sales")
    head = ds.head
    commit = ds.append(str(inbox / "*.csv"), steps=[validate("price > 100", on_error="skip_key")])
    assert (commit.rows, len(commit.left_out), ds.head) == (0, 12, head)


# --- what else may come -------------------------------------------------------------------


def test_rows_may_move_between_files_and_a_file_may_lose_all(ws, inbox):
    first, last = str(inbox / "00.csv"), str(inbox / "11.csv")

    def gathered(items):
        tables = dict(items)
        yield None, first, pa.concat_tables([tables[key] for key in sorted(tables)])
        for key in tables:
            if key != first:
                yield None, key, ERASED

    ds = ws.create("sales")
    commit = ds.append([first, last], steps=[Step(process=gathered, name="gathered", eager=False)])
    count = sum(len((inbox / name).read_text().splitlines()) - 1 for name in ("00.csv", "11.csv"))
    assert (commit.rows, commit.files) == (count, (first, last))
    assert ds.verify().ok


def test_the_offsets_of_a_file_are_those_of_the_rows_it_kept(ws, inbox):
    ds = ws.create("sales")
    commit = ds.append(str(inbox / "*.csv"), steps=[validate("price > 20", drop=True), steps()[-1]])
    noted = commit_record(ds.chain.block(commit.block)).notes["files"]
    assert sum(file["rows"] for file in noted) == commit.rows
    ids = column(ds, "id")
    for file in noted:
        number = int(file["name"].rpartition("/")[2][:2])
        first, last = file.get("offsets", (0, -1))
        assert [i // 10 for i in ids[first : last + 1]] == [number] * file["rows"]


def test_rows_for_what_is_no_file_are_refused(ws, inbox):
    split = Step(flat_map=lambda path, table: [("elsewhere", table)], name="split")
    with pytest.raises(InputError) as refused:
        ws.create("sales").append(str(inbox / "00.csv"), steps=[split])
    assert refused.value.code == "UnknownFile"


def test_a_step_that_makes_no_table_is_told(ws, inbox):
    with pytest.raises(InputError) as refused:
        ws.create("sales").append(
            str(inbox / "00.csv"), steps=[Step(map=lambda path, table: 7, name="seven")]
        )
    assert refused.value.code == "NotATable"
    with pytest.raises(SchemaError, match="do not fit together"):
        ws.create("other").append(
            str(inbox / "0[01].csv"),
            steps=[
                Step(
                    map=lambda p, t: t.append_column(
                        "x", pa.array([p if p.endswith("00.csv") else 1] * len(t))
                    )
                )
            ],
        )


def test_steps_may_make_columns_of_the_dataset_from_files_that_have_none(ws, inbox):
    ds = ws.create("named", schema=pa.schema({"number": pa.int64()}))
    ds.append(
        str(inbox / "00.csv"),
        steps=[Step(map=lambda path, table: table.select(["id"]).rename_columns(["number"]))],
    )
    assert ds.info.rows > 0


def test_operations_go_along_with_prepared_rows(ws, tmp_path):
    (tmp_path / "changes.csv").write_text("op,id,city\n0,1, Bern\n0,2,Thun\n1,2,Thun\n")
    ds = ws.create("cities", merge=tl.merge.changelog("id"))
    ds.append(str(tmp_path / "changes.csv"), steps=[repair(city="trim(city)")])
    assert ds.view().to_arrow().to_pylist() == [{"id": 1, "city": "Bern"}]


def test_tables_are_prepared_too_and_keep_the_types_of_the_dataset(ws):
    ds = ws.create("sales", schema=pa.schema({"id": pa.int32(), "city": pa.string()}))
    commit = ds.append([{"id": 1, "city": " Bern"}], steps=[repair(city="trim(city)")])
    assert (commit.steps, ds.get({"id": 1})["city"]) == (("repair",), "Bern")
    with pytest.raises(CheckFailed):
        ds.append(pa.table({"id": [-1]}), steps=[validate("id > 0", on_error="skip_key")])


def test_texts_of_masked_columns_are_nowhere_in_the_dataset(ws, tmp_path):
    (tmp_path / "a.csv").write_text("id,pin\n" + "".join(f"{n},{n}\n" for n in range(20)) + "7,topsecret\n")
    known = pa.schema({"id": pa.int64(), "pin": pa.int64()})
    ds = ws.create("numbers", schema=known)
    commit = ds.append(str(tmp_path / "a.csv"), steps=[mask("pin", how="missing")], max_bad=5)
    assert commit.bad == {"pin": 1}
    assert commit.bad_cells().to_arrow().to_pylist() == [
        {"file": str(tmp_path / "a.csv"), "row": 20, "line": 22, "column": "pin", "text": None}
    ]
    stored = [path.read_bytes() for path in (tmp_path / "ws").rglob("*") if path.is_file()]
    assert not [data for data in stored if b"topsecret" in data]


@pytest.mark.parametrize("wrong", [[7], [steps()[0], parse()]])
def test_what_is_no_preparation_is_refused(ws, inbox, wrong):
    with pytest.raises(InputError):
        ws.create("sales").append(str(inbox / "00.csv"), steps=wrong)


def test_of_several_files_that_cannot_be_parsed_the_first_is_named(ws, tmp_path, monkeypatch):
    """The first is held back until the second has failed."""
    for name in "abc":
        (tmp_path / f"{name}.csv").write_text(f"x\n{ord(name)}\n")
    failed, read = threading.Event(), CsvReader.read

    def held(self, source, schema, **options):
        if source.path.endswith("b.csv"):
            failed.wait(20)
        if not source.path.endswith("a.csv"):
            raise InputError("cannot be read", remedy="fix it", path=source.path)
        return read(self, source, schema, **options)

    def seen(event):
        if event.what == "failed" and event.key.endswith("c.csv"):
            failed.set()

    monkeypatch.setattr(CsvReader, "read", held)
    steps = [Step(map=lambda key, value: value, name="same")]
    with pytest.raises(InputError, match="cannot be read") as caught:
        ws.create("x", schema=pa.schema({"x": pa.int64()})).append(
            str(tmp_path / "*.csv"), steps=steps, observers=[SimpleNamespace(event=seen)]
        )
    assert caught.value.path.endswith("b.csv")
