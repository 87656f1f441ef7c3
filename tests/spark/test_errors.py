"""Spark's errors as ours, without a Spark: the texts are what classic and Connect were seen to say."""

from __future__ import annotations

import logging
import re
import sys

import pytest

from trueline.errors import (
    EnvironmentMissing,
    HashMismatch,
    InputError,
    ObjectMissing,
    OutOfMemory,
    QueryError,
    SparkFailed,
    StorageFull,
    TaskFailed,
)
from trueline.spark.errors import (
    CarriedError,
    SignedError,
    carried,
    carrying,
    expecting,
    lasting_nonce,
    translate,
    translated,
)

ABORTED = """An error occurred while calling o267.getResult.
: org.apache.spark.SparkException: Exception thrown in awaitResult:
\tat org.apache.spark.util.SparkThreadUtils$.awaitResult(SparkThreadUtils.scala:70)
\tat java.base/java.lang.Thread.run(Thread.java:840)
Caused by: org.apache.spark.SparkException: Job aborted due to stage failure: Task 3 failed 4 times, \
most recent failure: Lost task 3.3 in stage 2.0: {reason}
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1136)
Driver stacktrace:
\tat org.apache.spark.scheduler.DAGScheduler.abortStage(DAGScheduler.scala:2)
"""
PYTHON = """
  An exception was thrown from the Python worker. Please see the stack trace below.
[PYTHON_EXCEPTION] An exception was thrown from the Python worker: Traceback (most recent call last):
  File "/x/pyspark/python/lib/pyspark.zip/pyspark/worker.py", line 4327, in invoke_udf
    run_process()
  File "/srv/job.py", line 7, in bad
    raise ValueError("boom")
ValueError: boom
 SQLSTATE: 38000

JVM stacktrace:
org.apache.spark.api.python.PythonException
\tat org.apache.spark.api.python.BasePythonRunner.read(PythonRunner.scala:1136)
"""


class Said(Exception):
    """An error that says something, as Spark's do."""


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (ABORTED.format(reason="java.lang.OutOfMemoryError: Java heap space"), "OutOfMemory"),
        (ABORTED.format(reason="Python worker exited unexpectedly (crashed)."), "WorkerLost"),
        (ABORTED.format(reason="ExecutorLostFailure (executor 1 exited)"), "WorkerLost"),
        ("Job 3 cancelled because of tag trueline-1", "Cancelled"),
        (
            "(org.apache.spark.SparkSQLException) [OPERATION_CANCELED] Operation has been canceled.",
            "Cancelled",
        ),
        ("Total size of results (2 GiB) is bigger than spark.driver.maxResultSize (1 GiB)", "OutOfMemory"),
        ("status = StatusCode.UNAVAILABLE details = failed to connect", "SparkGone"),
        ("Answer from Java side is empty", "SparkGone"),
        (ABORTED.format(reason="java.io.IOException: No route"), "SparkFailed"),
    ],
)
def test_a_job_that_failed_is_told_by_its_cause(text, code):
    error = translate(Said(text))
    assert isinstance(error, OutOfMemory if code == "OutOfMemory" else SparkFailed)
    assert error.code == code
    assert error.remedy
    assert "\tat " not in str(error)
    assert "Caused by" not in str(error)
    assert "awaitResult" not in str(error)


def test_a_traceback_of_a_worker_is_shortened_to_the_users_frames():
    error = translate(Said(PYTHON))
    assert isinstance(error, TaskFailed)
    assert error.problem == "a function failed in a Spark task: ValueError: boom"
    assert error.traceback == (
        '  File "/srv/job.py", line 7, in bad\n    raise ValueError("boom")\nValueError: boom'
    )


def test_workers_without_trueline_are_recognised():
    error = translate(
        Said(PYTHON.replace("ValueError: boom", "ModuleNotFoundError: No module named 'trueline'"))
    )
    assert isinstance(error, EnvironmentMissing)
    assert error.code == "WorkersLackTrueline"


def test_an_error_of_ours_is_found_in_the_text_of_sparks():
    sent = StorageFull("no space", remedy="make room", code="Quota", path="x", left=3)
    with expecting() as nonce:
        said = f"trueline.spark.errors.CarriedError: {CarriedError(sent, nonce)}"
        error = translate(Said(PYTHON.replace("ValueError: boom", said)))
    assert (type(error), error.problem, error.remedy, error.code) == (
        StorageFull,
        "no space",
        "make room",
        "Quota",
    )
    assert error.fields == {"path": "x", "left": 3}


def test_a_class_of_elsewhere_arrives_as_the_nearest_of_ours():
    class Odd(HashMismatch):
        pass

    with expecting() as nonce:
        error = carried(str(CarriedError(Odd("odd", remedy="r"), nonce)))
    assert (type(error), error.problem, error.remedy, error.code) == (HashMismatch, "odd", "r", "Odd")


