"""Remedies of one dataset: what comes in, what is read, what was declared."""

from __future__ import annotations

import re
import shlex
from datetime import date

import pyarrow as pa
import pyarrow.parquet as pq

import trueline as tl
from tests.remedies.story import Scene, done, keywords, piece, story
from trueline.errors import PullError
from trueline.run import Step
from trueline.workspace import preparing
from trueline.workspace.preparing import mask, parse, repair, validate

GARBAGE = (
    "id,x\n" + "".join(f"{n},{n}\n" for n in range(200)) + "".join(f"{n},bad\n" for n in range(200, 3000))
)


def pulled(ws: tl.Workspace, name: str) -> None:
    """Pull one dataset and raise what went wrong there."""
    try:
        ws.pull(name)
    except PullError as error:
        raise error.report.errors[name] from None


@story("dataset.append.files", "give resend=True (`--resend`) if the new content is to be added as well")
def a_file_that_was_appended_with_other_content(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    path = scene.file("a.csv", "id\n1\n")
    trades.append(path)
    scene.file("a.csv", "id\n2\n")
    remedy = scene.refused(lambda: trades.append(path))
    assert trades.append(path, **keywords(remedy, r"give (\w+=\w+)")).rows == 1
    scene.file("a.csv", "id\n3\n")
    remedy = scene.run_refused("ingest", "trades", path)
    scene.done("ingest", "trades", path, piece(remedy, "`(.*)`"))
    assert trades.view().row_count == 3


@story(
    "workspace.pull.pull",
    "if the new content is to be added as well: "
    "ws.pull({name!r}, resend=True), `trueline pull {name} --resend`",
)
def a_pulled_file_with_other_content(scene: Scene) -> None:
    for number, name in enumerate(("one", "two")):
        path = scene.file(f"{name}/a.csv", "id\n1\n")
        scene.ws.create(name, source=scene.folder / name / "*.csv")
        scene.ws.pull(name)
        path.write_text("id\n2\n3\n")
        remedy = scene.refused(lambda name=name: pulled(scene.ws, name))
        if number:
            scene.typed(remedy)
        else:
            done(piece(remedy, r"ws\.pull\([^)]*\)"), ws=scene.ws)
        assert scene.ws[name].view().row_count == 3


@story(
    "dataset.append.files",
    "fix the reader's options, such as separator and skip_lines (--delimiter, --skip-lines), "
    "or allow it with max_bad",
)
def a_file_that_is_mostly_unreadable(scene: Scene) -> None:
    trades = scene.ws.create("trades", schema=pa.schema({"id": pa.int64(), "x": pa.int64()}))
    path = scene.file("a.csv", GARBAGE)
    remedy = scene.refused(lambda: trades.append(path))
    assert trades.append(path, **{piece(remedy, r"allow it with (\w+)"): 2800}).rows == 3000
    report = scene.file("report.csv", "Report of Monday\nid;x\n" + "1;2,5\n" * 3)
    remedy = scene.refused(lambda: scene.ws.create("raw").append(report))
    how = dict(zip(re.findall(r"separator|skip_lines", remedy), (";", 1), strict=True))
    assert scene.ws.create("python").append(report, tl.csv(**how)).rows == 3
    scene.ws.create("shell")
    words = zip(re.findall(r"--[\w-]+", remedy), (";", "1"), strict=True)
    scene.done("ingest", "shell", report, *(word for pair in words for word in pair))
    assert scene.ws["shell"].columns == ("id", "x")


@story("dataset.append.files", "look at the files and the reader's options, or raise max_bad")
def more_bad_cells_than_allowed(scene: Scene) -> None:
    trades = scene.ws.create("trades", schema=pa.schema({"id": pa.int64(), "x": pa.int64()}))
    path = scene.file("a.csv", GARBAGE)
    remedy = scene.refused(lambda: trades.append(path, max_bad=10))
    assert trades.append(path, **{piece(remedy, r"raise (\w+)"): 2800}).rows == 3000


@story(
    "workspace.pull.pull",
    "fix the files, or allow it: ws.create({name!r}, …, source=trueline.source(…, "
    "max_bad={sum(error.fields['bad'].values())}), on_change='from_here')",
)
def a_source_that_is_mostly_unreadable(scene: Scene) -> None:
    schema = pa.schema({"id": pa.int64(), "x": pa.int64()})
    path = scene.file("inbox/a.csv", GARBAGE)
    for fixed in (False, True):
        name = f"trades{fixed:d}"
        scene.ws.create(name, schema=schema, source=path.parent)
        remedy = scene.refused(lambda name=name: pulled(scene.ws, name))
        if fixed:
            path.write_text("id,x\n1,1\n")
        else:
            call = piece(remedy, r"ws\.create.*").replace("…", "schema=schema", 1).replace("…", "path", 1)
            done(call, ws=scene.ws, schema=schema, path=path.parent)
        scene.ws.pull(name)
        assert scene.ws[name].view().row_count == (1 if fixed else 3000)


@story(
    "workspace.pull.pull",
    "create it, or give the right path: `trueline create {name} … --source PATH --on-change from_here`, "
    "ws.create({name!r}, …, source=…, on_change='from_here')",
)
@story("dataset.declared_source", "create it, or give the path of a folder that is there")
def a_source_folder_that_is_not_there(scene: Scene) -> None:
    inbox, right = scene.folder / "inbox", scene.file("right/a.csv", "id\n1\n").parent
    scene.refused(lambda: scene.ws.create("early", source=f"{inbox}/*"))
    scene.ws.create("early", source=f"{right}/*")
    for name in ("trades", "typed", "others"):
        scene.ws.create(name, source=f"{inbox}/*.csv")
        remedy = scene.refused(lambda name=name: pulled(scene.ws, name))
        if name == "typed":
            scene.typed(remedy.replace(" …", "", 1), PATH=f"{right}/*.csv")
    call = piece(remedy, r"ws\.create.*").replace("…, ", "", 1).replace("…", "path", 1)
    assert done(call, ws=scene.ws, path=right / "*.csv").name == "others"
    assert piece(remedy, "^create it")
    inbox.mkdir()
    scene.ws.pull()
    assert [len(scene.ws[name].view().to_arrow()) for name in ("early", "typed", "others")] == [1, 1, 1]


@story(
    "kernel.key_encoding",
    "fix these rows, or leave them out: view.filter({whole!r}), or for files append(path, "
    "steps=[validate({whole!r}, drop=True)])",
)
def rows_without_a_key(scene: Scene) -> None:
    view = tl.View.from_rows([{"id": 1, "my key": 1}, {"id": None, "my key": 1}, {"id": 2, "my key": None}])
    path = scene.file("a.csv", "id,my key\n1,1\n,1\n2,\n")
    for name, data in (("views", view), ("files", path)):
        people = scene.ws.create(name, merge=tl.merge.upsert(["id", "my key"]))
        remedy = scene.refused(lambda people=people, data=data: people.append(data))
        if name == "views":
            people.append(done(piece(remedy, r"view\.filter\('[^']*'\)"), view=view))
        else:
            done("people." + piece(remedy, r"append\(.*"), people=people, path=path, validate=validate)
        assert people.view().to_arrow().num_rows == 1


@story(
    "workspace.pull.pull",
    "fix the files, or leave the rows out in a dataset without a source: append(path, "
    "steps=[validate({error.fields['condition']!r}, drop=True)])",
)
def pulled_rows_without_a_key(scene: Scene) -> None:
    path = scene.file("inbox/a.csv", "id,x\n1,1\n,1\n")
    scene.ws.create("people", merge=tl.merge.upsert(["id"]), source=path.parent)
    remedy = scene.refused(lambda: pulled(scene.ws, "people"))
    others = scene.ws.create("others", merge=tl.merge.upsert(["id"]))
    commit = done("others." + piece(remedy, r"append\(.*"), others=others, path=path, validate=validate)
    assert commit.rows == 1


@story("dataset.append.intake", "give a pyarrow.schema([...]), or the schema of a view")
def a_schema_of_another_kind(scene: Scene) -> None:
    remedy = scene.refused(lambda: scene.ws.create("a", schema={"id": "int64"}))
    call = piece(remedy, r"pyarrow\.schema\(\[\.\.\.\]\)").replace("...", "('id', pa.int64())")
    assert scene.ws.create("a", schema=done(call, pyarrow=pa, pa=pa)).columns == ("id",)
    assert scene.ws.create("b", schema=tl.View.from_rows([{"id": 1}]).schema).columns == ("id",)


@story(
    "dataset.append.intake",
    "the columns are {', '.join(schema.names)}: name one of them as event_time, or add it",
)
def an_event_time_that_is_not_a_column(scene: Scene) -> None:
    schema = pa.schema({"id": pa.int64(), "day": pa.date32()})
    remedy = scene.refused(lambda: scene.ws.create("a", schema=schema, event_time="when"))
    column = piece(remedy, "the columns are id, (day)")
    scene.ws.create("a", schema=schema, **{piece(remedy, r"as (\w+)"): column})
    scene.ws.create("b", schema=schema.append(pa.field("when", pa.date32())), event_time="when")


@story("dataset.append.stream", "give all batches the same columns, for example with batch.cast(schema)")
def batches_of_other_columns(scene: Scene) -> None:
    batches = [pa.table({"id": pa.array([1], pa.int32())}), pa.table({"id": pa.array([2], pa.int64())})]
    trades = scene.ws.create("trades")
    steps = [validate("id > 0")]
    remedy = scene.refused(lambda: trades.append(iter(batches), steps=steps))
    call = piece(remedy, r"batch\.cast\(schema\)")
    cast = [done(call, batch=batch, schema=batches[0].schema) for batch in batches]
    assert trades.append(iter(cast), steps=steps).rows == 2


@story(
    "dataset.at",
    "give a commit, a hash, a tag, a date (2026-11-13), a time with its zone, offset:N or head",
    "`trueline log --blocks` shows them",
    "did you mean {close[0]!r}?",
)
def a_place_in_the_history_that_is_not_there(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    commit = trades.append([{"id": 1}])
    remedy = scene.refused(lambda: trades.view(at="2026-13-45"))
    assert date.fromisoformat(piece(remedy, r"a date \((\S+)\)"))
    named = piece(remedy, r"offset:N").replace("N", "0")
    for at in (commit, commit.block, str(commit.block), commit.short, "head", named, "2099-01-01T00:00:00Z"):
        assert trades.view(at=at).row_count == 1
    scene.ws.tag("audit-2026", trades)
    remedy = scene.refused(lambda: trades.view(at="audit-2062"))
    assert trades.view(at=piece(remedy, "'(.*)'")).row_count == 1
    remedy = scene.refused(lambda: trades.view(at="0" * 12))
    shown = piece(remedy, "`trueline ([^`]*)`").split()
    assert commit.short in scene.done(*shown, "trades")


@story("dataset.at", "give the offset a commit ends at: {' or '.join(ends)}", "the last offset is {end}")
def an_offset_inside_a_commit(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    trades.append([{"id": 1}])
    trades.append([{"id": 2}, {"id": 3}])
    remedy = scene.refused(lambda: trades.view(at="offset:1"))
    for end in piece(remedy, r"ends at: (.*)").split(" or "):
        assert trades.view(at=int(end)).row_count == int(end) + 1
    remedy = scene.refused(lambda: trades.view(at=7))
    assert trades.view(at=int(piece(remedy, r"\d+"))).row_count == 3


@story("dataset.commit", "how many there were is still known: {sum(self.bad.values())} (commit.bad)")
def bad_cells_that_were_removed(scene: Scene) -> None:
    trades = scene.ws.create("trades", schema=pa.schema({"id": pa.int64(), "x": pa.int64()}))
    commit = trades.append(scene.file("a.csv", "id,x\n1,bad\n2,2\n"), max_bad=5)
    trades.drop_data(where="id = 1", reason="asked for")
    remedy = scene.refused(commit.bad_cells)
    assert sum(done(piece(remedy, r"\((commit\.bad)\)"), commit=commit).values()) == 1


@story("dataset.declared_source", "give trueline.csv(...), .json(...) …")
def a_reader_that_is_not_one(scene: Scene) -> None:
    remedy = scene.refused(lambda: tl.source("inbox", reader="csv"))
    call = piece(remedy, r"trueline\.csv\(\.\.\.\)").replace("...", "separator=';'")
    assert tl.source("inbox", reader=done(call)).reader is not None


@story("dataset.declared_source", "give trueline.source(path, reader=trueline.csv(...))")
def a_source_without_files_or_ending(scene: Scene) -> None:
    path = scene.folder / "inbox"
    path.mkdir()
    remedy = scene.refused(lambda: scene.ws.create("trades", source=path))
    call = piece(remedy, r"trueline\.source.*").replace("...", "")
    trades = scene.ws.create("trades", source=done(call, path=path))
    scene.file("inbox/a", "id\n1\n")
    scene.ws.pull()
    assert trades.view().row_count == 1


@story(
    "dataset.definition", "use trueline.merge.append(), or ledger, snapshot, changelog or upsert with a key"
)
def a_merge_that_is_not_one(scene: Scene) -> None:
    remedy = scene.refused(lambda: scene.ws.create("a", merge="append"))
    scene.ws.create("a", merge=done(piece(remedy, r"trueline\.merge\.append\(\)")))
    for name in piece(remedy, r"or (ledger, .*) with").replace(" or ", ", ").split(", "):
        scene.ws.create(name, merge=getattr(tl.merge, name)(["id"]))


@story(
    "dataset.definition",
    "use ws[{name!r}] to open it as it is, or {change if changeable else 'choose another name'}",
    'give on_change="from_here", or choose another name for another definition',
    'give "error", or "from_here" to change the definition',
)
def a_dataset_of_another_definition(scene: Scene) -> None:
    one, two = scene.file("one/a.csv", "id\n1\n").parent, scene.file("two/b.csv", "id\n2\n").parent
    trades = scene.ws.create("trades", source=one)
    remedy = scene.refused(lambda: scene.ws.create("trades", merge=tl.merge.upsert(["id"]), source=one))
    assert done(piece(remedy, r"ws\[[^]]*\]"), ws=scene.ws).name == "trades"
    assert scene.ws.create(f"{piece(remedy, 'another')}", merge=tl.merge.upsert(["id"]), source=one)
    wrong = (
        lambda: scene.ws.create("trades", source=two),
        lambda: scene.ws.create("trades", source=two, on_change="rebuild"),
    )
    for number, asked in enumerate(wrong):
        given = keywords(scene.refused(asked), r'(on_change="from_here")')
        scene.ws.create("trades", source=(two, one)[number], **given)
        scene.ws.pull("trades")
    assert trades.view().to_arrow()["id"].to_pylist() == [2, 1]
    option = piece(scene.run_refused("create", "trades", "--source", two), "`(--.*)`").split()
    scene.done("create", "trades", "--source", two, *option)
    remedy = scene.refused(lambda: scene.ws.create("trades", source=two, on_change="no"))
    for policy in re.findall(r'"(\w+)"', remedy):
        scene.ws.create("trades", source=two, on_change=policy)


@story(
    "dataset.append.revert",
    "ws[{name!r}].view(at=...) reads it as it was, and "
    "ws.create(another_name, merge=...).append(ws[{name!r}].view(at=...)) goes on from there",
    "`trueline show {at}` shows it as it was; to go on from there: `trueline export {at} rows.parquet`, "
    "`trueline create {own}-again --merge {strategy.NAME}{keyed}`, "
    "`trueline ingest {own}-again rows.parquet`",
)
def a_dataset_that_cannot_go_back(scene: Scene) -> None:
    for name, merge in (("rows", tl.merge.append()), ("events", tl.merge.ledger("id"))):
        dataset = scene.ws.create(name, merge=merge)
        first = dataset.append([{"id": 1}])
        dataset.append([{"id": 2}])
        remedy = scene.refused(lambda dataset=dataset, first=first: dataset.revert(to=first))
        for call in (r"ws\[[^]]*\]\.view\(at=\.\.\.\)", r"ws\.create.*\.append.*\)\)"):
            text = piece(remedy, call).replace("merge=...", "merge=merge").replace("at=...", "at=first")
            names = {"merge": merge, "first": first, "another_name": f"other-{name}"}
            assert done(text, ws=scene.ws, **names) is not None
        assert scene.ws[f"other-{name}"].view().to_arrow()["id"].to_pylist() == [1]
        remedy = scene.run_refused("revert", name, "--to", first.short)
        for command in re.findall("`trueline ([^`]*)`", remedy):
            scene.done(*shlex.split(command))
        assert scene.ws[f"{name}-again"].view().to_arrow()["id"].to_pylist() == [1]
        (scene.home / "rows.parquet").unlink()


@story(
    "dataset.definition",
    "put the data there and use ws.pull({name!r}), or append to another dataset",
    "put the data there and use `trueline pull {name}`, or ingest into another dataset",
)
def an_append_beside_the_source(scene: Scene) -> None:
    path = scene.file("inbox/a.csv", "id\n1\n")
    trades = scene.ws.create("trades", source=path.parent)
    remedy = scene.refused(lambda: trades.append([{"id": 2}]))
    scene.file("inbox/b.csv", "id\n2\n")
    done(piece(remedy, r"ws\.pull\([^)]*\)"), ws=scene.ws)
    assert trades.view().row_count == 2
    remedy = scene.run_refused("ingest", "trades", scene.file("inbox/c.csv", "id\n3\n"))
    scene.typed(remedy)
    assert scene.ws["trades"].view().row_count == 3


@story("dataset.prepare.parse", "give fail_run or skip_key", "write module:name")
def steps_by_their_names(scene: Scene) -> None:
    remedy = scene.refused(lambda: parse(on_error="skip_step"))
    for policy in piece(remedy, "give (.*)").split(" or "):
        parse(on_error=policy)
    remedy = scene.refused(lambda: preparing.load_steps(["parse"]))
    named = (
        piece(remedy, "module:name").replace("module", "trueline.dataset.prepare").replace("name", "parse")
    )
    assert len(preparing.load_steps([named])) == 1


@story("dataset.prepare.parse", "fix the reader's options or the file, or allow it with max_bad")
def a_prepared_file_that_is_mostly_unreadable(scene: Scene) -> None:
    trades = scene.ws.create("trades", schema=pa.schema({"id": pa.int64(), "x": pa.int64()}))
    path = scene.file("a.csv", GARBAGE)
    steps = [repair(id="id")]
    remedy = scene.refused(lambda: trades.append(path, steps=steps))
    allowed = {piece(remedy, r"allow it with (\w+)"): 2800}
    assert trades.append(path, steps=steps, **allowed).rows == 3000
    scene.file("a.csv", GARBAGE + "3000,1\n")
    assert trades.append(path, steps=[parse(**allowed), *steps], resend=True).rows == 3001


@story("dataset.prepare.preparation", "give trueline.run.Step(map=…), or a subclass of Step")
def a_step_that_is_not_one(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    remedy = scene.refused(lambda: trades.append([{"id": 1}], steps=[lambda path, table: table]))
    call = piece(remedy, r"trueline\.run\.(Step\(map=…\))").replace("…", "preparing.on_rows(f)")
    step = done(call.replace("preparing.on_rows(f)", "f"), Step=Step, f=lambda path, rows: rows)
    assert trades.append([{"id": 1}], steps=[step]).rows == 1


@story("dataset.prepare.prepare", "append([]) if there is nothing to add")
def a_prepared_stream_of_nothing(scene: Scene) -> None:
    trades = scene.ws.create("trades", schema=pa.schema({"id": pa.int64()}))
    remedy = scene.refused(lambda: trades.append(iter(()), steps=[validate("id > 0")]))
    assert done("trades." + piece(remedy, r"append\(\[\]\)"), trades=trades).rows == 0


@story(
    "dataset.prepare.steps",
    'give columns: mask("email", key=…)',
    "give key=…, a secret that stays the same, or how='missing' or 'stars'",
    'give columns: repair(city="trim(city)")',
    'give conditions: validate("price >= 0")',
)
def steps_without_what_they_need(scene: Scene) -> None:
    for wrong, call in ((mask, r"mask\(.*"), (repair, r"repair\(.*"), (validate, r"validate\(.*")):
        remedy = scene.refused(wrong)
        text = piece(remedy, call).replace("…", "'secret'")
        assert isinstance(done(text, mask=mask, repair=repair, validate=validate), Step)
    remedy = scene.refused(lambda: mask("email"))
    mask("email", **keywords(remedy.replace("…", "'secret'"), r"give (key='secret')"))
    mask("email", **keywords(remedy, r"(how='missing')"))
    mask("email", how=piece(remedy, r"or '(\w+)'"))


@story(
    "dataset.prepare.steps", "fix the file, or leave such rows or files out: drop=True, on_error='skip_key'"
)
def rows_that_break_a_condition(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    path, good = scene.file("a.csv", "id\n1\n-1\n"), scene.file("b.csv", "id\n1\n")
    remedy = scene.refused(lambda: trades.append(path, steps=[validate("id > 0")]))
    without_file = keywords(remedy, r"(on_error='skip_key')")
    assert trades.append([path, good], steps=[validate("id > 0", **without_file)]).rows == 1
    without_rows = keywords(remedy, r"(drop=True)")
    assert trades.append(path, steps=[validate("id > 0", **without_rows)]).rows == 1


@story("dataset.read.changes", "ask without system=True")
def a_column_called_late(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    trades.append([{"late": 1}])
    remedy = scene.refused(lambda: trades.changes(system=True).to_arrow())
    wrong = keywords(remedy, r"without (\w+=\w+)")
    assert trades.changes(**{name: not value for name, value in wrong.items()}).to_arrow().num_rows == 1


@story("dataset.read.get", 'say which column is meant: get({"city": "Bern"}) returns the newest such row')
def a_row_of_a_dataset_without_a_key(scene: Scene) -> None:
    shops = scene.ws.create("shops")
    shops.append([{"city": "Bern", "n": 1}, {"city": "Bern", "n": 2}])
    remedy = scene.refused(lambda: shops.get("Bern"))
    assert done("shops." + piece(remedy, r"get\(.*\)"), shops=shops) == {"city": "Bern", "n": 2}


@story(
    "dataset.read.slice_reader",
    "restore the file from a copy of the dataset; `trueline verify {self.dataset}` lists all",
)
@story("dataset.read.changes", "`trueline verify {dataset}` says more")
def a_slice_that_was_lost(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    trades.append([{"id": 1}])
    (path,) = [p for p in scene.home.glob("datasets/*/data/*") if p.is_file()]
    kept = path.read_bytes()
    path.unlink()
    remedy = scene.refused(lambda: trades.view().to_arrow())
    words = piece(remedy, "`trueline ([^`]*)`").split()
    assert path.name in scene.run(*words).err
    table = pq.read_table(pa.BufferReader(kept))
    place = table.schema.get_field_index("op")
    pq.write_table(table.set_column(place, table.schema.field(place), pa.array([77], pa.int32())), path)
    remedy = scene.refused(lambda: tl.open(scene.home)["trades"].changes().to_arrow())
    assert path.name in scene.run(*piece(remedy, "`trueline ([^`]*)`").split()).err
    path.write_bytes(kept)
    assert scene.done(*words)
