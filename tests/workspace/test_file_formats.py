"""Files of every form, on every way into a dataset: appended, prepared, pulled, viewed."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest

import trueline as tl
from trueline.errors import BrokenFile, InputError, PullError
from trueline.readers.json_reader import JsonReader
from trueline.run import Step

ROWS = [{"id": n, "city": "Bern"} for n in range(5)]
GOOD = {
    "array": json.dumps(ROWS),
    "pretty": "\n".join(json.dumps(row, indent=2) for row in ROWS),
    "beside": "".join(json.dumps(row) for row in ROWS),
}
NOT_JSON = {
    "page": "<!DOCTYPE html>\n<html><body>Sign in</body></html>\n",
    "numbers": "[1, 2, 3]",
    "text": "nothing\nof the kind\n",
}


def appended(ws, path):
    ds = ws.create("sales")
    ds.append(path)
    return ds.view().to_arrow().to_pylist()


def prepared(ws, path):
    ds = ws.create("sales")
    ds.append(path, steps=[Step(map=lambda key, value: value, name="same")])
    return ds.view().to_arrow().to_pylist()


def pulled(ws, path):
    ds = ws.create("sales", source=tl.source(path.parent / "*.json"))
    try:
        ws.pull()
    except PullError as error:
        raise error.report.errors["sales"] from None
    return ds.view().to_arrow().to_pylist()


def viewed(ws, path):
    return tl.View.read_json(path).to_arrow().to_pylist()


def viewed_as(ws, path):
    schema = pa.schema({"id": pa.int64(), "city": pa.string()})
    return tl.View.read_json(path, schema=schema).to_arrow().to_pylist()


WAYS = [appended, prepared, pulled, viewed, viewed_as]


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", sorted(GOOD))
def test_json_in_any_form_is_read_on_every_way(ws, tmp_path, way, form):
    (tmp_path / "a.json").write_text(GOOD[form])
    assert way(ws, tmp_path / "a.json") == ROWS


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("form", sorted(NOT_JSON))
def test_a_file_without_an_object_is_refused_by_name_on_every_way(ws, tmp_path, way, form):
    (tmp_path / "login.json").write_text(NOT_JSON[form])
    with pytest.raises(InputError, match=r"login\.json is not JSON") as refused:
        way(ws, tmp_path / "login.json")
    assert refused.value.code == "NotJson"
    if "sales" in ws:
        assert ws["sales"].info.commits == 1, "nothing was recorded but the dataset itself"


def test_a_page_among_good_files_is_refused_by_name(ws, tmp_path):
    ds = ws.create("sales", schema=pa.schema({"id": pa.int64(), "city": pa.string()}))
    (tmp_path / "a.json").write_text(GOOD["array"])
    (tmp_path / "b.json").write_text(NOT_JSON["page"])
    with pytest.raises(BrokenFile) as refused:
        ds.append([tmp_path / "a.json", tmp_path / "b.json"])
    assert refused.value.path.endswith("b.json")
    assert ds.info.rows == 0


def test_a_part_without_an_object_is_read_again_with_its_file(ws, tmp_path, monkeypatch):
    (tmp_path / "a.json").write_text('{"id": 1}\n' * 20 + "x\n" * 30)
    parts = JsonReader.parts
    monkeypatch.setattr(JsonReader, "parts", lambda self, source: parts(self, source, size=60))
    assert len(JsonReader().parts(tl.readers.Source.file(tmp_path / "a.json"))) > 2
    commit = ws.create("sales").append(tmp_path / "a.json", max_bad=30)
    assert (commit.rows, commit.bad) == (50, {"(line)": 30})
