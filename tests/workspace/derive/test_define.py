"""Defining derived datasets: what is checked, what is recorded, and what another definition does."""

from __future__ import annotations

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.following import follow_all
from trueline.chain.events import SetTransform
from trueline.chain.manifest import DatasetSnapshot
from trueline.cli import main
from trueline.dataset.derivation import KeyKind, derivation_at
from trueline.errors import DatasetExists, DataWarning, InputError, ManifestError, PullError, TruelineError
from trueline.workspace.derive.request import request_of_manifest

BALANCES = "select account, sum(amount) as total from transfers group by account"


@pytest.fixture
def ws(spark_workspace):
    transfers = spark_workspace.create("transfers", merge=tl.merge.upsert("id"))
    transfers.append(pa.table({"id": [1, 2, 3], "account": ["a", "b", "a"], "amount": [1.0, 2.0, 3.0]}))
    return spark_workspace


def rows(dataset, *columns):
    found = dataset.view().to_arrow().to_pylist()
    return sorted((tuple(row[name] for name in columns) for row in found), key=repr)


def definition(dataset):
    return derivation_at(dataset.chain.tail())


@pytest.mark.contract("derive:V14")
def test_the_same_definition_changes_nothing_and_another_raises_with_a_diff(ws):
    first = ws.derive(
        "balances",
        BALANCES,
        key="account",
        description="What everybody has",
        columns={"total": "in francs"},
        checks=[tl.check.not_null("total").warn()],
    )
    head = first.head
    again = ws.derive(
        "balances",
        f"  {BALANCES};\n",
        key=["account"],
        description="What everybody has",
        columns={"total": "in francs"},
        checks=[tl.check.not_null("total").warn()],
    )
    assert again is first
    assert again.head == head
    with pytest.raises(DatasetExists) as caught:
        ws.derive(
            "balances",
            "select account, id, sum(amount) as total\nfrom transfers group by account, id",
            key=["account", "id"],
        )
    said = caught.value.fields["differences"]
    assert "query: -select account, sum(amount) as total from transfers group by account" in said
    assert "key: it is ['account'], asked for is ['account', 'id']" in said
    assert "schema: column id (optional Int64) is new" in said
    assert first.head == head
    with pytest.raises(DatasetExists, match="kind: it is a root"):
        ws.create("other")
        ws.derive("other", "select 1 as x from balances")


def test_a_definition_records_what_was_asked_for(ws):
    ws.create("fx", schema=pa.schema({"rate": pa.float64()}))
    made = ws.derive(
        "totals",
        {
            "big": "select * from t where amount > 1",
            "totals": "select account, sum(amount) * max(rate) as total from big, fx group by account",
        },
        inputs={"t": "transfers", "fx": tl.nondet("yesterday's rate will do")},
        key="account",
    )
    there = definition(made)
    assert made.inputs == ("transfers", "fx")
    assert [each.alias for each in there.inputs] == ["t", "fx"]
    assert there.nondet == {"fx": "yesterday's rate will do"}
    assert [step.alias for step in there.queries] == ["big", None]
    assert "*" not in there.queries[0].query.replace("* MAX", "")
    assert there.identity is KeyKind.PROVEN
    ws["fx"].append(pa.table({"rate": [2.0]}))
    follow_all(ws, ["totals"])
    assert rows(made, "account", "total") == [("a", 6.0), ("b", 4.0)]


