"""Types inferred from the first rows are held against all rows in the commit that fixes the schema."""

from __future__ import annotations

import datetime as dt

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from trueline.dataset.append.append import append_rows
from trueline.dataset.append.intake import AppendRequest
from trueline.dataset.append.read_files import Look, look
from trueline.errors import BadCellsWarning, DataWarning, InputError, PullError, SchemaError
from trueline.readers.profile import Profile
from trueline.readers.reader import SAMPLE_ROWS
from trueline.run import Step


@pytest.fixture(autouse=True)
def short_sample(monkeypatch):
    """A sample of three rows, so that what is beyond it needs few."""
    for kind in (tl.readers.CsvReader, tl.readers.JsonReader):
        monkeypatch.setattr(kind.infer, "__kwdefaults__", {**kind.infer.__kwdefaults__, "rows": 3})


def csv(tmp_path, *cells, name="a.csv"):
    (tmp_path / name).write_text("x,n\n" + "".join(f"{cell},{n}\n" for n, cell in enumerate(cells)))
    return tmp_path / name


def jsonl(tmp_path, *cells, name="a.jsonl"):
    (tmp_path / name).write_text("".join(f'{{"x": {cell}, "n": {n}}}\n' for n, cell in enumerate(cells)))
    return tmp_path / name


def only_text(ds, data, **how):
    head = ds.head
    with pytest.raises(SchemaError) as caught:
        ds.append(data, **how)
    assert (caught.value.code, ds.head) == ("TypeNotCertain", head)
    return caught.value


DAY = dt.date(2026, 11, 13)
NOON = dt.datetime(2026, 11, 13, 12)


@pytest.mark.parametrize(
    ("cells", "kind", "last"),
    [
        (["1", "2", "3", "4.5"], pa.float64(), 4.5),
        (["1", "2", "3", "1e3"], pa.float64(), 1000.0),
        (["1.5", "2", "3", "4"], pa.float64(), 4.0),
        (["2026-11-12"] * 3 + ["2026-11-13 12:00"], pa.timestamp("us"), NOON),
        (["2026-11-12 10:00"] * 3 + ["2026-11-13"], pa.timestamp("us"), dt.datetime(2026, 11, 13)),
    ],
)
def test_numbers_and_times_are_widened_without_loss(ds, tmp_path, cells, kind, last):
    commit = ds.append(csv(tmp_path, *cells))
    found = ds.view().to_arrow()["x"]
    assert (found.type, found.to_pylist()[-1], found.null_count, commit.bad) == (kind, last, 0, {})
    assert ds.verify().ok


def test_more_digits_of_a_second_than_the_first_rows_had_are_kept(ds, tmp_path):
    commit = ds.append(csv(tmp_path, *["2026-11-12 10:00:00.5"] * 3, "2026-11-13 12:00:00.123456789"))
    found = ds.view().to_arrow()["x"]
    assert (found.type, commit.rounded) == (pa.timestamp("ns"), 0)
    assert found.cast(pa.int64()).to_pylist()[-1] % 10**9 == 123_456_789


def test_a_later_file_widens_what_an_earlier_one_suggests(ds, tmp_path):
    files = [csv(tmp_path, *"12345"), csv(tmp_path, "1.5", "2.5", name="b.csv")]
    ds.append(files)
    assert ds.view().to_arrow()["x"].to_pylist() == [1, 2, 3, 4, 5, 1.5, 2.5]


@pytest.mark.parametrize("big", ["9007199254740993", "9223372036854775808"])
def test_an_integer_that_a_float_cannot_hold_is_not_rounded(ds, tmp_path, big):
    only_text(ds, csv(tmp_path, "1", "2", "3", big, "4.5"))
    only_text(ds, csv(tmp_path, "1", "2", "3", "4.5", big))


