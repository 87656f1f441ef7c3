"""Files, streams, views, prepared rows, pulls, checks and copies in Spark's tasks: the same blocks."""

from __future__ import annotations

import os
import shutil
import sys
from contextlib import contextmanager
from types import SimpleNamespace

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pyarrow.parquet as pq
import pytest

import trueline as tl
from tests.spark.passing import FILES, OPENED, ROWS, WRITTEN, jobs_in, passing
from trueline.chain import Instant
from trueline.chain.store.store import Folder
from trueline.dataset.append import merge as merging
from trueline.dataset.append import stream
from trueline.errors import EnvironmentMissing, InputError
from trueline.spark import frames, source, workers
from trueline.spark.errors import translated
from trueline.spark.lowering import places
from trueline.spark.session import OLDEST, adopt, is_cluster
from trueline.workspace.preparing import mask, validate

NOW = Instant.parse("2030-01-01T00:00:00Z")
COUNT = 3_000


def rows(count=COUNT, first=0):
    random = np.random.default_rng(first)
    return pa.table(
        {
            "id": np.arange(first, first + count),
            "city": [("Bern", "Zug", None)[n % 3] for n in range(count)],
            "price": np.round(random.random(count), 3),
        }
    )


@pytest.fixture
def inbox(tmp_path):
    """Files of three kinds, two of each."""
    folder = tmp_path / "inbox"
    folder.mkdir()
    for number in range(2):
        table = rows(first=number * COUNT)
        arrow_csv.write_csv(table, folder / f"{number}.csv")
        pq.write_table(table, folder / f"{number}.parquet")
        lines = (f'{{"id": {row["id"]}, "price": {row["price"]}}}\n' for row in table.to_pylist())
        (folder / f"{number}.jsonl").write_text("".join(lines))
    return folder


@pytest.fixture
def both(tmp_path, spark):
    """Two copies of a workspace: work is done here in one, by tasks in the other; one clock for both."""

    @contextmanager
    def opened(**definition):
        with tl.open(tmp_path / "here", create=True) as ws:
            ws.create("trades", **definition)
        shutil.copytree(tmp_path / "here", tmp_path / "there", symlinks=True)
        with tl.open(tmp_path / "here") as here, tl.open(tmp_path / "there", spark=spark) as there:
            here.clock = there.clock = lambda: NOW
            here.config.set("spark.tasks", "never")
            there.config.set("spark.tasks", "always")
            yield here, there

    return opened


def same(here, there):
    """Say that two datasets have the same blocks, and that what they name is there and right."""
    assert here.head == there.head
    assert there.verify().ok


MERGES = {
    "append": None,
    "upsert": tl.merge.upsert("id"),
    "ledger": tl.merge.ledger("id"),
    "snapshot": tl.merge.snapshot("id"),
}


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize("ending", ["csv", "parquet", "jsonl"])
def test_files_are_hashed_read_and_written_by_tasks(ending, both, inbox, spark):
    with both() as (here, there):
        here["trades"].append(str(inbox / f"*.{ending}"))
        with passing() as passed, jobs_in(spark) as jobs:
            commit = there["trades"].append(str(inbox / f"*.{ending}"))
        assert commit.rows == 2 * COUNT
        assert passed[FILES] == passed[WRITTEN] == passed[ROWS] == 0
        assert {"append to trades: hash files", "append to trades: read files"} <= set(jobs)
        assert "append to trades: write slices" in jobs
        same(here["trades"], there["trades"])


@pytest.mark.contract("exchange:E3")
@pytest.mark.parametrize("merge", MERGES)
def test_rows_are_merged_as_here(merge, both, inbox, monkeypatch):
    monkeypatch.setattr(merging, "FEW_ROWS", 100)
    with both(merge=MERGES[merge]) as (here, there):
        for ending in ("csv", "parquet"):
            for ws in (here, there):
                ws["trades"].append(str(inbox / f"0.{ending}"), resend=True)
        same(here["trades"], there["trades"])


def test_bad_cells_and_advice_are_the_same(both, inbox):
    (inbox / "bad.csv").write_text("id,city,price\n1,Bern,x\n2,Zug,1.5\n3,Zug,2.5\n")
    with both() as (here, there):
        found = []
        for ws in (here, there):
            ws["trades"].append(str(inbox / "0.csv"))
            with pytest.warns(match="bad"):
                commit = ws["trades"].append(str(inbox / "bad.csv"), max_bad=1)
            found.append((commit.bad, commit.bad_cells().to_arrow(), commit.advice))
        assert found[0] == found[1]
        same(here["trades"], there["trades"])