def test_what_cannot_be_defined_is_refused_before_anything_is_recorded(ws):
    ws.derive("balances", BALANCES, key="account")
    query = "select id, account from transfers"
    for options, words in (
        ({"sql": "select * from transferz"}, "did you mean 'transfers'"),
        ({"sql": query, "inputs": ["transfer"]}, "did you mean 'transfers'"),
        ({"sql": query, "key": "idd"}, "did you mean 'id'"),
        ({"sql": query, "key": ()}, "no columns"),
        ({"sql": query, "event_time": "day"}, "'day'"),
        ({"sql": query, "event_time": "account"}, "account"),
        ({"sql": query, "columns": {"acount": "who"}}, "did you mean 'account'"),
        ({"sql": query, "checks": [tl.check.not_null("acount")]}, "did you mean 'account'"),
        ({"sql": query, "checks": [tl.check.expression("id +")]}, "id"),
        ({"sql": query, "checks": [tl.check.expression("id + 1")]}, "not a condition"),
        ({"sql": query, "checks": [tl.check.relation("id", "people")]}, "people"),
        ({"sql": query, "checks": ["id"]}, "not a check"),
        ({"sql": query, "strategy": "fast"}, "strategy"),
        ({"sql": query, "on_change": "maybe"}, "on_change"),
        ({"sql": query, "fn": "x:y"}, "one of them"),
        ({}, "one of them"),
        ({"sql": {}}, "no query"),
        ({"sql": [("a b", query), ("x", query)]}, "a name of its own"),
        ({"sql": "select * from `transfers@head`"}, "follows its inputs"),
        ({"sql": query, "inputs": {"transfers": "transfers", "t": "transfers"}}, "twice"),
        ({"fn": "statistics:mean"}, "needs a key"),
        ({"fn": "no.such.module:f", "key": "id"}, "cannot be read"),
        ({"fn": lambda transfers: transfers, "key": "id"}, "no import path"),
    ):
        with pytest.raises(TruelineError) as caught:
            ws.derive("x", **options)
        assert words in str(caught.value), options
        assert "x" not in ws


@pytest.mark.contract("derive:V6")
def test_columns_that_cannot_tell_rows_apart_are_refused_where_they_have_to(ws):
    # `twice` hides the key of the input.
    query = "select id * 2 as twice, {} as c from transfers"
    other = "name columns of other types as the key"
    binary = "select it COLLATE UTF8_BINARY: as it is, texts of other bytes are equal"
    pairs = "map_keys(map(account, amount)) as k, map_values(map(account, amount))"
    for column, key, remedy, instead in (
        ("account collate unicode_ci", "c", binary, ("account collate unicode_ci collate utf8_binary", "c")),
        (
            "account collate unicode_ci",
            None,
            binary,
            ("account collate unicode_ci collate utf8_binary", None),
        ),
        ("map(account, amount)", None, f"select its map_keys and map_values, and {other}", (pairs, "twice")),
        ("parse_json('1')", None, "select it as text, by to_json", ("to_json(parse_json('1'))", None)),
        ("array(account)", None, other, ("array(account)", "twice")),
        ("struct(account)", "c", other, ("struct(account)", "twice")),
    ):
        with pytest.raises(InputError) as caught:
            ws.derive("x", query.format(column), key=key)
        assert (caught.value.code, caught.value.remedy) == ("BadKeyType", remedy)
        assert ("without a key" in caught.value.problem) == (key is None)
        assert "x" not in ws
        text, named = instead
        ws.derive("x", query.format(text), key=named)
        ws.delete("x")


@pytest.mark.contract("derive:V14")
@pytest.mark.contract("derive:V12")
def test_a_column_of_the_name_event_time_is_the_event_time(ws):
    at = pa.array([0, 86_400_000], pa.timestamp("ms", "UTC"))
    ws.create("log").append(pa.table({"id": [1, 2], "at": at}))
    text = "select id, at as event_time from log"
    later = ws.derive("timed", "select id from log", key="id")
    made = ws.derive("made", text, key="id")
    assert (definition(made).event_time, made.info.event_time) == ("event_time", "event_time")
    follow_all(ws, ["timed", "made"])
    # Declared later it is the same, in the chain that is there.
    assert ws.derive("timed", text, key="id", on_change="rebuild") is later
    follow_all(ws, ["timed"])
    for dataset in (made, later):
        head = dataset.head
        for options in ({}, {"event_time": "event_time"}, {"on_change": "rebuild"}):
            assert ws.derive(dataset.name, text, key="id", **options) is dataset
        assert dataset.head == head
        assert [time for _, time in rows(dataset, "id", "event_time")] == at.to_pylist()
        assert ws.verify(dataset.name, replay="head").ok
    with pytest.raises(TruelineError, match="'event_time' is the event time but its type is"):
        ws.derive("text", "select id, 'noon' as event_time from log", key="id")


@pytest.mark.contract("derive:V19")
def test_what_can_only_be_recomputed_is_refused_where_increments_were_asked_for(ws):
    query = "select account, amount from transfers order by amount limit 2"
    with pytest.raises(InputError) as caught:
        ws.derive("x", query, strategy="incremental")
    assert caught.value.code == "NotIncremental"
    assert caught.value.fields["reason"]
    assert "x" not in ws