def test_fields_arrive_as_plain_values_and_others_as_text():
    class Mute:
        def __str__(self):
            raise TypeError("not me")

    sent = HashMismatch("x" * 20_000, many=(1, [2.5, {"k": None}]), raw=b"x", odd=object, mute=Mute())
    with expecting() as nonce:
        error = carried(str(CarriedError(sent, nonce)))
    assert error.problem == "x" * 10_000
    assert error.fields == {
        "many": (1, [2.5, {"k": None}]),
        "raw": b"x",
        "odd": "<class 'object'>",
        "mute": "<Mute>",
    }


@pytest.mark.parametrize("letter", ["é", "\U0001f600", "\ud800", "\0"])
def test_an_error_of_the_longest_text_arrives_without_its_fields(letter):
    sent = HashMismatch(letter * 50_000, remedy=letter * 50_000, code=letter * 5_000, text=letter * 500_000)
    with expecting() as nonce:
        error = carried(str(CarriedError(sent, nonce)))
    assert (error.problem, error.remedy, error.fields) == (letter * 10_000, letter * 10_000, {})


def test_without_a_nonce_an_error_is_text_that_says_what_to_do():
    said = CarriedError(StorageFull("no space", remedy="make room", path="x"), "")
    assert str(said) == "no space → make room"
    text = PYTHON.replace("ValueError: boom", f"trueline.spark.errors.CarriedError: {said}")
    error = translate(Said(text))
    assert isinstance(error, TaskFailed)
    assert error.problem.endswith("no space → make room")


# --- of what users run themselves -----------------------------------------------------------


def raised(error: Exception, nonce: str) -> SignedError:
    with pytest.raises(SignedError) as caught, carrying(nonce):
        raise error
    return caught.value


def test_an_error_that_users_read_is_its_message_its_remedy_and_one_short_line():
    said = raised(
        StorageFull("no space", remedy="make room", code="Quota", path="x", left=3), lasting_nonce()
    )
    first, second, last = str(said).split("\n")
    assert (first, second) == ("no space", "  → make room")
    assert re.fullmatch(r'  \[StorageFull Quota {"path":"x","left":3} 8\+9\.[0-9a-f]{16}\]', last)
    assert (type(said).__module__, type(said).__name__) == ("trueline.errors", "StorageFull")
    assert str(raised(StorageFull("no space", remedy="make room"), "")) == "no space\n  → make room"


@pytest.mark.parametrize(
    ("problem", "remedy"),
    [
        ("no space", "make room"),
        ("no remedy", ""),
        ("two\n    + lines: é\U0001f600", "a → b\n  → c"),
        ("quotes [StorageFull Quota 8+9.0123456789abcdef]", "x"),
    ],
)
def test_it_is_found_in_the_text_of_sparks(problem, remedy):
    said = raised(StorageFull(problem, remedy=remedy, code="Quota", path="x"), lasting_nonce())
    error = translate(Said(PYTHON.replace("ValueError: boom", f"trueline.errors.StorageFull: {said}")))
    assert (type(error), error.problem, error.remedy) == (StorageFull, problem, remedy)
    assert (error.code, error.fields) == ("Quota", {"path": "x"})


def test_what_is_long_is_cut_and_long_fields_are_left_out():
    sent = StorageFull("\0\ud800" * 9_000, remedy="r" * 9_000, code="not a word", text="x" * 101, left=3)
    said = str(raised(sent, lasting_nonce()))
    assert len(said.encode()) < 10_000
    error = carried(said)
    assert error.problem.startswith("\\x00\\ud800")
    assert len(error.problem) == len(error.remedy) == 2_000
    assert (error.code, error.fields) == ("StorageFull", {"left": 3})


def test_a_text_that_was_changed_or_that_others_signed_is_not_ours():
    nonce = lasting_nonce()
    said = str(raised(StorageFull("no space", remedy="make room", left=3), nonce))
    assert carried(said) is not None
    for old, new in (
        ("no space", "no place"),
        ("make", "take"),
        ("[StorageFull", "[HashMismatch"),
        (":3", ":4"),
    ):
        assert old in said
        assert carried(said.replace(old, new)) is None
    assert carried(said[1:]) is None
    assert carried(str(raised(StorageFull("no space", remedy="make room"), "0" * 32))) is None
    with expecting() as other:
        assert carried(str(raised(StorageFull("no space"), other))) is None, "jobs of ours have another form"


def test_a_signed_class_that_is_not_an_error_of_ours_makes_none(monkeypatch):
    from trueline.spark import errors

    document = {"class": "Path", "problem": "", "remedy": "", "code": "Path", "fields": {}}
    monkeypatch.setattr(errors, "error_document", lambda _: document)
    assert carried(str(raised(StorageFull("a problem"), lasting_nonce()))) is None


def test_an_exception_of_others_says_where_it_came_from():
    said = raised(ZeroDivisionError("by zero"), lasting_nonce())
    assert isinstance(said.__cause__, ZeroDivisionError)
    error = translate(Said(PYTHON.replace("ValueError: boom", f"trueline.errors.TaskFailed: {said}")))
    assert isinstance(error, TaskFailed)
    assert error.problem.startswith("reading the dataset: task 0 failed: ZeroDivisionError: by zero")
    assert "/srv/job.py" in error.traceback, "what the remedy names"


