"""Remedies of reading files."""

from __future__ import annotations

import pyarrow as pa

import trueline as tl
from tests.remedies.stories.dataset import pulled
from tests.remedies.story import Scene, keywords, piece, story
from trueline.readers.text_reader import TextReader
from trueline.view import View


@story("readers", "give reader=trueline.csv(...), .json(...), .parquet(...), .arrow(...) or .text(...)")
def a_file_of_an_unknown_ending(scene: Scene) -> None:
    trades = scene.ws.create("trades")
    path = scene.file("a.dat", "id\n1\n")
    remedy = scene.refused(lambda: trades.append(path))
    given = keywords(remedy.replace("...", ""), r"give (reader=trueline\.csv\(\))")
    assert trades.append(path, **given).rows == 1
    for name in piece(remedy, r"(\.json.*)").replace("(...)", "").replace(" or ", ", ").split(", "):
        assert callable(getattr(tl, name.strip(".")))


@story("readers.blocks", "look for a quote that is opened and never closed, or give quote=None")
def a_quote_that_is_never_closed(scene: Scene) -> None:
    path = scene.file("a.csv", 'id,x\n1,"a\n2,b\n')
    remedy = scene.refused(lambda: View.read_csv(path).to_arrow())
    assert View.read_csv(path, **keywords(remedy, r"give (quote=None)")).count() == 2


@story(
    "readers.blocks",
    "if it is text of two bytes a character, give encoding='utf-16'; else fetch the file again",
)
def text_of_two_bytes(scene: Scene) -> None:
    path = scene.file("a.csv", "id,x\n1,ä\n".encode("utf-16-le"))
    remedy = scene.refused(lambda: View.read_csv(path).to_arrow())
    given = keywords(remedy, r"give (encoding='utf-16')")
    assert View.read_csv(path, **given).to_arrow()["x"].to_pylist() == ["ä"]


@story("readers.csv_file", "give encoding=, for example 'cp1252' or 'utf-16'")
@story("readers.csv_file", "give the columns other names with names=[...]")
def headers_that_cannot_be_used(scene: Scene) -> None:
    path = scene.file("a.csv", "größe\n1\n".encode("cp1252"))
    remedy = scene.refused(lambda: View.read_csv(path).to_arrow())
    given = {piece(remedy, r"(\w+)="): piece(remedy, "'(.*?)'")}
    assert View.read_csv(path, **given).schema.names == ("größe",)
    path = scene.file("b.csv", "x,x\n1,2\n")
    remedy = scene.refused(lambda: View.read_csv(path).to_arrow())
    given = keywords(remedy.replace("...", "'a', 'b'"), r"(names=\[.*\])")
    assert View.read_csv(path, **given).to_arrow().to_pylist() == [{"a": 1, "b": 2}]


@story(
    "readers.csv_reader",
    "give separator={other!r}",
    "check separator, encoding and header (header=False where the first line is data)",
)
def a_header_with_none_of_the_columns(scene: Scene) -> None:
    schema = pa.schema({"id": pa.int64(), "x": pa.int64()})
    path = scene.file("a.csv", "id;x\n1;2\n")
    remedy = scene.refused(lambda: View.read_csv(path, schema=schema).to_arrow())
    given = keywords(remedy, r"give (separator='.')")
    assert View.read_csv(path, schema=schema, **given).to_arrow().to_pylist() == [{"id": 1, "x": 2}]
    path = scene.file("b.csv", "1,2\n3,4\n")
    remedy = scene.refused(lambda: View.read_csv(path, schema=schema).to_arrow())
    given = keywords(remedy, r"\((header=False)")
    assert View.read_csv(path, schema=schema, **given).count() == 2


