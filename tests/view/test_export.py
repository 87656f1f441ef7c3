"""Writing views as files: what comes back, and what is stated not to."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest

import trueline as tl
from trueline import types as t
from trueline.errors import InputError, SchemaError, StoreError
from trueline.view.annotations import IS_NORMALISED, Annotation, Annotations
from trueline.view.schema import Field, Schema

TABLE = pa.table(
    {
        "whole": pa.array([1, None, -(1 << 62)], pa.int64()),
        "small": pa.array([1, None, 255], pa.uint8()),
        "real": pa.array([0.1, float("nan"), None], pa.float64()),
        "single": pa.array([0.1, None, -0.0], pa.float32()),
        "text": pa.array(['a "quoted", cell\nand a line', "", None]),
        "day": pa.array([dt.date(1, 1, 1), None, dt.date(9999, 12, 31)]),
        "at": pa.array([0, None, 1_700_000_000_123_456], pa.timestamp("us", "UTC")),
        "exact": pa.array(["0.10", None, "-99.99"]).cast(pa.decimal128(10, 2)),
        "truth": pa.array([True, None, False]),
        "span": pa.array([-(1 << 63), None, 5_400_500_000], pa.duration("us")),
        "clock": pa.array([0, None, 86_399_999_999], pa.time64("us")),
        "raw": pa.array(["ä,\n".encode(), b"", None]),
    }
)


@pytest.mark.contract("kit:K20")
def test_parquet_brings_back_values_types_and_annotations(tmp_path):
    about = Annotations({IS_NORMALISED: Annotation(t.boolean, True)})
    schema = Schema([*Schema.from_arrow(TABLE.schema).fields, Field("v", t.vector(t.float32, 2), about)])
    vectors = pa.array([[1.0, 2.0], None, [0.0, -0.0]], t.vector(t.float32, 2).arrow)
    table = pa.Table.from_arrays([*TABLE.columns, vectors], schema=schema.to_arrow())
    view = tl.View.from_arrow(table).with_row_id("id")
    saved = view.write_parquet(tmp_path / "x.parquet")
    back = tl.View.read_parquet(tmp_path / "x.parquet")
    assert back.schema == view.schema
    assert repr(back.to_arrow().to_pylist()) == repr(view.to_arrow().to_pylist())
    assert back.schema["v"].annotations[IS_NORMALISED] is True
    assert (saved.rows, saved.size) == (3, (tmp_path / "x.parquet").stat().st_size)


@pytest.mark.contract("kit:K20")
def test_parquet_has_no_seconds_so_they_come_back_as_milliseconds(tmp_path):
    at = pa.array([0, None], pa.timestamp("s"))
    tl.View.from_arrow(pa.table({"at": at, "clock": pa.array([1, None], pa.time32("s"))})).write_parquet(
        tmp_path / "x.parquet"
    )
    back = tl.View.read_parquet(tmp_path / "x.parquet")
    assert [column.type for column in back.schema] == [t.timestamp("ms", None), t.time("ms")]
    assert back.to_arrow()["at"].cast(pa.timestamp("s")).to_pylist() == at.to_pylist()


@pytest.mark.contract("kit:K20")
def test_csv_brings_back_values_if_types_are_declared_and_loses_what_is_stated(tmp_path):
    view = tl.View.from_arrow(TABLE)
    view.write_csv(tmp_path / "x.csv")
    back = tl.View.read_csv(tmp_path / "x.csv", schema=TABLE.schema)
    assert repr(back.to_arrow().to_pylist()) == repr(view.to_arrow().to_pylist())
    guessed = tl.View.read_csv(tmp_path / "x.csv").schema
    assert guessed["small"].type == t.int64
    assert guessed["whole"].type == t.int64


@pytest.mark.contract("kit:K20")
def test_what_csv_cannot_hold_is_refused_before_a_byte_is_written(tmp_path):
    for view in (
        tl.View.from_rows([{"v": [1, 2]}]),
        tl.View.from_rows([{"v": {"a": 1}}]),
        tl.View.from_rows([{"x": 1}]).with_row_id("id"),
    ):
        with pytest.raises(SchemaError, match="CSV cannot hold"):
            view.write_csv(tmp_path / "x.csv")
    assert not any(tmp_path.iterdir())


BEYOND = [
    (pa.array(["a", None, "b\0"]), "a zero character"),
    (pa.array(["a", None, "b\0"], pa.large_string()), "a zero character"),
    (pa.array([b"a", None, b"\0"]), "a zero character"),
    (pa.array([b"a", None, b"\xff"]), "bytes that are not text"),
    (pa.array([0, None, 1 << 62], pa.timestamp("us")), "a day outside of the years 1 to 9999"),
    (
        pa.array([0, None, -62_135_596_800_001], pa.timestamp("ms", "Europe/Zurich")),
        "a day outside of the years",
    ),
    (pa.array([0, None, 2_932_897], pa.date32()), "a day outside of the years 1 to 9999"),
]


@pytest.mark.contract("kit:K20")
@pytest.mark.parametrize(("values", "what"), BEYOND, ids=str)
def test_a_value_that_csv_would_not_bring_back_is_refused_with_its_column_and_row(values, what, tmp_path):
    view = tl.View.from_arrow(pa.table({"fine": range(3), "odd": values}))
    with pytest.raises(SchemaError, match=f"column 'odd' has {what}.*in row 2.*\n.*Parquet") as caught:
        view.write_csv(tmp_path / "x.csv")
    assert (caught.value.column, caught.value.row) == ("odd", 2)
    assert not any(tmp_path.iterdir())
    # All but that row comes back, and in Parquet all of it does.
    view.limit(2).write_csv(tmp_path / "x.csv")
    back = tl.View.read_csv(tmp_path / "x.csv", schema=view.schema.to_arrow())
    assert back.to_arrow().equals(view.limit(2).to_arrow())
    view.write_parquet(tmp_path / "x.parquet")
    assert tl.View.read_parquet(tmp_path / "x.parquet").to_arrow().equals(view.to_arrow())


@pytest.mark.contract("kit:K20")
def test_the_row_of_a_value_that_is_refused_is_counted_over_all_pieces(tmp_path):
    view = tl.View.range(100_000).with_columns(odd="case when n < 70000 then 'a' else 'b' end")
    broken = view.concat(tl.View.from_arrow(pa.table({"n": pa.array([1], pa.int64()), "odd": ["\0"]})))
    with pytest.raises(SchemaError, match="in row 100,000"):
        broken.write_csv(tmp_path / "x.csv")


@pytest.mark.contract("kit:K20")
def test_a_name_with_a_zero_character_is_refused_where_it_would_be_written(tmp_path):
    view = tl.View.from_arrow(pa.table({"a\0b": [1]}))
    with pytest.raises(SchemaError, match="the name of column"):
        view.write_csv(tmp_path / "x.csv")
    view.write_csv(tmp_path / "x.csv", header=False)
    assert (tmp_path / "x.csv").read_text() == "1\n"


def test_a_file_is_written_whole_or_not_at_all(tmp_path):
    path = tmp_path / "x.parquet"
    tl.View.range(3).write_parquet(path)
    with pytest.raises(InputError, match="exists"):
        tl.View.range(4).write_parquet(path)
    (tmp_path / "n.csv").write_text("n\n1\n")
    moving = tl.View.read_csv(tmp_path / "n.csv")
    (tmp_path / "n.csv").write_text("n\n1\n2\n")
    with pytest.raises(InputError, match="changed"):
        moving.write_parquet(path, overwrite=True)
    assert tl.View.read_parquet(path).count() == 3
    with pytest.raises(StoreError):
        tl.View.range(3).write_csv(tmp_path / "no" / "folder.csv")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["n.csv", "x.parquet"]


def test_arrow_ipc_brings_back_values_types_and_annotations(tmp_path):
    schema = Schema([Field("x", t.float32, Annotations({IS_NORMALISED: Annotation(t.boolean, True)}))])
    view = tl.View.from_arrow(pa.table({"x": pa.array([1.5, None], pa.float32())}, schema=schema.to_arrow()))
    done = view.write_arrow(tmp_path / "x.arrow")
    assert (done.rows, done.size) == (2, (tmp_path / "x.arrow").stat().st_size)
    with pa.ipc.open_file(tmp_path / "x.arrow") as file:
        back = tl.View.from_arrow(file.read_all())
    assert back.schema == view.schema
    assert back.to_arrow().equals(view.to_arrow())


def test_json_lines_have_an_object_for_each_row(tmp_path):
    view = tl.View.from_rows([{"x": 1.5, "s": "é"}, {"x": float("nan"), "s": None}])
    assert view.write_json(tmp_path / "x.jsonl").rows == 2
    lines = (tmp_path / "x.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line) for line in lines] == [{"x": 1.5, "s": "é"}, {"x": None, "s": None}]


@pytest.mark.parametrize("ending", ["csv", "parquet", "json", "jsonl", "arrow"])
def test_a_dataset_is_exported_as_its_view_is_written(ending, tmp_path):
    with tl.open(tmp_path / "ws", create=True) as ws:
        sales = ws.create("sales")
        sales.append(pa.table({"city": ["Bern", "", None], "price": [9.5, None, 1.0]}))
        sales.export(tmp_path / f"a.{ending}")
        name = "json" if ending == "jsonl" else ending
        getattr(sales.view(), f"write_{name}")(tmp_path / f"b.{ending}")
    assert (tmp_path / f"a.{ending}").read_bytes() == (tmp_path / f"b.{ending}").read_bytes()