@pytest.mark.contract("derive:V15")
def test_a_rebuild_records_the_difference_in_the_same_chain(ws):
    balances = ws.derive("balances", BALANCES, key="account")
    follow_all(ws, ["balances"])
    first = balances.commit()
    more = (
        "select account, sum(amount) as total, count(*) as n from transfers where amount > 1 group by account"
    )
    assert ws.derive("balances", more, key="account", on_change="rebuild") is balances
    assert follow_all(ws, ["balances"])["balances"].rows == 4
    assert rows(balances, "account", "total", "n") == [("a", 3.0, 1), ("b", 2.0, 1)]
    assert balances.view(at=first).to_arrow().to_pylist() == [
        {"account": "a", "total": 4.0},
        {"account": "b", "total": 2.0},
    ]
    assert sum(isinstance(block.event, SetTransform) for _, block in balances.blocks()) == 2
    # Only what people read has changed: nothing is computed again.
    ws.derive("balances", more, key="account", description="Of large ones", on_change="rebuild")
    assert sum(isinstance(block.event, SetTransform) for _, block in balances.blocks()) == 2
    assert balances.info.description == "Of large ones"
    assert ws.verify().ok


@pytest.mark.contract("derive:V15")
def test_another_key_retracts_all_rows_under_the_old_one(ws):
    query = "select id, account, amount from transfers"
    flat = ws.derive("flat", query, key="id")
    follow_all(ws, ["flat"])
    first = flat.commit()
    ws.derive("flat", query, key=["id", "account"], on_change="rebuild")
    commit = follow_all(ws, ["flat"])["flat"]
    ops = flat.changes(after=first).to_arrow()["op"].to_pylist()
    assert ops == ["delete"] * 3 + ["insert"] * 3
    assert commit.rows == 6
    assert rows(flat, "id", "account") == [(1, "a"), (2, "b"), (3, "a")]
    # What was there before is read by the key of then.
    assert flat.view(at=first).to_arrow()["id"].to_pylist() == [1, 2, 3]
    assert flat.get(2, at=first) == flat.get((2, "b"))
    ws["transfers"].append(pa.table({"id": [1], "account": ["c"], "amount": [9.0]}))
    follow_all(ws, ["flat"])
    assert rows(flat, "id", "account") == [(1, "c"), (2, "b"), (3, "a")]
    # A bag, and back: the number of the copy stays where nobody sees it.
    ws.derive("flat", query, on_change="rebuild")
    follow_all(ws, ["flat"])
    ws.derive("flat", query, key="id", on_change="rebuild")
    follow_all(ws, ["flat"])
    assert flat.columns == ("id", "account", "amount")
    assert rows(flat, "id", "account") == [(1, "c"), (2, "b"), (3, "a")]
    assert ws.verify().ok


@pytest.mark.contract("derive:V15", "derive:V16")
def test_columns_that_cannot_follow_take_a_new_chain_and_what_rests_on_the_old_one_is_told(ws):
    old = ws.derive("balances", BALANCES, key="account")
    ws.derive("total", "select sum(total) as total from balances", key="total")
    follow_all(ws, ["total"])
    with pytest.warns(DataWarning, match="'total' rests on the old one"):
        new = ws.derive(
            "balances",
            "select account, cast(sum(amount) as int) as total from transfers group by account",
            key="account",
            on_change="rebuild",
        )
    assert new.id != old.id
    assert ws["balances"] is new
    assert old.name == f"balances.{str(old.id)[-8:]}"
    assert rows(old, "account", "total") == [("a", 4.0), ("b", 2.0)]
    head = ws["total"].head
    with pytest.raises(InputError) as caught:
        follow_all(ws, ["total"])
    assert caught.value.code == "InputReplaced"
    assert ws["total"].head == head
    ws["total"].reset(rebuild=True)
    follow_all(ws, ["total"])
    assert rows(ws["total"], "total") == [(6,)]