@pytest.mark.parametrize(
    "text", ["", "nothing here", "trueline-error::end", f"trueline-error:{'0' * 32}:e30=:end"]
)
def test_text_without_an_error_of_ours_holds_none(text):
    assert carried(text) is None


def test_errors_that_are_not_sparks_are_left_alone():
    with pytest.raises(ZeroDivisionError), translated():
        1 / 0  # noqa: B018
    ours = HashMismatch("x")
    with pytest.raises(HashMismatch) as caught, translated():
        raise ours
    assert caught.value is ours


def test_what_pyspark_refuses_itself_is_the_callers_input(spark):
    with pytest.raises(QueryError), translated():
        spark.range(3).select(3.5)
    with pytest.raises(QueryError) as caught, translated():
        spark.range(3).select("nope")
    assert caught.value.condition == "UNRESOLVED_COLUMN.WITH_SUGGESTION"


def test_pyspark_logs_no_error_that_we_raise_and_every_other(spark, caplog):
    logger = logging.getLogger("SQLQueryContextLogger")
    seen = []
    handler = logging.Handler()
    handler.emit = seen.append
    logger.addHandler(handler)
    try:
        with pytest.raises(QueryError), translated():
            spark.sql("select nope")
        assert seen == []
        with pytest.raises(Exception, match="nope"):
            spark.sql("select nope")
        assert len(seen) == 1
    finally:
        logger.removeHandler(handler)


def test_a_query_error_shows_the_place_and_what_stands_there(spark):
    with pytest.raises(QueryError) as caught, translated():
        spark.sql("select id,\n  idd from range(3)")
    assert str(caught.value) == (
        "A column, variable, or function parameter with name `idd` cannot be resolved. "
        "Did you mean one of the following? [`id`]. (line 2, column 3)\n    idd\n  → fix the query there"
    )
    assert caught.value.__suppress_context__


@pytest.mark.parametrize(
    ("text", "named"),
    [
        (
            PYTHON.replace(
                "ValueError: boom",
                "pyspark.errors.exceptions.base.PySparkRuntimeError: [PYTHON_VERSION_MISMATCH] Python in "
                "worker has different version: 3.9 than that in driver: 3.12, PySpark cannot run with "
                "different minor versions.\nPlease check environment variables.",
            ),
            "Python 3.9",
        ),
        (
            ABORTED.format(reason='java.io.IOException: Cannot run program "python3": error=2, No such file'),
            "'python3', which cannot be started",
        ),
    ],
)
def test_workers_with_another_python_are_named_with_the_variable_that_chooses_it(text, named):
    error = translate(Said(text))
    assert isinstance(error, EnvironmentMissing)
    assert error.code == "WorkersOtherPython"
    assert named in error.problem
    assert f"PYSPARK_PYTHON={sys.executable}" in error.remedy


def test_a_place_in_a_query_is_under_a_caret():
    class Analysis(Said):
        def getSqlState(self):
            return "42601"

    said = "[PARSE_SYNTAX_ERROR] Syntax error at or near 'sales': extra input 'sales'. (line 2, pos 9)"
    error = translate(Analysis(said), "select *\n  forms  sales")
    first, line, carets = error.problem.split("\n")
    assert first == "Syntax error at or near 'sales': extra input 'sales'. (line 2, column 10)"
    assert line[carets.index("^") :] == "sales"
    assert carets.strip() == "^" * 5


# --- folders that are not shared ------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "[PATH_NOT_FOUND] Path does not exist: file:{path}. SQLSTATE: 42K03",
        "[FAILED_READ_FILE] Error while reading file file://{path}. File does not exist. It is",
        "java.io.FileNotFoundException: File file:{path} does not exist\n\tat x",
    ],
)
def test_a_file_that_only_this_process_sees_is_in_a_folder_that_is_not_shared(said, tmp_path):
    path = tmp_path / "rows of x.parquet"
    missing = translate(Exception(said.format(path=path)))
    assert getattr(missing, "code", "") != "FolderNotShared", "this process does not see it either"
    path.touch()
    found = translate(Exception(said.format(path=path)))
    assert (type(found), found.code, found.folder) == (EnvironmentMissing, "FolderNotShared", str(tmp_path))
    assert str(path) in found.problem


@pytest.mark.parametrize("kind", ["file", "slice", "object"])
def test_a_file_that_a_task_misses_and_this_process_sees_is_not_shared(kind, tmp_path):
    (tmp_path / "data").mkdir()
    path = tmp_path / "data" / "f16"
    error = {
        "file": InputError("there is no file", code="NoSuchFile", path=str(path)),
        "slice": ObjectMissing("missing", code="SliceMissing", location=str(tmp_path), file="data/f16"),
        "object": ObjectMissing("missing", location=str(tmp_path), folder="data", hash="f16"),
    }[kind]
    with expecting() as nonce:
        told = Exception(str(CarriedError(error, nonce)))
        assert type(translate(told)) is type(error)
        path.touch()
        assert translate(told).code == "FolderNotShared"
