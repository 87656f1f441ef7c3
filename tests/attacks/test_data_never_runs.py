"""Data that would run as code, were anything from outside the process unpickled or evaluated."""

from __future__ import annotations

import ast
import base64
import dataclasses
import json
import pickle
import re
import secrets
import struct
import threading
import typing
from datetime import UTC, date, datetime, time, timedelta
from decimal import Decimal
from pathlib import Path

import numpy as np
import pyarrow as pa
import pytest

import trueline as tl
from tests.architecture import PACKAGE
from tests.spark import deeds
from trueline.chain.block import Block
from trueline.chain.decode import open_manifest
from trueline.chain.decode_templates import TemplateTracer
from trueline.chain.instant import Instant
from trueline.chain.store.scratch import FolderScratch
from trueline.dataset.append.pieces import IncomingPiece
from trueline.dataset.prepare.rows import Parsed, Rows
from trueline.errors import InputError, QueryError, SparkFailed, StorageFull, TruelineError
from trueline.identity.multihash import Multihash
from trueline.readers.batch import ReadStats
from trueline.run import ERASED, Run, Step
from trueline.spark import errors, frames, results, tasks
from trueline.spark import run_executor as running
from trueline.spark.errors import carried, expecting
from trueline.spark.lowering import deliver
from trueline.view import View

pytestmark = pytest.mark.contract("guard:G1")


class Touch:
    """What touches a file when it is unpickled."""

    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


def pickled(path):
    """A blob as errors travelled once: whoever unpickles it touches a file."""
    return f"trueline-error:{base64.b64encode(pickle.dumps(Touch(path))).decode()}:end"


def forged(nonce):
    """A blob as errors travel now, under some nonce."""
    document = {"class": "StorageFull", "problem": "forged", "remedy": "", "code": "Forged", "fields": {}}
    return f"trueline-error:{nonce}:{base64.b64encode(json.dumps(document).encode()).decode()}:end"


@pytest.fixture
def bait(tmp_path):
    """A file that is there once an attack has succeeded."""
    path = tmp_path / "touched"
    yield path
    assert not path.exists(), "data ran as code"


def test_the_bait_works(tmp_path):
    pickle.loads(base64.b64decode(pickled(tmp_path / "x").split(":")[1]))
    assert (tmp_path / "x").exists()


# --- in the text of Spark's errors ----------------------------------------------------------


@pytest.mark.parametrize("form", ["pickled", "guessed"])
def test_a_cell_that_an_error_quotes_does_not_run_and_is_no_error_of_ours(spark, tmp_path, bait, form):
    blob = pickled(bait) if form == "pickled" else forged(secrets.token_hex(16))
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        ws.create("people").append(pa.table({"name": [blob]}))
        with pytest.raises(QueryError) as caught:
            ws.sql("select cast(name as int) as n from people").to_arrow()
        assert blob[:40] in str(caught.value)  # the attack is only one if the text quotes the cell
        assert caught.value.condition == "CAST_INVALID_INPUT"


@pytest.mark.parametrize("form", ["pickled", "guessed"])
def test_a_column_name_of_a_clone_that_an_error_suggests_does_not_run(spark, tmp_path, bait, form):
    blob = pickled(bait) if form == "pickled" else forged(secrets.token_hex(16))
    with tl.open(tmp_path / "stranger", create=True) as theirs:
        theirs.create("people").append(pa.table({blob: ["x"]}))
    with tl.open(tmp_path / "ws", create=True, spark=spark) as ws:
        ws.clone(tmp_path / "stranger" / "datasets" / "people")
        with pytest.raises(QueryError) as caught:
            ws.sql("select nam from people")
        assert blob[:40] in str(caught.value)
        assert caught.value.condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION"


def test_a_blob_of_an_earlier_job_is_not_accepted_again(spark_room, monkeypatch):
    said = []
    translate = errors.translate

    def listening(error, *more):
        said.append(str(error))
        return translate(error, *more)

    monkeypatch.setattr(errors, "translate", listening)
    with pytest.raises(StorageFull) as caught:
        list(spark_room.tasks().map(deeds.fill, [7], label="filling"))
    assert (caught.value.number, caught.value.remedy) == (7, "make room")  # in its job it is understood
    (text,) = said
    assert "trueline-error:" in text
    assert carried(text) is None
    with expecting():
        assert carried(text) is None


def test_the_error_of_a_task_is_found_behind_forged_ones(spark_room):
    with pytest.raises(StorageFull) as caught:
        list(spark_room.tasks().map(deeds.fill_quoting, [forged("0" * 32)], label="filling"))
    assert caught.value.code == "StorageFull"