def test_cells_that_are_not_listed_count_too(ds, tmp_path):
    """How many bad cells are listed does not decide the type."""
    only_text(ds, csv(tmp_path, "1", "2", "3", "4.5", "x"), reader=tl.csv(max_listed=1))
    ds.append(csv(tmp_path, "1", "2", "3", "4.5", "5.5"), reader=tl.csv(max_listed=0))
    assert ds.view().to_arrow()["x"].to_pylist()[-2:] == [4.5, 5.5]


@pytest.mark.parametrize(
    "cells",
    [
        ["1", "2", "3", "warm"],
        ["true", "false", "true", "maybe"],
        ["2026-11-12"] * 3 + ["yesterday"],
        ["2026-11-12 10:00"] * 3 + ["2026-11-13 12:00Z"],
    ],
)
def test_where_only_text_is_left_the_commit_is_refused_with_ways_that_work(ws, tmp_path, cells):
    file = csv(tmp_path, *cells)
    error = only_text(ws.create("x"), file)
    assert repr(cells[-1]) in error.problem
    assert f"{file}, line 5" in error.problem
    assert 'reader=trueline.csv(types={"x": "text"})' in error.remedy
    assert "max_bad=1 " in error.remedy
    text = ws.create("text")
    text.append(file, tl.csv(types={"x": "text"}))
    assert text.view().to_arrow()["x"].to_pylist() == cells
    null = ws.create("null")
    with pytest.warns(BadCellsWarning):
        commit = null.append(file, max_bad=1)
    assert (commit.bad, null.view().to_arrow()["x"].null_count) == ({"x": 1}, 1)
    assert null.view().to_arrow()["x"].type != pa.string()


def test_with_max_bad_numbers_are_widened_and_only_the_rest_is_null(ds, tmp_path):
    with pytest.warns(BadCellsWarning):
        ds.append(csv(tmp_path, "1", "2", "3", "4.5", "x"), max_bad=1)
    assert ds.view().to_arrow()["x"].to_pylist() == [1.0, 2.0, 3.0, 4.5, None]


def test_cells_that_stand_for_null_are_offered_as_such(ws, tmp_path):
    file = csv(tmp_path, "1", "2", "3", "NA")
    error = only_text(ws.create("x"), file)
    assert "nulls=['', 'NA'] (--nulls NA) reads them as null" in error.remedy
    ds = ws.create("y")
    assert ds.append(file, tl.csv(nulls=["", "NA"])).bad == {}
    assert ds.view().to_arrow()["x"].to_pylist() == [1, 2, 3, None]


def test_records_that_are_too_short_say_nothing_about_a_type(ws, tmp_path):
    (tmp_path / "a.csv").write_text("n,x\n" + "1,2\n" * 5 + "3\n" + "1,2\n" * 5)
    ds = ws.create("x")
    with pytest.warns(BadCellsWarning):
        assert ds.append(tmp_path / "a.csv").bad == {"x": 1}
    assert ds.view().to_arrow()["x"].type == pa.int64()
    (tmp_path / "b.csv").write_text("n,x\n" + "1,2\n" * 5 + "3\n" + "1,2.5\n" * 5)
    other = ws.create("y")
    with pytest.warns(BadCellsWarning):
        assert other.append(tmp_path / "b.csv").bad == {"x": 1}
    assert other.view().to_arrow()["x"].to_pylist()[4:7] == [2.0, None, 2.5]


def test_json_is_widened_by_its_own_table(ws, tmp_path):
    ds = ws.create("x")
    ds.append(jsonl(tmp_path, 1, 2, 3, 4.5))
    assert ds.view().to_arrow()["x"].to_pylist() == [1.0, 2.0, 3.0, 4.5]
    for cell in ('"4.5"', '"4"', "true", "[4]"):
        only_text(ws.create(f"x{len(ws)}"), jsonl(tmp_path, 1, 2, 3, cell))
    text = ws.create("text")
    text.append(jsonl(tmp_path, 1, 2, 3, '"4"'), tl.json(types={"x": "text"}))
    assert text.view().to_arrow()["x"].to_pylist() == ["1", "2", "3", "4"]