@pytest.mark.contract("derive:V3")
def test_settings_of_the_users_session_do_not_matter(ws, spark):
    times = pa.array([0, 3_600_000], pa.timestamp("ms", "UTC"))
    ws.create("log").append(pa.table({"id": [1, 2], "at": times, "t": ["7", "9"]}))
    text = "select id, hour(at) as h, cast(t as int) + 1 as n, '\\\\' as s from log"
    others = {
        "spark.sql.session.timeZone": "America/New_York",
        "spark.sql.ansi.enabled": "false",
        "spark.sql.parser.escapedStringLiterals": "true",
        "spark.sql.caseSensitive": "true",
    }
    before = {name: spark.conf.get(name) for name in others}
    ws.derive("one", text, key="id")
    try:
        for name, value in others.items():
            spark.conf.set(name, value)
        ws.derive("other", text, key="id")
        ws.pull("one", "other")
    finally:
        for name, value in before.items():
            spark.conf.set(name, value)
    assert rows(ws["one"], "id", "h", "n", "s") == [(1, 0, 8, "\\"), (2, 1, 10, "\\")]
    assert definition(ws["one"]).canonical == definition(ws["other"]).canonical
    assert rows(ws["one"], "id", "h", "n", "s") == rows(ws["other"], "id", "h", "n", "s")
    ws["log"].append(pa.table({"id": [3], "at": times[:1], "t": ["x"]}))
    with pytest.raises(PullError):
        ws.pull("one")


def test_a_cycle_is_refused_with_the_way_round(ws):
    ws.derive("balances", BALANCES, key="account")
    ws.derive("total", "select sum(total) as total from balances", key="total")
    for query in ("select * from total", "select * from balances"):
        with pytest.raises(InputError, match="'balances' ← ") as caught:
            ws.derive("balances", query, on_change="rebuild")
        assert caught.value.code == "Cycle"


@pytest.mark.contract("derive:V15")
def test_from_here_keeps_the_rows_that_are_there(ws):
    log = ws.create("log")
    log.append(pa.table({"n": [1, 2]}))
    made = ws.derive("doubled", "select n, n * 2 as m from log", key="n")
    follow_all(ws, ["doubled"])
    text = "select n, n * 3 as m from log where n > 3"
    ws.derive("doubled", text, key="n", on_change="from_here")
    log.append(pa.table({"n": [3, 4]}))
    follow_all(ws, ["doubled"])
    assert rows(made, "n", "m") == [(1, 2), (2, 4), (4, 12)]
    # The same from the beginning.
    ws.derive("doubled", text, key="n", on_change="rebuild")
    follow_all(ws, ["doubled"])
    assert rows(made, "n", "m") == [(4, 12)]
    assert ws.verify("doubled", replay="head").ok


def test_a_file_of_sql_is_defined_changed_and_pulled_from_the_command_line(ws, tmp_path, capsys):
    path = tmp_path / "balances.sql"
    path.write_text(BALANCES)
    for words, code in (
        (("derive", "balances", str(path), "--key", "account", "--description", "Of all"), 0),
        (("pull", "balances"), 0),
        (("derive", "balances", f"{BALANCES} having sum(amount) > 3", "--key", "account"), 2),
    ):
        assert main(["-C", ws.location, *words]) == code, capsys.readouterr()
    assert "--on-change rebuild" in capsys.readouterr().err
    assert (ws["balances"].info.description, rows(ws["balances"], "total")) == ("Of all", [(2.0,), (4.0,)])
    path.write_text(f"{BALANCES} having sum(amount) > 3")
    change = "derive", "balances", str(path), "--key", "account", "--on-change", "rebuild"
    for words in (change, ("pull", "balances")):
        assert main(["-C", ws.location, *words]) == 0, capsys.readouterr()
    assert rows(ws["balances"], "account", "total") == [("a", 4.0)]


def test_a_manifest_defines_a_dataset_of_this_engine(ws):
    manifest = """
kind: DatasetSnapshot
version: 1
content:
  name: balances
  kind: Derivative
  metadata:
    - kind: SetTransform
      inputs: [{datasetRef: transfers, alias: t}]
      transform:
        kind: Sql
        engine: trueline
        query: select account, sum(amount) as total from t group by account
    - kind: SetInfo
      description: What everybody has
    - kind: SetAttachments
      attachments:
        kind: Embedded
        items: [{path: trueline.json, content: '{"key": ["account"]}'}]
"""
    made = ws.create_from_manifest(manifest)
    assert definition(made).key == ("account",)
    assert made.info.description == "What everybody has"
    assert ws.create_from_manifest(manifest) is made
    follow_all(ws, ["balances"])
    assert rows(made, "account", "total") == [("a", 4.0), ("b", 2.0)]
    assert ws[str(made.id)] is made