def test_a_task_that_quotes_data_does_not_make_it_an_error_of_ours(spark_room, bait):
    for blob in (pickled(bait), forged("0" * 32)):
        with pytest.raises(TruelineError) as caught:
            list(spark_room.tasks().map(int, [blob], label="counting"))
        assert (caught.value.code, caught.value.error) == ("TaskFailed", "ValueError")


@pytest.mark.parametrize(
    "document",
    [
        {"class": "Path"},
        {"class": "_rebuild"},
        {"class": "Any"},
        {"class": "__builtins__"},
        {"class": ["StorageFull"]},
        {"class": "StorageFull", "problem": {"exception": ["SystemExit", []]}},
        {"class": "StorageFull", "fields": {"x": {"pathlib.Path": "/"}}},
        {"class": "StorageFull", "fields": {"x": {"exception": ["exec", ["1"]]}}},
        {"class": "StorageFull", "fields": 3},
        [],
        None,
    ],
)
def test_even_under_the_right_nonce_only_errors_of_ours_are_made(document):
    if isinstance(document, dict):
        document = {"problem": "p", "remedy": "r", "code": "c", "fields": {}} | document
    with expecting() as nonce:
        blob = base64.b64encode(json.dumps(document).encode()).decode()
        assert carried(f"trueline-error:{nonce}:{blob}:end") is None


# --- in what tasks answer -------------------------------------------------------------------


def answers(path):
    """What a hostile Spark answers instead of a result."""
    yield pickle.dumps(Touch(path))
    for document in (
        {"builtins.eval": "open('x')"},
        {"exception": ["eval", ["1"]]},
        {"exception": ["KeyboardInterrupt", []]},
        {"scratch": "0" * 32},
        {"scratch": str(path)},
        {"error": {"class": "Path", "problem": "", "remedy": "", "code": "", "fields": {}}},
        {"os.system": "true"},
        {"builtins.tuple": 3},
        {"pyarrow.lib.Table": base64.b64encode(pickle.dumps(Touch(path))).decode()},
        {"pyarrow.lib.Schema": "!"},
        {"a": 1, "b": 2},
    ):
        yield json.dumps(document).encode()
    yield b"[" * 100_000
    yield b"\xff"
    yield None


def test_answers_of_tasks_are_never_unpickled(spark_room, bait, monkeypatch):
    for answer in answers(bait):
        table = pa.table({"id": [0], "result": [answer], "rows": [0]}, schema=tasks._ARROW)
        monkeypatch.setattr(tasks, "run", lambda *_, table=table, **__: table)
        with pytest.raises(SparkFailed) as caught:
            list(spark_room.tasks().map(deeds.square, [1], label="t"))
        assert caught.value.code == "BadAnswer", answer


def test_answers_of_partitions_are_never_unpickled(spark, bait, monkeypatch):
    for answer in answers(bait):
        table = pa.table({"partition": [0], "result": [answer]}, schema=frames._ARROW)
        monkeypatch.setattr(frames, "run", lambda *_, table=table, **__: table)
        with pytest.raises(SparkFailed) as caught:
            frames.write_pieces(spark.range(1), deeds.count_rows)
        assert caught.value.code == "BadAnswer", answer


def answering(answer):
    """What a hostile worker does instead of its task."""

    def task(batches):
        yield pa.record_batch([[0], [answer]], schema=pa.schema({"id": pa.int64(), "result": pa.binary()}))

    return task


def test_answers_of_runs_are_never_unpickled(spark_room, bait, monkeypatch):
    step = Step(map=lambda key, value: value)
    for answer in (*answers(bait), b"[]", b"3", b'[[[5,"x"]],[],[]]', b'[[],[],[[0,"no error"]],[]]'):
        monkeypatch.setattr(running, "_Task", lambda step, packed, answer=answer: answering(answer))
        with pytest.raises(SparkFailed) as caught:
            Run([step], executor=running.Spark(spark_room)).execute({"k": 1})
        assert caught.value.code == "BadAnswer", answer


