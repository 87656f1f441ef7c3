"""Derived datasets of strangers: what their chains say is run when they are verified or pulled."""

from __future__ import annotations

import json
import re
from contextlib import contextmanager, suppress
from dataclasses import replace
from types import SimpleNamespace

import pyarrow as pa
import pytest

import trueline as tl
from tests.attacks.test_query_text import COMMANDS, JAVA, PATHS, PROGRAMS, TABLES
from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from trueline.chain.events import AttachmentEmbedded, AttachmentsEmbedded, SetAttachments
from trueline.chain.head_state import next_block
from trueline.chain.sources import SqlQueryStep
from trueline.dataset.derivation import Derivation, FunctionOf, KeyKind, derivation_at
from trueline.errors import InputError, PullError, QueryError
from trueline.spark import exact_functions
from trueline.spark.canonical import result_of
from trueline.workspace.derive import exact, judged_again, replay_commit, strategies
from trueline.workspace.derive.evaluate import QuerySession
from trueline.workspace.derive.statements import statements

pytestmark = pytest.mark.contract("guard:G9")

COLUMNS = {"account": pa.string(), "total": pa.float64()}
QUERY = "select account, total from transfers"
TRANSFERS = pa.table({"account": ["a"], "total": [1.0]})
WRITES = [
    "insert overwrite local directory '{bait}' using csv select 1",
    "insert overwrite directory '{bait}' using csv select account, total from transfers",
    "create table pwned using csv location '{bait}' as select account, total from transfers",
    "add jar '{bait}'",
    "set spark.sql.ansi.enabled = false",
    "drop view transfers",
    "select account, total from transfers; drop view transfers",
    "cache table transfers",
    "describe transfers",
]
OF_CHANCE = [
    "select account, rand() as total from transfers",
    "select account, cast(unix_timestamp() as double) as total from transfers",
    "select input_file_name() as account, total from transfers",
]
FOREIGN = [*WRITES, *PROGRAMS, *JAVA, *PATHS, *TABLES, *COMMANDS]


@pytest.fixture
def place(tmp_path):
    (tmp_path / "secret").write_text("secret\n")
    return {"secret": tmp_path / "secret", "bait": tmp_path / "touched"}


@pytest.fixture
def given(monkeypatch):
    """What is handed to a Spark that is not there."""
    texts = []

    def sql(text, **_):
        texts.append(text)
        raise AssertionError(text)

    session = SimpleNamespace(sql=sql, _jvm=None)

    @contextmanager
    def opened(_workspace, views, _may_call=None):
        yield QuerySession(session, {name: {} for name in views})

    for room in (strategies, judged_again):
        monkeypatch.setattr(room, "query_session", opened)
    monkeypatch.setattr(replay_commit, "engine_versions", lambda _: {})
    return texts


def foreign(ws, text, strategy):
    """A definition that says one thing and runs another, over one row; its first commit is honest."""
    ws.create("transfers").append(TRANSFERS)
    made = define_by_hand(ws, "totals", QUERY, ["transfers"], columns=COLUMNS)
    with computing(counted):
        ws.pull("totals")
    attach(made, canonical=(text,), strategy=strategy)
    return made


def attach(dataset, **said):
    """Change what stands beside a definition, as whoever writes a chain may."""
    tail = dataset.chain.tail()
    changed = replace(derivation_at(tail), **said)
    assert isinstance(changed.attachments, SetAttachments)
    dataset.chain.append(next_block(tail, changed.attachments))


@pytest.mark.parametrize("text", [*FOREIGN, *OF_CHANCE])
def test_what_is_not_a_query_over_the_inputs_is_no_statement(place, text):
    recorded = Derivation(
        (SqlQueryStep(query=QUERY),), (), (), KeyKind.BAG, canonical=(text.format(**place),)
    )
    with pytest.raises(QueryError, match="a recorded query is not run") as caught:
        statements(recorded, ["people"])
    assert "trusted_sql" not in caught.value.remedy


@pytest.mark.parametrize("text", WRITES)
def test_a_clone_is_verified_without_running_what_it_says(tmp_path, place, given, text):
    with tl.open(tmp_path / "theirs", create=True) as ws:
        ws.create("transfers").append(TRANSFERS)
        canonical = (text.format(**place),)
        define_by_hand(ws, "totals", QUERY, ["transfers"], columns=COLUMNS, canonical=canonical)
        with computing(counted):
            ws.pull("totals")
        for dataset in ws.datasets():
            dataset.push(tmp_path / "shared" / dataset.name)
    with tl.open(tmp_path / "ours", create=True) as ws:
        for name in ("transfers", "totals"):
            ws.clone(tmp_path / "shared" / name, name)
        for mode in (True, "head"):
            report = ws["totals"].verify(replay=mode)
            assert [str(each.kind) for each in report.problems] == ["not_reproducible"]
            assert "a recorded query is not run" in report.problems[0].message
    assert given == []
    assert not place["bait"].exists()