def test_a_path_is_that_of_this_process_for_tasks_too(both, inbox, monkeypatch):
    monkeypatch.chdir(inbox)
    with both() as (here, there):
        for ws in (here, there):
            ws["trades"].append("0.csv")
        same(here["trades"], there["trades"])
        assert list(there["trades"].commit().files) == ["0.csv"]


def test_a_broken_file_is_named_as_it_was_given(both, inbox, monkeypatch):
    monkeypatch.chdir(inbox)
    (inbox / "broken.parquet").write_bytes(b"PAR1 and nothing else")
    with both() as (here, there):
        said = []
        for ws in (here, there):
            with pytest.raises(InputError) as caught:
                ws["trades"].append("broken.parquet")
            said.append((caught.value.code, caught.value.problem))
        assert said[0] == said[1]
        assert "broken.parquet" in said[0][1]


# --- streams and tables -----------------------------------------------------------------------


def streams(table):
    return {
        "a reader": lambda: table.to_reader(500),
        "an iterator": lambda: iter(table.to_batches(500)),
        "a table": lambda: table,
    }


@pytest.mark.parametrize("kind", streams(rows()))
def test_of_a_stream_tasks_write_the_slices(kind, both, spark, monkeypatch):
    """Its rows pass this process by their nature: batch by batch into scratch, from where tasks take them."""
    monkeypatch.setattr(stream, "IN_MEMORY_BYTES", 1_000)
    from trueline.workspace import placement

    monkeypatch.setattr(placement, "IN_MEMORY_BYTES", 1_000)
    made = streams(rows())[kind]
    with both() as (here, there):
        here["trades"].append(made())
        with passing() as passed, jobs_in(spark) as jobs:
            there["trades"].append(made())
        assert passed[WRITTEN] == passed[ROWS] == 0
        assert "append to trades: write slices" in jobs
        same(here["trades"], there["trades"])


def test_what_is_small_and_in_memory_is_written_at_once(both, spark):
    with both() as (here, there), jobs_in(spark) as jobs:
        for ws in (here, there):
            ws["trades"].append(rows())
            ws["trades"].append(rows(10).to_pylist())
        assert here["trades"].head == there["trades"].head
    assert jobs == []


# --- views ------------------------------------------------------------------------------------


def views(inbox):
    read = tl.View.read_csv(str(inbox / "0.csv"))
    other = tl.View.read_parquet(str(inbox / "1.parquet"))
    return {
        "files": read,
        "filter": read.filter("price > 0.5").with_columns(twice="price * 2"),
        "sort": read.sort("price", descending=True),
        "join": read.join(other.select("id", "price").rename(other="price"), on="id", how="full"),
        "group": read.group_by("city").agg(n="count(*)", total="sum(price)"),
    }


@pytest.mark.contract("exchange:E2")
@pytest.mark.parametrize("name", ["files", "filter", "sort", "join", "group"])
def test_a_view_is_lowered_and_written_by_the_tasks_that_have_its_rows(name, both, inbox, spark):
    view = views(inbox)[name]
    with both() as (here, there):
        here["trades"].append(view)
        with passing() as passed, jobs_in(spark) as jobs:
            there["trades"].append(view)
        assert passed[FILES] == passed[WRITTEN] == passed[ROWS] == 0
        assert "running the view" in jobs
        same(here["trades"], there["trades"])


def test_a_view_of_a_dataset_says_what_it_was_made_from(both, inbox):
    with both() as (here, there):
        for ws in (here, there):
            ws["trades"].append(rows())
        assert here["trades"].head == there["trades"].head
        for ws in (here, there):
            ws["trades"].append(ws["trades"].view().sort("price").limit(7))
        same(here["trades"], there["trades"])


def test_a_view_of_what_only_this_process_has_is_a_stream_on_a_cluster(both, spark, monkeypatch):
    for module in (frames, places):
        monkeypatch.setattr(module, "shares_folders", lambda session: False)
    view = tl.View.from_arrow(rows(200_000)).filter("price > 0.5")
    with both() as (here, there), jobs_in(spark) as jobs:
        for ws in (here, there):
            ws["trades"].append(view)
        assert "running the view" not in jobs
        assert here["trades"].head == there["trades"].head


# --- preparing, pulling -----------------------------------------------------------------------


