"""Views by Spark's tasks: the same rows under the same ids as in this process, on one core and on more."""

from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

import trueline as tl
from tests.spark.cluster import PATHS
from tests.spark.views_story import MOVED, delivered, digest, evaluated, in_order, views, write
from trueline.view import execute


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("views")
    write(made)
    return made


@pytest.mark.contract("view:C74", "exchange:E3")
@pytest.mark.timeout(300)
def test_rows_and_ids_do_not_depend_on_cores_and_a_master_is_given_as_text(folder, spark):
    environment = os.environ | {"PYTHONPATH": PATHS}
    done = subprocess.run(
        [sys.executable, "-m", "tests.spark.views_story", "local[1]", str(folder)],
        capture_output=True,
        text=True,
        env=environment,
        timeout=280,
    )
    assert done.returncode == 0, done.stderr[-3000:]
    found = {name: view.to_arrow() for name, view in views(folder).items()}
    expected = {name: digest(table) for name, table in found.items()}
    moved = {name: in_order(found[name]) for name in MOVED}
    assert json.loads(done.stdout) == {"frames": expected, "rows": moved}
    # The Spark of the suite has two cores.
    assert spark.sparkContext.master == "local[2]"
    session = spark.newSession()
    session.conf.set("spark.sql.shuffle.partitions", "3")
    assert evaluated(folder, session) == expected
    assert delivered(folder, session) == moved


def test_a_view_is_read_by_tasks_piece_by_piece_and_only_the_columns_asked_for(folder, spark):
    view = tl.View.read_parquet(str(folder / "*.parquet")).with_columns(m="n + 1").select("m", "text")
    assert execute.portable(view.node)
    frame = view.to_spark(spark)
    assert frame.rdd.getNumPartitions() == 12
    assert frame.toArrow().sort_by("m").column("m").to_pylist() == list(range(1, 3_001))


def test_a_frame_is_a_view_whose_rows_have_ids_in_its_order(spark):
    frame = spark.range(0, 1_000, 1, 4).selectExpr("id % 10 as a", "id as b")
    view = tl.View.from_spark(frame, order_by=["a", "b"])
    serial = [(row["a"], row["b"]) for row in view.rows()]
    assert serial == sorted(serial)
    found = {}
    for cursor in view.cursor_set(["b"], 3):
        with cursor:
            get = cursor.getter("b")
            while cursor.move_next():
                found[cursor.id.low] = get()
    assert [found[number] for number in range(1_000)] == [b for _, b in serial]