@pytest.mark.parametrize("strategy", ["recompute", "stateless", "keyed"])
@pytest.mark.parametrize("text", [WRITES[0], JAVA[0], PATHS[0], *OF_CHANCE])
def test_a_pull_does_not_run_what_others_recorded(tmp_path, place, given, strategy, text):
    with tl.open(tmp_path / "ws", create=True) as ws:
        made = foreign(ws, text.format(**place), strategy)
        head = made.head
        ws["transfers"].append(TRANSFERS)
        with pytest.raises(PullError) as caught:
            ws.pull()
        assert "a recorded query is not run" in str(caught.value)
        assert made.head == head
    assert given == []
    assert not place["bait"].exists()


def test_functions_of_ours_are_for_recorded_queries_and_not_for_those_that_are_written(tmp_path):
    text = "select account, tl_from_limbs('sum', count(1), 0L, 0L, array(0L)) as total from transfers"
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("transfers").append(TRANSFERS)
        made = define_by_hand(ws, "x", text, ["transfers"], columns=COLUMNS)
        assert statements(derivation_at(made.chain.tail()), ["transfers"]) == (text,)
        with pytest.raises(InputError, match="tl_from_limbs"):
            ws.derive("y", text)
    assert {exact.LIMBS_OF, exact.FROM_LIMBS, exact.FROM_VALUES} == exact_functions.HELPERS


def test_a_function_is_the_one_that_its_transform_names(tmp_path):
    asked = FunctionOf("statistics:mean", "x = 1")
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("transfers").append(TRANSFERS)
        made = define_by_hand(
            ws, "x", "x", ["transfers"], columns=COLUMNS, queries=(asked.step,), canonical=(), function=asked
        )
        with computing(counted):
            ws.pull("x")
        there = derivation_at(made.chain.tail())
        assert judged_again.judged_again(ws, there, {}, {}).wrong == ""
        other = replace(there, function=FunctionOf("os:system", "x = 1"))
        assert "not the one that its SetTransform names" in judged_again.judged_again(ws, other, {}, {}).wrong


# --- with Spark -----------------------------------------------------------------------------


def test_sparks_own_parser_looks_at_each_text_that_is_run(spark, place):
    people = spark.createDataFrame([("Anna",)], "name string")
    people.createOrReplaceTempView("people")
    for text in (each.format(**place) for each in (*WRITES, *PROGRAMS, *JAVA, *PATHS, *COMMANDS)):
        for steps, last in (({}, text), ({"one": text}, "select * from one")):
            with suppress(QueryError):
                result_of(spark, ["people"], steps, last)
                pytest.fail(f"{text!r} was run")
    assert not place["bait"].exists()
    # A step is a table of those after it, and of no others.
    found = result_of(spark, ["people"], {"one": "select name from people"}, "select upper(name) from one")
    assert [row[0] for row in found.collect()] == ["ANNA"]
    with pytest.raises(QueryError, match=re.escape("`one` is not a dataset")):
        result_of(spark, ["people"], {}, "select name from one")


# --- what cannot be read ----------------------------------------------------------------------


def written(dataset, **said):
    """Change the words of the attachment itself."""
    tail = dataset.chain.tail()
    items = tail.attachments.attachments.items if tail.attachments is not None else ()
    usual = {"format": "trueline/definition", "version": 1}
    document = {**(json.loads(items[0].content) if items else usual), **said}
    content = AttachmentEmbedded("trueline.json", json.dumps(document))
    dataset.chain.append(next_block(tail, SetAttachments(AttachmentsEmbedded((content,)))))


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("totals", {"identity": "x"}),
        ("totals", {"canonical": []}),
        ("totals", {"checks": [{"kind": "unique", "columns": 5}]}),
        ("totals", {"checks": [{"kind": ["x"]}]}),
        ("totals", {"nondet": {"transfers": 3}}),
        ("transfers", {"checks": 5}),
        ("transfers", {"checks": [{"kind": "relation", "columns": ["account"], "dataset": [], "other": 1}]}),
        ("transfers", {"lateness_ns": "x"}),
        ("transfers", {"reader": [1]}),
    ],
    ids=str,
)
def test_a_clone_that_cannot_be_read_is_a_problem_of_its_own(tmp_path, name, said):
    with tl.open(tmp_path / "theirs", create=True) as ws:
        ws.create("transfers").append(TRANSFERS)
        define_by_hand(ws, "totals", QUERY, ["transfers"], columns=COLUMNS)
        with computing(counted):
            ws.pull()
        written(ws[name], **said)
        ws[name].push(tmp_path / "shared")
    with tl.open(tmp_path / "ours", create=True) as ws:
        ws.create("mine").append(TRANSFERS)
        define_by_hand(ws, "sums", QUERY, ["mine"], columns=COLUMNS)
        ws.clone(tmp_path / "shared", "evil")
        with computing(counted):
            ws.pull("sums")
            ws["mine"].append(TRANSFERS)
            with suppress(PullError):  # of the clone alone
                ws.pull()
        assert ws["sums"].view().to_arrow()["total"].to_pylist() == [2.0]
        assert not ws.plan("sums").moves
        assert {node.name for node in ws.lineage().nodes} >= {"evil", "mine", "sums"}
        assert [each.info.rows for each in ws.datasets() if each.name != "evil"] == [2, 1]
        assert ws.verify("mine").ok
        with suppress(InputError):
            assert ws["evil"].info
        with suppress(InputError):
            ws["evil"].verify()
        ws.delete("evil")
        assert sorted(ws) == ["mine", "sums"]