def test_steps_run_in_tasks(both, inbox, spark):
    steps = [validate("price < 0.9", drop=True), mask("city", how="stars")]
    with both() as (here, there):
        here["trades"].append(str(inbox / "*.csv"), steps=steps)
        with passing() as passed, jobs_in(spark) as jobs:
            there["trades"].append(str(inbox / "*.csv"), steps=steps)
        assert passed[FILES] == passed[WRITTEN] == passed[ROWS] == 0
        assert any("validate" in job for job in jobs)
        same(here["trades"], there["trades"])


@pytest.mark.parametrize("merge", ["append", "snapshot"])
def test_a_pull_reads_its_source_in_tasks(merge, both, inbox, spark):
    with both(source=str(inbox / "*.csv"), merge=MERGES[merge]) as (here, there):
        here.pull()
        with passing() as passed, jobs_in(spark) as jobs:
            assert there.pull().ok
        assert passed[FILES] == 0
        # Of rows with a key so few are merged by the driver.
        assert (passed[WRITTEN] == passed[ROWS] == 0) == (merge == "append")
        assert "append to trades: read files" in jobs
        same(here["trades"], there["trades"])
        with jobs_in(spark) as jobs:
            assert not [commit for pulled in there.pull() for commit in pulled.commits]
        assert set(jobs) <= {"append to trades: hash files"}, "files that were just written are looked at"


# --- verifying, copying -----------------------------------------------------------------------


def flip(folder):
    """Change a byte of the largest file."""
    path = max(folder.iterdir(), key=lambda each: each.stat().st_size)
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data)


def test_files_are_verified_by_tasks(both, inbox, spark):
    with both() as (here, there):
        for ws in (here, there):
            ws["trades"].append(str(inbox / "*.csv"))
            ws["trades"].append(rows())
        expected = here["trades"].verify()
        with passing() as passed, jobs_in(spark) as jobs:
            report = there["trades"].verify()
        assert passed[OPENED] == 0
        assert jobs == ["verify trades: verifying files"]
        assert report == expected
        assert report.ok
        for ws in (here, there):
            flip(ws["trades"].chain.store.place.path / Folder.DATA)
        found = [ws.verify() for ws in (here, there)]
        assert found[0].problems == found[1].problems != ()


def test_clone_and_push_copy_by_tasks(both, inbox, spark, tmp_path):
    with both() as (_, there):
        ds = there["trades"]
        for ending in ("csv", "parquet"):
            ds.append(str(inbox / f"*.{ending}"))
        with passing() as passed, jobs_in(spark) as jobs:
            sent = ds.push(tmp_path / "copy")
        assert sent.objects == 2
        assert passed[OPENED] == passed[WRITTEN] == 0
        assert jobs == ["checking Spark's workers", "push trades: sending data"]
        with passing() as passed, jobs_in(spark) as jobs:
            twin = there.clone(tmp_path / "copy", "twin")
        assert passed[OPENED] == passed[WRITTEN] == 0
        assert jobs == ["clone twin: fetching data"]
        same(ds, twin)
        ds.append(rows())
        assert ds.push(tmp_path / "copy").objects == 1
        with jobs_in(spark) as jobs:
            assert ds.push(tmp_path / "copy").objects == 0
            there.pull("twin")
            there.pull("twin")
        assert jobs == ["clone twin: fetching data"], "what is there already is not looked for"
        same(ds, twin)


def test_objects_that_are_there_are_kept_and_damaged_ones_brought_again(both, inbox, tmp_path):
    with both() as (_, there):
        ds = there["trades"]
        ds.append(str(inbox / "*.csv"))
        ds.append(rows())
        shutil.copytree(ds.chain.store.place.path / Folder.DATA, tmp_path / "copy" / Folder.DATA)
        flip(tmp_path / "copy" / Folder.DATA)
        sent = ds.push(tmp_path / "copy")
        assert (sent.objects, sent.kept) == (1, 1)
        same(ds, there.clone(tmp_path / "copy", "twin"))


# --- which way ----------------------------------------------------------------------------------