def test_parquet_files_of_other_types_lose_nothing(ws, tmp_path):
    for name, column in (("a", [1, 2**53 + 1]), ("b", [1.5])):
        pq.write_table(pa.table({"x": column}), tmp_path / f"{name}.parquet")
    error = only_text(ws.create("x"), [tmp_path / "a.parquet", tmp_path / "b.parquet"])
    assert "create(..., schema=...)" in error.remedy


def test_prepared_files_are_widened_too(ds, tmp_path):
    ds.append(csv(tmp_path, "1", "2", "3", "4.5"), steps=[Step(map=lambda _, table: table, name="same")])
    assert ds.view().to_arrow()["x"].to_pylist() == [1.0, 2.0, 3.0, 4.5]
    only_text(
        ds.workspace.create("x"),
        csv(tmp_path, "1", "2", "3", "x"),
        steps=[Step(map=lambda _, t: t, name="s")],
    )


def test_an_error_does_not_show_what_a_step_masks(ds, tmp_path):
    from trueline.dataset.prepare import mask

    error = only_text(ds, csv(tmp_path, "1", "2", "3", "secret"), steps=[mask("x", how="missing")])
    assert "secret" not in str(error)
    assert "column 'x' is int64 in the first rows, and 1 later cell" in error.problem


def test_a_column_that_is_added_is_held_against_all_rows_too(ds, tmp_path):
    ds.append(pa.table({"n": [0]}))
    only_text(ds, csv(tmp_path, "1", "2", "3", "x"), new_columns="add")
    ds.append(csv(tmp_path, "1", "2", "3", "4.5"), new_columns="add")
    assert ds.view().to_arrow()["x"].to_pylist() == [None, 1.0, 2.0, 3.0, 4.5]


def test_a_type_that_the_dataset_has_stays_and_its_bad_cells_are_null(ds, tmp_path):
    ds.append(pa.table({"x": [1], "n": [0]}))
    with pytest.warns(BadCellsWarning):
        commit = ds.append(csv(tmp_path, "1", "2", "3", "4.5"))
    assert (commit.bad, ds.view().to_arrow()["x"].type) == ({"x": 1}, pa.int64())


def test_tasks_of_spark_widen_as_this_process_does(ws, tmp_path, spark_room):
    # The sample of the workers is as long as it is.
    first = csv(tmp_path, *["1"] * (SAMPLE_ROWS + 1))
    files = [str(first), str(csv(tmp_path, "1.5", "9", name="b.csv"))]
    here, there = ws.create("here"), ws.create("there")
    here.append(files)
    tail = there.chain.tail()
    append_rows("there", there.chain, tail, AppendRequest(files), tasks=spark_room.tasks())
    assert there.view().to_arrow().equals(here.view().to_arrow())
    assert there.view().to_arrow()["x"].type == pa.float64()
    other = ws.create("other")
    request = AppendRequest([*files, str(csv(tmp_path, "x", name="c.csv"))])
    with pytest.raises(SchemaError, match=r"'x' \(.*c\.csv, line 2\)") as caught:
        append_rows("other", other.chain, other.chain.tail(), request, tasks=spark_room.tasks())
    assert caught.value.code == "TypeNotCertain"


def test_a_profile_of_parts_is_that_of_the_whole():
    cells = ["1", "2.5", "9007199254740993", None, " ", "2026-11-13", "2026-11-13 10:00Z", "true", "x", "007"]
    rules = tl.csv().rules
    whole = Profile.of(pa.array(cells), rules)
    parts = [Profile.of(pa.array([cell], pa.string()), rules) for cell in cells]
    assert sum(parts, Profile()) == whole
    assert (whole.cells, whole.integers, whole.wide, whole.numbers, whole.zoned) == (8, 2, 1, 3, 1)


def test_looking_at_columns_takes_a_batch_at_a_time(tmp_path):
    [source] = tl.readers.find(csv(tmp_path, *["1"] * 50))
    found = look(Look(source, tl.csv(block_bytes=16), ("x",)))
    assert found["x"].integers == 50


