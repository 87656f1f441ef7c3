"""Columns a dataset does not have are asked for; every file is held against the dataset by itself."""

from __future__ import annotations

import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from trueline.cli import main
from trueline.dataset.append import stream
from trueline.errors import DatasetExists, InputError, PullError, SchemaError
from trueline.readers import reader as reading
from trueline.run import Step

ROWS = pa.table({"id": [1], "price": [9.5]})
MORE = pa.table({"id": [2], "price": [1.5], "colour": ["red"]})


@pytest.fixture
def ds(ws):
    dataset = ws.create("sales")
    dataset.append(ROWS)
    return dataset


@pytest.fixture
def inbox(tmp_path):
    folder = tmp_path / "inbox"
    folder.mkdir()
    return folder


def written(folder, name, text):
    (folder / name).write_text(text)
    return folder / name


def refused(ds, data, **how):
    head = ds.head
    with pytest.raises(SchemaError) as caught:
        ds.append(data, **how)
    assert ds.head == head
    return caught.value


# --- asked for --------------------------------------------------------------------------


def as_csv(inbox):
    return written(inbox, "more.csv", "id,price,colour\n2,1.5,red\n")


def as_json(inbox):
    return written(inbox, "more.jsonl", '{"id": 2, "price": 1.5}\n{"id": 3, "colour": "red"}\n')


def as_parquet(inbox):
    pq.write_table(MORE, inbox / "more.parquet")
    return inbox / "more.parquet"


def as_stream(inbox):
    return MORE.to_reader()


def as_batches(inbox):
    return iter([MORE, MORE])


def as_pandas(inbox):
    return pd.DataFrame({"id": [2], "price": [1.5], "colour": ["red"]})


def as_rows(inbox):
    return [{"id": 2, "price": 1.5}, {"id": 3, "colour": "red"}]


def as_view(inbox):
    return tl.View.from_arrow(MORE)


FORMS = [as_csv, as_json, as_parquet, as_stream, as_batches, as_pandas, as_rows, as_view, lambda _: MORE]


@pytest.mark.parametrize("form", FORMS)
def test_a_new_column_is_refused_added_or_ignored_however_rows_come(ds, inbox, form, monkeypatch):
    if form is as_batches:
        monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 0)
    error = refused(ds, form(inbox))
    assert "colour" in error.problem
    assert 'new_columns="add"' in error.remedy
    ignored = ds.append(form(inbox), new_columns="ignore")
    assert (ignored.ignored_columns, ds.columns) == (("colour",), ("id", "price"))
    assert ds.commit().ignored_columns == ("colour",), "the commit keeps it"
    assert "ignored column: colour" in ignored.told
    added = ds.append(form(inbox), new_columns="add", resend=True) if form in FORMS[:3] else None
    if added is None or not added.rows:
        other = ds.workspace.create("other")
        other.append(ROWS)
        added, ds = other.append(form(inbox), new_columns="add"), other
    assert (ds.columns, added.ignored_columns) == (("id", "price", "colour"), ())
    assert ds.view().to_arrow()["colour"].to_pylist()[-1] == "red"
    assert ds.verify().ok


def test_a_new_column_of_a_spark_frame_is_refused_added_or_ignored(ds, spark):
    frame = spark.createDataFrame([(2, 1.5, "red")], "id bigint, price double, colour string")
    assert "+ colour" in refused(ds, frame).problem
    assert ds.append(frame, new_columns="ignore").ignored_columns == ("colour",)
    assert ds.columns == ("id", "price")
    ds.append(frame, new_columns="add")
    assert ds.view().to_arrow()["colour"].to_pylist() == [None, None, "red"]


def with_colour(path, table):
    return table.append_column("colour", pa.array(["red"] * len(table)))


def test_a_new_column_that_steps_make_is_refused_by_the_name_of_the_file(ds, inbox):
    file, steps = written(inbox, "a.csv", "id,price\n2,1.5\n"), [Step(map=with_colour, name="colour")]
    assert "a.csv" in refused(ds, file, steps=steps).problem
    assert "colour" in refused(ds, MORE, steps=[Step(map=lambda path, table: table, name="same")]).problem
    assert ds.append(file, steps=steps, new_columns="ignore").ignored_columns == ("colour",)
    ds.append(written(inbox, "b.csv", "id,price\n3,1.5\n"), steps=steps, new_columns="add")
    assert ds.view().to_arrow()["colour"].to_pylist() == [None, None, "red"]


def test_a_pull_asks_too(ws, inbox):
    written(inbox, "a.csv", "id,price\n1,9.5\n")
    ds = ws.create("sales", source=inbox / "*.csv")
    ws.pull()
    written(inbox, "b.csv", "id,price,colour\n2,1.5,red\n")
    with pytest.raises(PullError, match=r"b\.csv has a column that the dataset does not have"):
        ws.pull()
    assert ws.pull(new_columns="add").rows == 1
    assert ds.columns == ("id", "price", "colour")