DAYS = """
kind: DatasetSnapshot
version: 1
content:
  name: days
  kind: Derivative
  metadata:
    - kind: SetVocab
      eventTimeColumn: day
    - kind: SetTransform
      inputs: [{datasetRef: trades}]
      transform:
        kind: Sql
        engine: trueline
        queries:
          - alias: news
            query: select day, amount from changes('trades') where op = 'insert'
          - query: select day, count(*) as n, sum(amount) as total from news group by day
    - kind: SetAttachments
      attachments:
        kind: Embedded
        items: [{path: trueline.json, content: '{"columns": {"n": "how many"}}'}]
"""


def test_a_manifest_of_several_steps_is_defined_pulled_and_proven_from_the_command_line(ws, tmp_path, capsys):
    trades = ws.create("trades", merge=tl.merge.upsert("id"))
    days = pa.array([0, 0, 1], pa.timestamp("ms", "UTC"))
    trades.append(pa.table({"id": [1, 2, 3], "day": days, "amount": [1.0, 2.0, 4.0]}))
    trades.append(pa.table({"id": [1], "day": days[:1], "amount": [8.0]}))
    path = tmp_path / "days.yaml"
    path.write_text(DAYS)
    for words in (("create", "-f", str(path)), ("pull", "days"), ("verify", "days", "--replay")):
        assert main(["-C", ws.location, *words]) == 0, capsys.readouterr()
    made = ws["days"]
    assert rows(made, "n", "total") == [(1, 4.0), (2, 3.0)]
    there = definition(made)
    assert (there.key, there.identity, there.event_time) == (("day",), KeyKind.PROVEN, "day")
    assert (there.reason, dict(there.columns)) == ("steps", {"n": "how many"})


def test_a_manifest_that_says_what_a_definition_has_no_place_for_is_refused():
    for old, new, what in (
        ("eventTimeColumn: day", "eventTimeColumn: day\n      offsetColumn: at", "another name"),
        ("items: [", "items: [{path: README.md, content: x}, ", "README.md"),
        (
            "    - kind: SetVocab",
            "    - kind: SetInfo\n      keywords: [a]\n    - kind: SetVocab",
            "keywords",
        ),
        (
            "    - kind: SetVocab",
            (
                "    - kind: SetLicense\n      shortName: a\n      name: b\n      websiteUrl: c\n"
                "    - kind: SetVocab"
            ),
            "SetLicense",
        ),
    ):
        with pytest.raises(ManifestError, match=what):
            request_of_manifest(DatasetSnapshot.from_yaml(DAYS.replace(old, new, 1)))


@pytest.mark.parametrize(
    ("query", "key", "columns"),
    [
        ("select City, sum(x) as a from sales group by City", ("City",), ("City", "a")),
        ("select city, sum(X) as a from sales group by CITY", ("city",), ("city", "a")),
        (
            "with Q as (select City, X from sales) select q.City, sum(q.x) as S from q group by Q.city",
            ("City",),
            ("City", "S"),
        ),
        ("select ID, City from sales where x > 0", ("ID",), ("ID", "City")),
        ("select * from sales", ("Id",), ("Id", "City", "x")),
    ],
)
def test_names_may_have_large_letters_anywhere(ws, query, key, columns):
    ws.create("sales", merge=tl.merge.upsert("Id")).append([{"Id": 1, "City": "a", "x": 0.5}])
    made = ws.derive("made", query, strategy="incremental")
    decided = derivation_at(made.chain.tail())
    assert (decided.key, decided.identity, made.columns) == (key, KeyKind.PROVEN, columns)
    for row in ({"Id": 2, "City": "a", "x": 0.25}, {"Id": 3, "City": "b", "x": 2.0}):
        ws["sales"].append([row])
        follow_all(ws, ["made"])
    assert made.view().to_arrow().num_rows == (3 if "Id" in columns or "ID" in columns else 2)
    assert ws.verify("made", replay="head").ok


def test_stars_stand_for_new_columns_only_when_the_dataset_is_defined_again(ws):
    made = ws.derive("copy", "select * from transfers", key="id")
    ws["transfers"].append(
        pa.table({"id": [4], "account": ["d"], "amount": [1.0], "note": ["new"]}), new_columns="add"
    )
    follow_all(ws, ["copy"])
    assert made.columns == ("id", "account", "amount")
    assert ws.derive("copy", "select * from transfers", key="id").columns == ("id", "account", "amount")
    ws.derive("copy", "select * from transfers", key="id", on_change="rebuild")
    follow_all(ws, ["copy"])
    assert rows(made, "id", "note") == [(1, None), (2, None), (3, None), (4, "new")]