# --- what was only for null -----------------------------------------------------------------


def test_columns_that_are_text_only_for_words_for_null_are_named_with_the_option(ws, tmp_path):
    ds, file = ws.create("x"), csv(tmp_path, "1", "NA", "n.a.")
    with pytest.warns(DataWarning, match=r"'x' \(else int64\) because of 'NA', 'n.a.'") as heard:
        commit = ds.append(file)
    assert len(heard) == 1
    [advice] = commit.advice
    assert advice.code == "TextColumns"
    assert "text only because of words for null" in advice.problem
    assert "reader=trueline.csv(nulls=['', 'NA', 'n.a.'])" in advice.remedy
    assert advice.in_shell.endswith("ingest into a new dataset with --nulls NA --nulls n.a.")
    other = ws.create("y")
    assert other.append(file, tl.csv(nulls=["", "NA", "n.a."])).advice == ()
    assert other.view().to_arrow()["x"].to_pylist() == [1, None, None]


@pytest.mark.parametrize("mark", [";", "\t", "|"])
def test_a_file_of_one_column_whose_header_is_several_is_named_with_the_separator(ws, tmp_path, mark):
    file = tmp_path / "a.csv"
    file.write_text(f"id{mark}name\n1{mark}pen\n2{mark}cup\n")
    with pytest.warns(DataWarning, match="there is one column"):
        commit = ws.create("x").append(file)
    [advice] = commit.advice
    assert advice.code == "OneColumn"
    assert advice.remedy.endswith(f"reader=trueline.csv(separator={mark!r})")
    other = ws.create("y")
    assert other.append(file, tl.csv(separator=mark)).advice == ()
    assert other.columns == ("id", "name")


def test_one_column_with_a_plain_name_is_not_named(ds, tmp_path):
    assert ds.append(csv(tmp_path, "a;b", "c;d")).advice == ()


def test_columns_of_words_are_not_named(ds, tmp_path):
    assert ds.append(csv(tmp_path, "Bern", "NA", "-")).advice == ()


TIMES = {
    "2012/01/01 00:00": ("timestamp_format", "%Y/%m/%d %H:%M", dt.datetime(2012, 1, 1)),
    "31.12.2012 23:59:58": ("timestamp_format", "%d.%m.%Y %H:%M:%S", dt.datetime(2012, 12, 31, 23, 59, 58)),
    "12/31/2012 11:59 PM": ("timestamp_format", "%m/%d/%Y %I:%M %p", dt.datetime(2012, 12, 31, 23, 59)),
    "2012/12/31": ("date_format", "%Y/%m/%d", dt.date(2012, 12, 31)),
    "31-Dec-2012": ("date_format", "%d-%b-%Y", dt.date(2012, 12, 31)),
}


@pytest.mark.parametrize("text", TIMES)
def test_dates_that_are_text_are_named_with_the_format_that_reads_them(ws, tmp_path, text):
    option, form, value = TIMES[text]
    with pytest.warns(DataWarning, match="every cell is a date or a time"):
        commit = ws.create("x").append(csv(tmp_path, text, "", text))
    [advice] = commit.advice
    assert f"'x' (else {'date32' if option == 'date_format' else 'timestamp[us]'}" in advice.problem
    assert advice.remedy.endswith(f"reader=trueline.csv({option}={form!r})")
    assert f"--{option.replace('_', '-')} " in advice.in_shell
    other = ws.create("y")
    assert other.append(tmp_path / "a.csv", tl.csv(**{option: form})).advice == ()
    assert other.view().to_arrow()["x"].to_pylist() == [value, None, value]


def test_where_days_may_be_months_both_formats_are_named(ws, tmp_path):
    with pytest.warns(DataWarning, match="every cell is a date"):
        commit = ws.create("x").append(csv(tmp_path, "01/02/2012"))
    assert "%d/%m/%Y" in commit.advice[0].remedy
    assert "(or %m/%d/%Y, if that is meant)" in commit.advice[0].remedy
    assert "(or %m/%d/%Y, if that is meant)" in commit.advice[0].in_shell