def test_what_the_dataset_was_created_with_holds_and_is_part_of_its_definition(ws, inbox):
    written(inbox, "a.csv", "id\n1\n")
    ds = ws.create("sales", source=inbox, new_columns="add")
    ws.pull()
    written(inbox, "b.csv", "id,colour\n2,red\n")
    assert ws.pull().rows == 1
    assert ds.columns == ("id", "colour")
    assert ws.create("sales", source=inbox, new_columns="add").head == ds.head
    with pytest.raises(DatasetExists, match="new_columns: it is 'add', asked for is 'error'"):
        ws.create("sales", source=inbox)
    own = ws.create("own", new_columns="ignore")
    own.append(ROWS)
    assert own.append(MORE).ignored_columns == ("colour",)
    refused(own, MORE, new_columns="error")


def test_other_words_are_refused(ws, ds):
    for ask in (lambda: ds.append(ROWS, new_columns="maybe"), lambda: ws.create("x", new_columns="drop")):
        with pytest.raises(InputError, match="new_columns is") as caught:
            ask()
        assert caught.value.remedy == 'give "error", "add" or "ignore"'


def test_the_command_line_asks_too(tmp_path, inbox, capsys):
    shop = ["-C", str(tmp_path / "shop")]
    good = str(written(inbox, "a.csv", "id,price\n1,9.5\n"))
    more = str(as_csv(inbox))
    assert main(["init", shop[1]]) == main([*shop, "create", "sales"]) == 0
    assert main([*shop, "ingest", "sales", good]) == 0
    assert main([*shop, "ingest", "sales", more]) == 2
    assert "--new-columns add" in capsys.readouterr().err
    assert main([*shop, "ingest", "sales", more, "--new-columns", "add"]) == 0
    assert main([*shop, "create", "other", "--new-columns", "perhaps"]) == 2
    assert main([*shop, "create", "other", "--new-columns", "ignore"]) == 0
    capsys.readouterr()
    assert main([*shop, "ingest", "other", good]) == main([*shop, "ingest", "other", more]) == 0
    assert "ignored column: colour" in capsys.readouterr().out


# --- what is meant ------------------------------------------------------------------------


def test_the_error_shows_the_difference_and_a_near_name(ds, inbox):
    file = written(inbox, "a.csv", "id,prise\n2,1.5\n")
    error = refused(ds, file)
    assert error.differences == (
        "+ prise: is not a column of the dataset; did you mean price?",
        "- price: is missing",
    )
    assert str(file) in error.problem
    error = refused(ds, pa.table({"id": [2], "prise": [1.5]}))
    assert "+ prise: Float64 is not a column of the dataset; did you mean price?" in error.problem


def test_rows_of_other_columns_do_not_go_into_a_declared_schema(ws):
    ds = ws.create("x", schema=pa.schema({"id": pa.int64()}))
    for new in (None, "add", "ignore"):
        assert refused(ds, [{"foo": 1}], new_columns=new).code == "NoSharedColumn"
    assert "the dataset has id" in refused(ds, [{"foo": 1}]).remedy


def test_the_event_time_may_come_with_a_later_file(ds, inbox):
    ds.append(written(inbox, "a.csv", "id,event_time\n2,2026-11-13 10:00\n"))
    assert ds.view().to_arrow()["event_time"].null_count == 1


# --- case twins ---------------------------------------------------------------------------


def test_a_column_that_differs_only_by_case_is_never_new(ds):
    twin = pa.table({"id": [2], "Price": [1.5]})
    for new in (None, "add", "ignore"):
        error = refused(ds, twin, new_columns=new)
        assert (error.code, error.remedy) == (
            "CaseTwin",
            "rename it to 'price' if it is the same, else to something else",
        )
    both = pa.table({"id": [2], "price": [1.0], "Price": [1.5]})
    refused(ds, both, new_columns="add")
    assert ds.append(both, new_columns="ignore").ignored_columns == ("Price",)


def test_a_first_table_and_a_schema_have_no_twins(ws):
    twins = pa.table({"x": [1], "X": [2]})
    ds = ws.create("x")
    assert refused(ds, twins).code == "CaseTwin"
    with pytest.raises(SchemaError, match="only by case"):
        ws.create("y", schema=twins.schema)
    refused(ds.workspace.create("z"), [{"a": 1}, {"A": 2}])


def test_twins_that_are_there_keep_working(ws, monkeypatch):
    from trueline.dataset.append import intake

    ds = ws.create("old")
    twins = pa.table({"x": [1], "X": [2]})
    with monkeypatch.context() as earlier:
        earlier.setattr(intake, "refuse_case_twins", lambda *_, **__: None)
        ds.append(twins)
    ds.append(twins)
    ds.append(pa.table({"X": [3], "y": [1]}), new_columns="add")
    assert ds.view().to_arrow()["X"].to_pylist() == [2, 2, 3]
    assert ds.verify().ok


# --- file by file ---------------------------------------------------------------------------