@story(
    "limits",
    "if the file is right, raise it: trueline config set "
    "{setting} {value}, or the reader's {option}={number}",
    "look for a quote that is never closed; if the file is right, raise it: trueline config set {setting} "
    "{value}, or the reader's {option}={number}",
)
def files_beyond_the_limits(scene: Scene) -> None:
    wide = scene.file("wide.csv", ",".join(f"c{n}" for n in range(50)) + "\n" + ",".join("1" * 50) + "\n")
    scene.ws.config.set("limits.columns", 10)
    for name, setting in (("a", True), ("b", False)):
        scene.ws.create(name)
        with tl.open(scene.home) as ws:
            remedy = scene.refused(lambda ws=ws, name=name: ws[name].append(wide))
            if not setting:
                given = keywords(remedy, r"reader's (\w+=\d+)")
                assert ws[name].append(wide, tl.csv(**given)).rows == 1
        if setting:
            scene.typed(remedy)
            with tl.open(scene.home) as ws:
                assert ws[name].append(wide).rows == 1
                ws.config.set("limits.columns", 10)
    long = scene.file("long.csv", "id,x\n1," + "a" * 3000 + "\n")
    scene.done("config", "set", "limits.record_bytes", "1KiB")
    scene.ws.create("c")
    with tl.open(scene.home) as ws:
        remedy = scene.refused(lambda: ws["c"].append(long))
        given = keywords(remedy, r"reader's (\w+=\d+)")
        assert ws["c"].append(long, tl.csv(**given)).rows == 1
    scene.typed(remedy)
    scene.ws.create("d")
    with tl.open(scene.home) as ws:
        assert ws["d"].append(long).rows == 1


@story("readers.reader", "use Csv, NdJson or Parquet")
@story(
    "workspace.pull.pull",
    "use Csv, NdJson or Parquet",
    "use FilesGlob or Url",
    "add a SetDataSchema event to the manifest",
)
def sources_of_other_software(scene: Scene) -> None:
    remedy = scene.refused(lambda: TextReader.from_read_step({"kind": "GeoJson"}))
    for number, kind in enumerate(piece(remedy, "use (.*)").replace(" or ", ", ").split(", ")):
        _declared(scene, f"good{number}", kind, "")
    files = scene.file("in/a.csv", "id\n1\n").parent
    fetch = f"{{kind: FilesGlob, path: '{files}/*.csv'}}"
    _declared(scene, "bad", "GeoJson", fetch)
    scene.refused(lambda: _pulled(scene, "bad"))
    _declared(scene, "columns", "Csv", fetch, "header: true, schema: ['id BIGINT']")
    remedy = scene.refused(lambda: _pulled(scene, "columns"))
    event = piece(remedy, r"a (\w+) event")
    system = "".join(
        f"{{name: {name}, type: {{kind: {kind}}}}}, "
        for name, kind in (
            ("offset", "Int64"),
            ("op", "Int32"),
            ("system_time", "Timestamp, unit: Millisecond"),
        )
    )
    when = "{name: event_time, type: {kind: Option, inner: {kind: Timestamp, unit: Millisecond}}}, "
    fields = f"{system}{when}{{name: id, type: {{kind: Option, inner: {{kind: Int64}}}}}}"
    added = f"    - {{kind: {event}, schema: {{fields: [{fields}]}}}}\n"
    _declared(scene, "whole", "Csv", fetch, "header: true, schema: ['id BIGINT']", event=added)
    _pulled(scene, "whole")
    assert scene.ws["whole"].view().to_arrow()["id"].to_pylist() == [1]
    _declared(scene, "mqtt", "Csv", "{kind: Mqtt, host: h, port: 1, topics: [{path: t}]}")
    remedy = scene.refused(lambda: _pulled(scene, "mqtt"))
    assert piece(remedy, "use FilesGlob or Url")
    _declared(scene, "files", "Csv", fetch, "header: true")
    scene.ws.pull("files")
    assert scene.ws["files"].view().row_count == 1


def _declared(
    scene: Scene, name: str, kind: str, fetch: str, read: str = "", *, event: str = ""
) -> tl.Dataset:
    fetch = fetch or "{kind: Url, url: 'file:///nowhere'}"
    more = f", {read}" if read else ""
    return scene.ws.create_from_manifest(
        f"kind: DatasetSnapshot\nversion: 1\ncontent:\n  name: {name}\n  kind: Root\n  metadata:\n"
        f"    - kind: SetPollingSource\n      fetch: {fetch}\n      read: {{kind: {kind}{more}}}\n"
        f"      merge: {{kind: Append}}\n{event}"
    )


def _pulled(scene: Scene, name: str) -> None:
    scene.ws[name].confirm_source()
    pulled(scene.ws, name)