def test_numbers_with_a_decimal_comma_are_named_with_the_option_that_reads_them(ws, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("id;price;what\n1;9,50;a, b\n2;10;c\n")
    with pytest.warns(DataWarning, match="every cell is a number with a decimal comma"):
        commit = ws.create("x").append(file, tl.csv(separator=";"))
    [advice] = commit.advice
    assert "'price' (else double) as in '9,50'" in advice.problem
    assert advice.remedy.endswith("reader=trueline.csv(separator=';', decimal=',')")
    assert advice.in_shell.endswith("--decimal ,")
    other = ws.create("y")
    assert other.append(file, tl.csv(separator=";", decimal=",")).advice == ()
    assert other.view().to_arrow()["price"].to_pylist() == [9.5, 10.0]


def test_a_decimal_comma_that_would_make_text_of_another_column_is_read_in_a_view(ws, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("price;share\n9,50;0.5\n")
    ds = ws.create("x")
    with pytest.warns(DataWarning, match="decimal comma"):
        [advice] = ds.append(file, tl.csv(separator=";")).advice
    columns = eval(advice.remedy.partition("view.with_columns(")[2][:-1])
    assert ds.view().with_columns(columns).to_arrow().to_pylist() == [{"price": 9.5, "share": 0.5}]


def test_other_options_that_were_given_stay_in_the_advice(ws, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("x;n\n2012/01/01;1,5\n")
    with pytest.warns(DataWarning):
        commit = ws.create("x").append(file, tl.csv(separator=";", decimal=","))
    wanted = "reader=trueline.csv(separator=';', decimal=',', date_format='%Y/%m/%d')"
    assert commit.advice[0].remedy.endswith(wanted)


def test_a_format_by_which_another_column_could_not_be_read_is_not_advised(ws, tmp_path):
    file = tmp_path / "a.csv"
    file.write_text("x,at\n2012/01/01 00:00,2012-01-01 00:00\n")
    ds = ws.create("x")
    with pytest.warns(DataWarning):
        [advice] = ds.append(file).advice
    assert "timestamp_format" not in advice.remedy
    assert (advice.in_shell, advice.remedy[:14]) == ("", "leave it text,")
    call = advice.remedy.partition("with view.")[2]
    assert call == """with_columns({'x': "to_timestamp(`x`, '%Y/%m/%d %H:%M')"})"""
    found = eval(f"view.{call}", {"view": ds.view()}).to_arrow()["x"].to_pylist()
    assert [each.replace(tzinfo=None) for each in found] == [dt.datetime(2012, 1, 1)]


@pytest.mark.parametrize("cells", [["1/2", "3/4"], ["10.11.12.13"], ["2012/13/45"], ["12.01.2012", "soon"]])
def test_what_only_looks_like_a_date_is_left_alone(ds, tmp_path, cells):
    assert ds.append(csv(tmp_path, *cells)).advice == ()


# --- small files ----------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 3, 9, 30])
def test_a_mostly_unreadable_column_is_refused_however_few_rows_there_are(ds, tmp_path, rows):
    ds.append(pa.table({"x": [1.5], "n": [1]}))
    file = csv(tmp_path, *[f'"{n},5"' for n in range(rows)])
    with pytest.raises(InputError, match=rf"bad in {rows} of {rows} rows.*give decimal=','"):
        ds.append(file)
    assert ds.append(file, tl.csv(decimal=",")).bad == {}


def test_types_of_columns_that_are_not_there_are_refused(ds, tmp_path):
    with pytest.raises(SchemaError, match="types names the column 'y', which the files do not have"):
        ds.append(csv(tmp_path, "1"), tl.csv(types={"y": "text"}))
    with pytest.raises(InputError, match="'number' is not a type"):
        tl.csv(types={"x": "number"})


# --- cells that do become null ----------------------------------------------------------------


@pytest.fixture
def typed(ws):
    return ws.create("typed", schema=pa.schema({"x": pa.int64(), "n": pa.int64()}))


def test_python_hears_of_cells_that_become_null_once_per_commit(typed, tmp_path):
    file = csv(tmp_path, "1", "2", "3", "warm", "<b>hot</b>", "5", "6")
    shown = f"2 bad cells (x 2), for example 'warm' in x ({file}, line 5); '<b>hot</b>' in x ({file}, line 6)"
    with pytest.warns(BadCellsWarning) as heard:
        commit = typed.append(file)
    [warning] = [each for each in heard if each.category is BadCellsWarning]
    assert f"typed: {shown}, null instead" in str(warning.message)
    assert warning.filename == __file__, "it points at who appended"
    for seen in (commit, typed.commit()):
        assert shown in repr(seen)
        assert "2 bad cells (x 2)" in seen._repr_html_()
        assert "&lt;b&gt;hot&lt;/b&gt;" in seen._repr_html_()
    assert "bad" not in repr(typed.append([{"x": 1}]))


def test_a_retry_of_the_same_append_says_nothing_new(typed, tmp_path, recwarn):
    file = csv(tmp_path, "1", "2", "3", "warm")
    typed.append(file, idempotency_key="k")
    typed.append(file, idempotency_key="k")
    assert len(recwarn) == 1


def test_examples_go_with_the_rows_that_are_removed(typed, tmp_path):
    with pytest.warns(BadCellsWarning):
        commit = typed.append(csv(tmp_path, "1", "2", "3", "secret"))
    typed.drop_data(where="n >= 0", reason="asked for")
    assert "secret" not in repr(typed.commit(commit))
    assert "1 bad cell (x 1)" in repr(typed.commit(commit))


def test_a_pull_warns_as_an_append_does(ws, tmp_path):
    csv(tmp_path, "1", "2", "3", "warm")
    ws.create("x", schema=pa.schema({"x": pa.int64(), "n": pa.int64()}), source=tmp_path / "*.csv")
    with pytest.warns(BadCellsWarning, match="'warm' in x"):
        ws.pull()


def test_the_command_line_says_it_in_its_answer_and_not_twice(tmp_path, capsys, recwarn):
    from trueline.cli import main

    shop = ["-C", str(tmp_path / "shop")]
    main(["init", shop[1]])
    main([*shop, "create", "x"])
    assert main([*shop, "ingest", "x", str(csv(tmp_path, "1", "NA"))]) == 0
    shown = capsys.readouterr()
    assert "text only because of words for null: 'x'" in shown.err + shown.out
    main([*shop, "create", "y", "--source", str(tmp_path / "*.csv")])
    assert main([*shop, "pull"]) == 0
    shown = capsys.readouterr()
    assert "y: a column is text only because of words for null: 'x'" in shown.err + shown.out
    assert not recwarn


def test_views_keep_null_and_count(tmp_path, recwarn):
    view = tl.View.read_csv(csv(tmp_path, "1", "2", "3", "warm"))
    assert view.to_arrow()["x"].to_pylist() == [1, 2, 3, None]
    assert dict(view.bad) == {"x": 1}
    assert not recwarn


def test_the_ways_out_of_a_declared_source_are_in_its_declaration(ws, tmp_path):
    csv(tmp_path, "1", "2", "3", "warm")
    ws.create("x", source=tmp_path / "*.csv")
    with pytest.raises(PullError, match=r"in tl.source\(path, reader, max_bad=…\) of a new dataset"):
        ws.pull()
    ws.create("text", source=tl.source(tmp_path / "*.csv", tl.csv(types={"x": "text"})))
    assert ws.pull("text").rows == 4
    ws.create("null", source=tl.source(tmp_path / "*.csv", max_bad=1))
    with pytest.warns(BadCellsWarning):
        assert ws.pull("null")["null"].commit.bad == {"x": 1}
    again = ws.create("text", source=tl.source(tmp_path / "*.csv", tl.csv(types={"x": "text"})))
    assert again.head == ws["text"].head, "types are part of the definition"