def test_rows_of_a_spark_elsewhere_are_fetched_without_pickle(spark, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("rows of executors are unpickled")

    monkeypatch.setattr("pyspark.serializers.CPickleSerializer.loads", refuse)
    frame = spark.range(0, 1_000, 1, 4)
    spooled = frames.fetch(frame, tmp_path)
    assert spooled.rows == 1_000
    with pytest.raises(AssertionError):
        list(frame.toLocalIterator())  # the way that is not taken


def test_a_task_says_the_name_of_its_file_and_not_the_folder(tmp_path, monkeypatch):
    name = f"part-00000-{'0' * 32}-c000.parquet"
    said = [frames.WrittenPiece(name, 1, 1)]
    monkeypatch.setattr(frames, "write_pieces", lambda *_, **__: said)
    monkeypatch.setattr(frames, "_checked", lambda frame: pa.schema({"a": pa.int64()}))
    monkeypatch.setattr(frames, "engine_of", lambda session: type("C", (), {"is_connect": True}))
    seen = []
    monkeypatch.setattr(frames, "_all_there", lambda spooled, target, count: seen.append((spooled, target)))
    frame = type("Frame", (), {"sparkSession": None})
    frames.spool(frame, tmp_path)
    ((spooled, target),) = seen
    assert [piece.path for piece in spooled.pieces] == [str(target / name)]
    for hostile in ("/etc/passwd", "../part.parquet", f"../{name}", "", "part-00000-x-c000.parquet"):
        said[:] = [frames.WrittenPiece(hostile, 1, 1)]
        with pytest.raises(SparkFailed, match="not the name of a piece"):
            frames.spool(frame, tmp_path)


NAME = f"rows-00000-{'0' * 32}.arrow"


@pytest.mark.parametrize(
    "answer",
    [3, "x", (NAME, "many"), (NAME, -1), (NAME, 1, 1), (NAME,), (3, 4), (f"../{NAME}", 1), {}],
)
def test_a_task_that_says_something_else_of_its_rows_is_not_believed(answer, spark, monkeypatch):
    monkeypatch.setattr(deliver, "write_pieces", lambda *_, **__: [answer])
    with pytest.raises(SparkFailed) as caught:
        View.range(3).on_spark(spark).to_arrow()
    assert caught.value.code == "BadAnswer"


@pytest.mark.parametrize("answer", [3, "x", (NAME, 1), frames.WrittenPiece(NAME, -1, 1)])
def test_a_task_that_says_something_else_of_its_piece_is_not_believed(answer, tmp_path, monkeypatch):
    monkeypatch.setattr(frames, "write_pieces", lambda *_, **__: [answer])
    monkeypatch.setattr(frames, "_checked", lambda frame: pa.schema({"a": pa.int64()}))
    monkeypatch.setattr(frames, "engine_of", lambda session: type("C", (), {"is_connect": True}))
    with pytest.raises(SparkFailed) as caught:
        frames.spool(type("Frame", (), {"sparkSession": None}), tmp_path)
    assert caught.value.code == "BadAnswer"


@pytest.mark.parametrize(
    "said", [{"name": 3}, {"rows": "many"}, {"rows": None}, {"size": 1.5}, {"name": {"builtins.tuple": []}}]
)
def test_fields_of_an_answer_are_what_they_are_declared_as(said):
    found = {"trueline.spark.frames.WrittenPiece": {"name": "a", "rows": 1, "size": 1} | said}
    with pytest.raises(SparkFailed) as caught:
        results.decode(json.dumps(found).encode())
    assert caught.value.code == "BadAnswer"


def test_rows_of_executors_whose_offsets_are_wrong_are_not_read():
    """Reading such a text would be reading beyond the memory it is in."""
    sink = pa.BufferOutputStream()
    table = pa.table({"s": ["seven__", "eleven_____"]})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    good, right = sink.getvalue().to_pybytes(), struct.pack("<3i", 0, 7, 18)
    assert good.count(right) == 1
    assert pa.Table.from_batches(results.batches_of(good, ["s"])).equals(table)
    for wrong in ((0, 7, 1 << 20), (0, -7, 18), (0, 18, 7)):
        bad = good.replace(right, struct.pack("<3i", *wrong))
        told = json.dumps({"pyarrow.lib.Table": base64.b64encode(bad).decode()}).encode()
        for read in (
            lambda bad=bad: list(results.batches_of(bad, ["s"])),
            lambda told=told: results.decode(told),
        ):
            with pytest.raises(SparkFailed) as caught:
                read()
            assert caught.value.code == "BadAnswer"
    with pytest.raises(SparkFailed, match="rows of the columns"):
        list(results.batches_of(good, ["t"]))
    for bad in (b"", b"nothing", good[: len(good) // 2]):
        with pytest.raises(SparkFailed):
            list(results.batches_of(bad, ["s"]))


def test_every_answer_can_be_read_again():
    scratch = FolderScratch(Path("somewhere"))
    values = [
        None, True, 3, 1 << 80, -0.5, float("inf"), "text \ud800 é", b"\0\xff", [1, [2]], (1, (2,)),
        {1: {"a": ()}}, {1, 2}, frozenset({"x"}), date(2026, 11, 13), datetime(2026, 11, 13, 1, tzinfo=UTC),
        time(1, 2, 3, 4), timedelta(days=-1, microseconds=5), Decimal("1.50"), Multihash.of(b"x"), Instant(5),
        ERASED, pa.schema({"a": pa.int64()}), pa.table({"a": [1, None]}),
        IncomingPiece(3, scratch=scratch, name="x", ends=(1, 3)),
        Rows("digest", 3, scratch, "name", Parsed(ReadStats(rows=4, bad={"a": 1}), pa.table({"a": [1]}))),
    ]  # fmt: skip
    read = results.decode(results.encode(values))
    assert read == values
    assert [type(value) for value in read] == [type(value) for value in values]
    assert read[-2].scratch is scratch
    assert results.decode(results.encode(np.int64(3))) == 3
    assert repr(results.decode(results.encode(ZeroDivisionError("by", 0)))) == "ZeroDivisionError('by', 0)"
    told = results.decode(results.encode(UnicodeDecodeError("utf-8", b"\xff", 0, 1, "bad")))
    assert (type(told), told.args) == (UnicodeDecodeError, ("utf-8", b"\xff", 0, 1, "bad"))


@pytest.mark.parametrize("value", [object(), print, Path("x"), threading.Lock(), type, {"a": [object()]}])
def test_what_is_not_plain_is_refused_where_it_is_made(value):
    with pytest.raises(InputError) as caught:
        results.encode(value)
    assert caught.value.code == "NotPlain"


def test_all_that_an_answer_holds_is_of_the_list():
    """Each dataclass that a field of an answer may hold is one that can be read again."""
    known = set(results.records())
    for kind in known:
        for name, hint in typing.get_type_hints(kind).items():
            held = {each for each in parts_of(hint) if dataclasses.is_dataclass(each)}
            assert held <= known, f"{kind.__name__}.{name}"


def parts_of(hint):
    yield hint
    for argument in typing.get_args(hint):
        yield from parts_of(argument)


# --- in the package -------------------------------------------------------------------------

# Each place that could turn bytes or text into code, and why it does so to nothing from outside.
SAFE = {
    ("spark/packing.py", "import pickle"): "for pickle.loads below",
    ("spark/packing.py", "pickle.PicklingError"): "the error of packing",
    ("spark/workers.py", "__import__"): "in a task, of our own package by its name",
    ("spark/workers.py", "import pickle"): "for pickle.loads below",
    ("spark/workers.py", "pickle.loads"): "in a task, of what its driver sent, once versions agree",
    ("spark/packing.py", "import cloudpickle"): "for cloudpickle.dumps below",
    ("spark/packing.py", "cloudpickle.dumps"): "work of the driver, going out",
    ("spark/packing.py", "pickle.loads"): "in a task, of what the driver of that task sent",
    ("spark/increments.py", "unpack"): "in a task, of the ranges and files its driver sent",
    ("spark/lowering/lowered.py", "unpack"): "in a task, of the pieces and steps its driver sent",
    ("spark/run_executor.py", "unpack"): "in a task, of the step and the values its driver sent",
    ("spark/source.py", "unpack"): "in a task, of the partition its driver sent",
    ("spark/tasks.py", "unpack"): "in a task, of the descriptor its driver sent",
    ("spark/views.py", "unpack"): "in a task, of the piece its driver sent",
    ("run/executors.py", "import pickle"): "for the uses below",
    ("run/executors.py", "pickle.dumps"): "steps going out to processes started here",
    ("run/executors.py", "pickle.loads"): "in a process started by the sender; and of an error just pickled",
    ("run/executors.py", "ProcessPoolExecutor"): "answers of child processes come by pipes nobody else has",
    ("run/purity.py", "import pickle"): "for pickle.dumps below",
    ("run/purity.py", "pickle.dumps"): "values of this process, to compare them; never read again",
    ("run/equality.py", "import pickle"): "for pickle.dumps below",
    ("run/equality.py", "pickle.dumps"): "values of this process, to compare them; never read again",
    ("flow/values.py", "import pickle"): "for pickle.dumps below",
    ("flow/values.py", "pickle.dumps"): "values of this process, to compare them; never read again",
    ("chain/decode.py", "unpack"): "of struct, which makes numbers",
    ("chain/decode_templates.py", "eval"): "names of the package and whole numbers: tested below",
    ("readers/parquet_pages.py", "unpack"): "of struct, which makes numbers",
    ("lazy.py", "import_module"): "names from tables in the package",
    ("testing/__init__.py", "import_module"): "names from a table in the package",
    ("cli/app.py", "import_module"): "names from a table in the package",
    ("cli/flows.py", "import_module"): "the module that the caller of the command names",
    ("cli/flows.py", "exec_module"): "the file that the caller of the command names",
    ("dataset/prepare/parse.py", "import_module"): "the step that the caller of the command names",
    ("workspace/derive/function.py", "import_module"): "the function that a caller named, or confirmed",
}
RUNS = {
    "eval", "exec", "compile", "__import__", "import_module", "exec_module", "run_path", "run_module",
    "unpack", "deserialize", "deserialize_from", "read_pickle", "ProcessPoolExecutor", "Unpickler",
}  # fmt: skip
MODULES = {"pickle", "cloudpickle", "_pickle", "marshal", "shelve", "dill", "joblib", "runpy"}


def risks(tree):
    """Find what could turn bytes or text into code: imports of such modules, and calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (f"import {a.name}" for a in node.names if a.name.split(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            names = {alias.name for alias in node.names}
            yield from (f"import {name}" for name in names & MODULES)
            if (node.module or "").split(".")[0] in MODULES:
                yield from (f"import {node.module}.{name}" for name in names)
        elif (
            isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in MODULES
        ):
            yield f"{node.value.id}.{node.attr}"
        elif isinstance(node, ast.Attribute) and node.attr.endswith("Loader") and "Safe" not in node.attr:
            yield ast.unparse(node)
        elif isinstance(node, ast.Call):
            yield from called(node)


def called(node):
    name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
    whole = ast.unparse(node.func)
    constant = bool(node.args) and isinstance(node.args[0], ast.Constant)
    harmless = {
        "compile": whole in ("re.compile", "flow.compile", "self.compile", "self.location.flow.compile"),
        "import_module": constant,
        "__import__": constant,
        "unpack": whole.startswith("struct.") or whole.endswith("_STRUCT.unpack"),
    }
    if name in RUNS and not harmless.get(name):
        yield name
    if whole.endswith("yaml.load") or (name == "load" and "allow_pickle" in {k.arg for k in node.keywords}):
        yield whole
    if whole in ("np.load", "numpy.load"):
        yield whole


def test_every_place_that_could_run_data_is_known_with_its_reason():
    found = {
        (path.relative_to(PACKAGE).as_posix(), risk)
        for path in PACKAGE.rglob("*.py")
        for risk in risks(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found - set(SAFE) == set(), "new: say why nothing from outside gets there, or do without"
    assert set(SAFE) - found == set(), "stale"


NOTICED = """
import pickle; from pickle import loads; import marshal as m; import shelve; import dill; eval(x); exec(x)
compile(x, 'a', 'exec'); __import__(x); importlib.import_module(x); import_module(name); runpy.run_path(x)
yaml.load(x); ruamel.yaml.load(x); np.load(x); numpy.load(x, allow_pickle=True); pd.read_pickle(x); unpack(x)
pa.deserialize(x); pa.ipc.deserialize_from(x); from pyspark import cloudpickle; spec.loader.exec_module(m)
ProcessPoolExecutor(3); pickle.Unpickler(x); yaml.FullLoader(x)
"""


@pytest.mark.parametrize("text", NOTICED.replace("\n", ";").strip(";").split(";"))
def test_the_list_would_notice(text):
    assert list(risks(ast.parse(text.strip())))


def test_what_is_evaluated_of_a_block_holds_none_of_its_text(tmp_path):
    hostile = "__import__('os').system('true')"
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("x").append(pa.table({hostile: [hostile]}))
        raws = [path.read_bytes() for path in (ws._location.path / "datasets" / "x" / "blocks").iterdir()]
    assert any(hostile.encode() in raw for raw in raws)
    for raw in raws:
        source = TemplateTracer(raw, *open_manifest(raw)).root(Block)
        kinds = {type(node) for node in ast.walk(ast.parse(source, mode="eval"))}
        assert kinds <= {ast.Expression, ast.Call, ast.Name, ast.Load, ast.Constant, ast.keyword, ast.Tuple}
        assert re.fullmatch(r"[\w(), =]+", source)
        names = {node.id for node in ast.walk(ast.parse(source)) if isinstance(node, ast.Name)} - {"raw"}
        assert all(re.fullmatch(r"v\d+", name) for name in names)