def test_a_local_session_is_not_used_unless_it_is_asked_for(tmp_path, inbox, spark, monkeypatch):
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        ds = ws.create("trades")
        with jobs_in(spark) as jobs:
            ds.append(str(inbox / "0.csv"))
            assert ds.verify().ok
            ds.push(tmp_path / "copy")
        assert jobs == []
        assert not is_cluster(spark)
        assert ws._spark.workers() is None
        monkeypatch.setattr("trueline.spark.session.is_cluster", lambda session: True)
        with jobs_in(spark) as jobs:
            ds.append(str(inbox / "1.csv"))
        assert "append to trades: read files" in jobs
        ws.config.set("spark.tasks", "never")
        with jobs_in(spark) as jobs:
            assert ds.verify().ok
        assert jobs == []


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local", False),
        ("local[4]", False),
        ("local-cluster[2,1,1024]", True),
        ("spark://host:7077", True),
        ("yarn", True),
    ],
)
def test_a_cluster_is_known_by_its_master(master, expected):
    session = SimpleNamespace(sparkContext=SimpleNamespace(master=master))
    assert is_cluster(session) is expected


def test_a_workspace_without_a_session_starts_none(ws, inbox):
    ws.create("trades").append(str(inbox / "0.csv"))
    assert ws.verify().ok
    assert not ws._spark._rooms


# --- what is refused ------------------------------------------------------------------------------


@pytest.fixture
def unknown_workers():
    """Workers of whom nothing is known yet, before and after."""
    workers._workers.clear()
    yield
    workers._workers.clear()


@pytest.fixture
def unseen(tmp_path):
    """A folder that no other process sees under its path: that of an open descriptor of this one."""
    (tmp_path / "mine").mkdir()
    descriptor = os.open(tmp_path / "mine", os.O_RDONLY)
    number = 900
    os.dup2(descriptor, number, inheritable=False)
    os.close(descriptor)
    yield f"/proc/self/fd/{number}"
    os.close(number)


@pytest.mark.contract("exchange:E7")
def test_a_folder_of_files_that_workers_do_not_see_is_refused_first(both, inbox, unseen, spark):
    shutil.copy(inbox / "0.csv", unseen)
    with both() as (here, there):
        head = there["trades"].head
        with jobs_in(spark) as jobs, pytest.raises(EnvironmentMissing) as caught:
            there["trades"].append(f"{unseen}/0.csv")
        assert caught.value.code == "FolderNotShared"
        assert caught.value.folder == unseen
        assert jobs == ["checking Spark's workers"]
        assert there["trades"].head == head
        here["trades"].append(f"{unseen}/0.csv")
        there.config.set("spark.tasks", "never")
        there["trades"].append(f"{unseen}/0.csv")
        assert here["trades"].head == there["trades"].head


@pytest.mark.contract("exchange:E7")
def test_a_workspace_that_workers_do_not_see_is_refused_first(inbox, unseen, spark, tmp_path):
    with tl.open(f"{unseen}/ws", create=True, spark=spark) as ws:
        ds = ws.create("trades")
        ds.append(rows())
        ws.config.set("spark.tasks", "always")
        head = ds.head
        for work in (
            lambda: ds.append(str(inbox / "0.csv")),
            lambda: ds.append(tl.View.read_csv(str(inbox / "0.csv"))),
            ds.verify,
            lambda: ds.push(tmp_path / "copy"),
            lambda: ws.clone(f"{unseen}/ws/datasets/trades", "twin"),
        ):
            with pytest.raises(EnvironmentMissing) as caught:
                work()
            assert caught.value.code == "FolderNotShared"
        assert ds.head == head


def test_workers_are_asked_once_and_about_new_folders_only(both, inbox, spark, unknown_workers, tmp_path):
    other = tmp_path / "other"
    other.mkdir()
    shutil.copy(inbox / "1.parquet", other)
    with both() as (_, there):
        with jobs_in(spark) as jobs:
            there["trades"].append(str(inbox / "0.csv"))
            there["trades"].append(str(inbox / "1.csv"))
            there["trades"].verify()
        assert jobs.count("checking Spark's workers") == 1
        with jobs_in(spark) as jobs:
            there["trades"].append(str(other / "1.parquet"))
        assert jobs.count("checking Spark's workers") == 1


@contextmanager
def workers_with(spark, folder, text):
    """Let workers find another package of our name first."""
    (folder / "trueline").mkdir(parents=True)
    (folder / "trueline" / "__init__.py").write_text(text)
    environment = spark.sparkContext.environment
    before = dict(environment)
    environment["PYTHONPATH"] = os.pathsep.join([str(folder), before.get("PYTHONPATH", "")])
    try:
        yield
    finally:
        environment.clear()
        environment.update(before)