@pytest.mark.parametrize("new", [None, "add", "ignore"])
@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("7;8\n1;2\n", "NoSharedColumn"),
        ("ID,PRICE\n2,1.5\n", "CaseTwin"),
        ("id,PRICE\n2,1.5\n", "CaseTwin"),
        ("foo,bar\n1,2\n", "NoSharedColumn"),
    ],
)
def test_a_file_of_other_columns_is_refused_by_name_among_good_ones(ds, inbox, text, code, new):
    files = [written(inbox, "a.csv", "id,price\n2,1.5\n"), written(inbox, "b.csv", text)]
    files.append(written(inbox, "c.csv", "id,price\n3,1.5\n"))
    error = refused(ds, files, new_columns=new)
    assert error.code == code
    assert str(files[1]) in error.problem
    assert str(files[1]) in refused(ds, files[1], new_columns=new).problem


@pytest.mark.parametrize("new", [None, "add", "ignore"])
def test_the_first_file_is_what_the_others_of_a_first_commit_are_held_against(ws, inbox, new):
    ds = ws.create("new")
    good = written(inbox, "a.csv", "id,price\n2,1.5\n")
    for text, code in (("7;8\n1;2\n", "NoSharedColumn"), ("ID,X\n1,2\n", "CaseTwin")):
        bad = written(inbox, "b.csv", text)
        error = refused(ds, [good, bad], new_columns=new)
        assert (error.code, str(bad) in error.problem) == (code, True)
    more = written(inbox, "c.csv", "id,price,colour\n2,1.5,red\n")
    if new is None:
        assert str(more) in refused(ds, [good, more]).problem
        return
    commit = ds.append([good, more], new_columns=new)
    assert ds.columns == (("id", "price", "colour") if new == "add" else ("id", "price"))
    assert commit.ignored_columns == (() if new == "add" else ("colour",))
    assert ds.view().count() == 2


def test_json_and_parquet_are_held_file_by_file_too(ds, inbox):
    good = written(inbox, "a.jsonl", '{"id": 2, "price": 1.5}\n')
    for text in ('{"foo": 1}\n', '{"ID": 1, "price": 2}\n', '{"id": 1}\n' * 3 + '{"id": 1, "late": 2}\n'):
        bad = written(inbox, "b.jsonl", text)
        assert str(bad) in refused(ds, [good, bad]).problem
    assert (
        refused(ds, written(inbox, "c.jsonl", '{"foo": 1}\n'), new_columns="ignore").code == "NoSharedColumn"
    )
    pq.write_table(ROWS, inbox / "a.parquet")
    pq.write_table(pa.table({"foo": [1]}), inbox / "b.parquet")
    assert "b.parquet" in refused(ds, [inbox / "a.parquet", inbox / "b.parquet"]).problem


@pytest.fixture
def short_sample(monkeypatch):
    """A sample of three rows, so that what is beyond it needs few."""
    for kind in (tl.readers.CsvReader, tl.readers.JsonReader):
        defaults = {**kind.infer.__kwdefaults__, "rows": 3}
        monkeypatch.setattr(kind.infer, "__kwdefaults__", defaults)
    assert reading.SAMPLE_ROWS == 10_000


def test_columns_beyond_the_sample_are_not_lost(ds, inbox, short_sample):
    long = written(inbox, "a.csv", "id\n" + "2\n" * 5)
    more = written(inbox, "b.csv", "id,price,colour\n3,1.5,red\n")
    assert str(more) in refused(ds, [long, more]).problem
    ds.append([long, written(inbox, "c.csv", "id,price\n3,2.5\n")])
    assert ds.view().to_arrow()["price"].to_pylist()[-1] == 2.5, (
        "a column of the dataset that only a later file has"
    )
    ds.append([written(inbox, "d.csv", "id\n" + "4\n" * 5), more], new_columns="add")
    assert ds.view().to_arrow()["colour"].to_pylist()[-1] == "red"


def test_a_key_that_only_late_rows_of_a_first_file_have_is_a_column_with_its_own_type(
    ws, inbox, short_sample
):
    ds = ws.create("new")
    lines = '{"id": 1}\n' * 5 + '{"id": 2, "late": 2.5, "word": "7"}\n{"id": 3, "late": 3}\n'
    ds.append(written(inbox, "a.jsonl", lines))
    found = ds.view().to_arrow()
    assert found["late"].to_pylist()[-2:] == [2.5, 3.0]
    assert found["word"].to_pylist()[-2:] == ["7", None], "a string of digits is not a number in JSON"


def test_columns_that_others_settled_meanwhile_are_not_added_unasked(ws, inbox, monkeypatch):
    """Whoever fixes the schema while files are read decides the columns."""
    from trueline.dataset.append import append as appending

    ds, file = ws.create("new"), written(inbox, "a.csv", "id,price,colour\n1,2,red\n")
    with tl.open(ws.location) as other:
        real, rows = appending.commit, [pa.table({"id": [7]})]

        def late(*given):
            if rows:
                other["new"].append(rows.pop())
            return real(*given)

        monkeypatch.setattr(appending, "commit", late)
        with pytest.raises(SchemaError, match="the schema changed while the rows were read"):
            ds.append(file)
        assert ds.columns == ("id",)
        assert "colour" in refused(ds, file).problem, "again, it says what to do"
