"""Nasty files read by tasks of Spark: the same rows, missing cells and counts as in this process."""

from __future__ import annotations

import json
import shutil
import zipfile

import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import ROOT
from trueline.chain.instant import Instant
from trueline.dataset.prepare import parse
from trueline.errors import InputError
from trueline.readers import CsvReader, JsonReader
from trueline.spark.run_executor import Spark

GOLDEN = ROOT / "tests" / "golden" / "readers"
KINDS = {
    "int": pa.int64(),
    "float": pa.float64(),
    "text": pa.string(),
    "date": pa.date32(),
    "bool": pa.bool_(),
    "decimal": pa.decimal128(7, 2),
    "time": pa.timestamp("ms", "UTC"),
}
STORIES = {path.name.split(".")[0]: path for path in sorted(GOLDEN.glob("*.expected.json"))}


@pytest.fixture(params=STORIES)
def story(request):
    return json.loads(STORIES[request.param].read_text(encoding="utf-8"))


@pytest.fixture
def schema(story):
    return pa.schema([(name, KINDS[kind]) for name, kind in story["schema"].items()])


@pytest.fixture
def reader(story):
    found = type(CsvReader()).from_dict(story["reader"])
    assert isinstance(found, CsvReader | JsonReader)
    return found


def test_a_file_taken_in_by_tasks_makes_the_same_commit(spark_room, story, schema, reader, tmp_path):
    with tl.open(tmp_path / "here", create=True) as ws:
        ws.create("sales", schema=schema)
    for name in ("steps", "tasks"):
        shutil.copytree(tmp_path / "here", tmp_path / name)
    ways = {
        "here": {},
        "steps": {"steps": [parse()]},
        "tasks": {"steps": [parse()], "executor": Spark(spark_room)},
    }
    found = {}
    for name, way in ways.items():
        with tl.open(tmp_path / name) as ws:
            ws.clock = lambda: Instant.parse("2030-01-01T00:00:00Z")
            commit = ws["sales"].append(GOLDEN / story["file"], reader=reader, max_bad=1_000, **way)
            rows = ws["sales"].view().to_arrow()
            found[name] = (
                commit.bad,
                commit.bad_cells().to_arrow().to_pylist(),
                rows.to_pylist(),
                rows.schema,
            )
    counts = {column: count for column, count in story["result"]["counts"].items() if count}
    assert dict(found["here"][0]) == counts
    assert repr(found["steps"]) == repr(found["here"])  # NaN is like NaN
    assert repr(found["tasks"]) == repr(found["here"])


def test_a_view_of_a_file_read_by_tasks_has_the_same_cells(spark, story, schema):
    options = {name: value for name, value in story["reader"].items() if name != "kind"}
    read = {"csv": tl.View.read_csv, "json": tl.View.read_json}[story["reader"]["kind"]]
    view = read(GOLDEN / story["file"], schema=schema, **options)
    assert view.count() == story["result"]["rows"]
    assert repr(view.to_spark(spark).toArrow().to_pylist()) == repr(view.to_arrow().to_pylist())


@pytest.mark.parametrize("way", ["tasks", "executor"])
def test_json_that_is_not_lines_is_read_and_refused_by_tasks_as_in_this_process(spark_room, tmp_path, way):
    rows = [{"id": n, "city": "Bern"} for n in range(4)]
    (tmp_path / "array.json").write_text(json.dumps(rows, indent=1))
    (tmp_path / "page.json").write_text("<html>\n<body>Sign in</body>\n")
    how = {"steps": [parse()], "executor": Spark(spark_room)} if way == "executor" else {}
    with tl.open(tmp_path / "ws", create=True, spark=spark_room.given) as ws:
        ds = ws.create("sales")
        assert ds.append(tmp_path / "array.json", **how).rows == 4
        assert ds.view().to_arrow().to_pylist() == rows
        with pytest.raises(InputError, match=r"page\.json is not JSON"):
            ds.append([tmp_path / "array.json", tmp_path / "page.json"], resend=True, **how)


def test_a_zip_archive_and_an_arrow_file_are_read_by_tasks(spark_room, tmp_path):
    with zipfile.ZipFile(tmp_path / "a.zip", "w") as archive:
        archive.writestr("a.csv", "id\n1\n2\n")
    tl.View.from_rows([{"id": 3}]).write_arrow(tmp_path / "b.arrow")
    with tl.open(tmp_path / "ws", create=True) as ws:
        ds = ws.create("sales")
        for file in ("a.zip", "b.arrow"):
            ds.append(tmp_path / file, steps=[parse()], executor=Spark(spark_room))
        assert ds.view().to_arrow()["id"].to_pylist() == [1, 2, 3]
