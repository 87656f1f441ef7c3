"""What is known of the size of rows before any is read, and how many ranges rows with texts are put into."""

from __future__ import annotations

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.lowering.conftest import BYTES_OF_A_RANGE
from tests.spark.lowering.nasty import everything
from trueline.spark.lowering import exchange
from trueline.spark.lowering.dispatch import LoweringTarget
from trueline.spark.lowering.sizes import known_bytes, most_rows, text_bytes

ROWS = 200_000
NAMES = pa.table({"n": range(ROWS), "name": [f"name {n}" for n in range(ROWS)]})


@pytest.fixture(scope="module")
def names(tmp_path_factory):
    """The same rows in a file, in a dataset and in a keyed one."""
    folder = tmp_path_factory.mktemp("names")
    pq.write_table(NAMES, folder / "names.parquet")
    with tl.open(folder / "ws", create=True) as workspace:
        workspace.create("events").append(NAMES)
        keyed = workspace.create("keyed", merge=tl.merge.upsert("n"))
        keyed.append(NAMES)
        keyed.append(NAMES.slice(0, 10).set_column(1, "name", [["new"] * 10]))
        yield {
            "memory": tl.View.from_arrow(NAMES),
            "file": tl.View.read_parquet(str(folder / "names.parquet")),
            "events": workspace["events"].view().select("n", "name"),
            "keyed": keyed.view().select("n", "name"),
        }


@pytest.fixture(scope="module")
def target(spark):
    """As a cluster has it: in two hundred parts."""
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "200")
    return LoweringTarget(session)


SOURCES = ["memory", "file", "events", "keyed"]


@pytest.mark.parametrize("source", SOURCES)
def test_texts_are_guessed_by_the_bytes_of_the_source(names, source):
    view = names[source]
    assert 5 < text_bytes(view.node) < 50
    assert text_bytes(view.filter("n > 7").sort("name").sample(0.5, seed=1).shuffle(3).node) == text_bytes(
        view.node
    )
    assert text_bytes(view.with_columns(m="n + 1").node) == text_bytes(view.node)
    assert text_bytes(view.with_columns(s="upper(name)").node) is None, "it may have any length"
    assert text_bytes(view.concat(tl.View.range(9).with_columns(name="'a'")).node) is None


def test_a_frame_is_as_large_as_the_files_it_became(names, spark):
    view = tl.View.from_spark(spark.createDataFrame(NAMES.slice(0, 1_000).to_pandas()))
    assert text_bytes(view.node) is None
    assert view.to_arrow().num_rows == 1_000
    assert 5 < text_bytes(view.node) < 300


def test_rows_of_a_keyed_dataset_are_no_more_than_were_appended(names):
    view = names["keyed"]
    assert view.node.row_count is None
    assert most_rows(view.node) == most_rows(view.filter("n > 7").sort("name").node) == ROWS + 20, (
        "and retracted"
    )
    assert known_bytes(view.node) is None
    assert known_bytes(view.select("n").node) == (8 + 16) * (ROWS + 20)


@pytest.mark.parametrize("source", SOURCES)
@pytest.mark.contract("exchange:E2")
def test_rows_with_short_texts_are_put_in_order_by_few_tasks(names, source, target, monkeypatch):
    monkeypatch.setattr(exchange, "_BYTES_OF_A_RANGE", BYTES_OF_A_RANGE)
    view = names[source]
    other = names["events"].rename(other="name")
    ranges = [
        exchange.parts_of(target.lower(each.node, everything(each)), target)
        for each in (
            view.sort("name"),
            view.with_columns(m="n % 7").sort("m", "name"),
            view.join(other, on="n", how="semi"),
        )
    ]
    assert ranges == [1, 1, 1]
    joined = view.join(other, on="n")
    assert exchange.parts_of(target.lower(joined.node, everything(joined)), target) == 4 * target.cores