def test_workers_with_another_version_are_refused_by_name(both, inbox, spark, unknown_workers, tmp_path):
    other = workers_with(spark, tmp_path / "other", '__version__ = "0.0.7"\n')
    with both() as (_, there), other, jobs_in(spark) as jobs, pytest.raises(EnvironmentMissing) as caught:
        there["trades"].append(str(inbox / "0.csv"))
    assert caught.value.code == "WorkersOtherTrueline"
    assert caught.value.version == "0.0.7"
    assert f"trueline 0.0.7, and this is {tl.__version__}" in caught.value.problem
    assert caught.value.remedy.endswith(f"-m pip install trueline=={tl.__version__}")
    assert jobs == ["checking Spark's workers"]


def test_workers_without_the_package_are_refused_by_name(both, inbox, spark, unknown_workers, tmp_path):
    gone = "raise ModuleNotFoundError(\"No module named 'trueline'\")\n"
    without = workers_with(spark, tmp_path / "gone", gone)
    with both() as (_, there), without, pytest.raises(EnvironmentMissing) as caught:
        there["trades"].append(str(inbox / "0.csv"))
    assert caught.value.code == "WorkersLackTrueline"
    assert caught.value.host in caught.value.problem
    assert caught.value.remedy.endswith(f"-m pip install trueline=={tl.__version__}")


OTHERS = {
    "WorkersOtherTrueline": '__version__ = "0.0.7"\n',
    "WorkersLackTrueline": "raise ModuleNotFoundError(\"No module named 'trueline'\")\n",
}
WAYS = {
    "rows": lambda view, spark: view.on_spark(spark).to_arrow(),
    "rows in order": lambda view, spark: view.on_spark(spark).sort("n").to_arrow(),
    "count": lambda view, spark: view.on_spark(spark).filter("n > 1").count(),
    "frame": lambda view, spark: view.to_spark(spark).collect(),
    "frame of groups": lambda view, spark: view.group_by("n").agg(m="median(n)").to_spark(spark).collect(),
}


@pytest.mark.contract("exchange:E7")
@pytest.mark.parametrize(("way", "code"), [(way, [*OTHERS][at % 2]) for at, way in enumerate(WAYS)])
def test_a_view_is_not_run_by_workers_of_another_version(way, code, spark, tmp_path):
    """No job asks them first: a frame runs in jobs of whoever has it, on machines that may be new."""
    view = tl.View.from_arrow(pa.table({"n": range(9)}))
    others = workers_with(spark, tmp_path / "other", OTHERS[code])
    with others, jobs_in(spark) as jobs, pytest.raises(EnvironmentMissing) as caught, translated():
        WAYS[way](view, spark)
    assert caught.value.code == code
    assert caught.value.host in caught.value.problem
    assert caught.value.remedy.endswith(f"{sys.executable} -m pip install trueline=={tl.__version__}")
    assert "checking Spark's workers" not in jobs


def test_a_task_refuses_work_of_another_version():
    workers.check_version(tl.__version__)
    with pytest.raises(EnvironmentMissing) as caught:
        workers.check_version("9.9.9")
    assert caught.value.code == "WorkersOtherTrueline"


@pytest.mark.parametrize("answer", [b"", b"[]", b'{"host": 1}', None, b'{"host": "a", "python": 2}'])
def test_an_answer_that_is_not_one_is_refused(answer):
    with pytest.raises(Exception, match="cannot be read") as caught:
        workers._read(answer)
    assert caught.value.code == "BadAnswer"


@pytest.mark.parametrize("version", ["3.5.6", "4.2.9", "4.0.0-preview2"])
def test_a_spark_that_is_too_old_is_refused(version):
    old = SimpleNamespace(version=version, newSession=lambda: pytest.fail("it was used"))
    with pytest.raises(EnvironmentMissing) as caught:
        adopt(old)
    assert caught.value.code == "SparkTooOld"
    assert version in caught.value.problem
    assert ".".join(map(str, OLDEST)) in caught.value.remedy


@pytest.mark.parametrize("way", ["on_spark", "to_spark", "from_spark", "register"])
def test_nothing_is_given_to_a_spark_that_is_too_old(way):
    old = SimpleNamespace(version="4.2.9")
    ways = {
        "on_spark": lambda: tl.View.range(3).on_spark(old),
        "to_spark": lambda: tl.View.range(3).to_spark(old),
        "from_spark": lambda: tl.View.from_spark(SimpleNamespace(sparkSession=old)),
        "register": lambda: source.register(old),
    }
    with pytest.raises(EnvironmentMissing) as caught:
        ways[way]()
    assert caught.value.code == "SparkTooOld"
