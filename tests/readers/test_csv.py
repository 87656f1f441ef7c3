"""Comma-separated text: stories that can be read."""

from __future__ import annotations

import datetime as dt
import json

import pyarrow as pa
import pytest

from tests.architecture import ROOT
from tests.readers.reading import everything, totals
from trueline.errors import InputError, SchemaError
from trueline.readers import CsvReader, JsonReader, Source, looks_wrong

AB = pa.schema({"a": pa.int64(), "b": pa.string()})
GOLDEN = ROOT / "tests" / "golden" / "readers"


def test_a_bad_cell_is_missing_counted_and_shown_with_its_line():
    data = b'a,b\n\n1,"two\nlines"\n\nx,y\n'
    result = everything(CsvReader(), data, AB)
    assert result["columns"] == {"a": [1, None], "b": ["two\nlines", "y"]}
    assert result["bad"] == [(1, 6, "a", "x")]
    assert result["counts"] == {"a": 1}


def test_a_ragged_row_keeps_its_place_and_its_cells():
    data = b"a,b\n1,x\n2\n3,y,z,\n,\n"
    result = everything(CsvReader(), data, AB)
    assert result["columns"] == {"a": [1, 2, 3, None], "b": ["x", None, "y", None]}
    assert result["bad"] == [(1, 3, "b", ""), (2, 4, "(extra)", "z,")]
    assert result["short"] == 1


def test_an_empty_cell_in_quotes_is_text_and_elsewhere_missing():
    result = everything(CsvReader(), b'a,b\n"",""\n,\n', AB)
    assert result["columns"] == {"a": [None, None], "b": ["", None]}
    assert result["bad"] == []


@pytest.mark.parametrize("typed", [True, False])
def test_a_null_spelling_in_quotes_is_missing_where_it_is_no_text(typed):
    reader, data = CsvReader(nulls=("", "1")), b'a,b\n"1","1"\n2,1\n'
    found = everything(reader, data, pa.schema({"a": pa.int64(), "b": pa.string()}), typed=typed)
    assert found["columns"] == {"a": [None, 2], "b": ["1", None]}
    assert found["bad"] == []


def test_columns_are_found_by_name_in_any_order():
    result = everything(CsvReader(), b"z,b,a\n9,x,1\n", AB)
    assert result["columns"] == {"a": [1], "b": ["x"]}


def test_a_column_the_file_lacks_is_missing_and_named():
    stats = totals(CsvReader(), b"a,z\n1,2\n", AB)
    assert (stats.absent, stats.unknown) == (["b"], ["z"])


def test_names_and_skipped_lines_replace_what_the_file_says():
    data = b'made by "someone\nx,x\n1,y\nq,z\n'
    result = everything(CsvReader(skip_lines=1, names=("a", "b")), data, AB)
    assert result["columns"] == {"a": [1, None], "b": ["y", "z"]}
    assert result["bad"] == [(1, 4, "a", "q")]


@pytest.mark.parametrize("block", [1, 3, 100])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n"])
def test_skipped_lines_may_end_in_any_way(block, end):
    data = end.join([b"one", b"", b"a,b", b"x,y", b""])
    result = everything(CsvReader(skip_lines=2, block_bytes=block), data, AB)
    assert result["bad"] == [(0, 4, "a", "x")]
    assert everything(CsvReader(skip_lines=9, block_bytes=block), data, AB)["rows"] == 0


def test_a_header_twice_the_same_is_refused_with_the_remedy():
    with pytest.raises(SchemaError, match="names="):
        everything(CsvReader(), b"a,a\n1,2\n", AB)


def test_an_empty_file_and_a_header_alone_have_no_rows():
    for data in (b"", b"\n\n", b"a,b", b"a,b\n", b"\xef\xbb\xbf"):
        assert everything(CsvReader(), data, AB)["rows"] == 0


def test_a_wrong_separator_is_refused_by_its_header():
    with pytest.raises(SchemaError, match="separator=';'"):
        everything(CsvReader(), b"a;b\n1;x\n", AB)


@pytest.mark.parametrize(
    ("options", "data", "schema", "says"),
    [
        ({"header": False}, b"1;x\n2;y\n", AB, "separator"),
        ({"header": False}, b"1,x,y\n2,y,z\n", AB, "too many"),
        ({}, "a,b\n1,ä\n2,ö\n".encode("cp1252"), AB, "encoding"),
        ({"header": False}, b"a,b\n1,x\n2,y\n", AB, "header=True"),
        ({"separator": ";"}, b"a;b\n1,5;x\n2,5;y\n", AB, "decimal=','"),
        ({}, b"a,b\n31.12.2026,x\n1.1.2027,\n", pa.schema({"a": pa.date32()}), "date_format"),
        ({}, b"a,b\nx,x\ny,\n", AB, "type"),
        ({}, b"a,b\n" + b",\n" * 20, AB, "no cell has a value"),
    ],
)
def test_what_is_mostly_garbage_is_told_with_its_likely_cause(options, data, schema, says):
    assert says in looks_wrong(totals(CsvReader(**options), data, schema).counts)


def test_a_few_bad_cells_are_not_called_wrong():
    data = b"a,b\n" + b"1,x\n" * 9 + b"x,y\n"
    assert looks_wrong(totals(CsvReader(), data, AB).counts) is None
    assert looks_wrong(totals(CsvReader(), b"", AB).counts) is None


def test_a_bad_cell_in_the_first_row_is_no_header_where_there_is_one():
    data = b"a,b\noops,x\n" + b"1,x\n" * 20
    assert looks_wrong(totals(CsvReader(), data, AB).counts) is None
    assert looks_wrong(totals(JsonReader(), b'{"a": "oops"}\n' + b'{"a": 1}\n' * 20, AB).counts) is None
    without = totals(CsvReader(header=False), b"oops,x\n" + b"1,x\n" * 20, AB)
    assert "header=True" in looks_wrong(without.counts)
    assert "header=True" in looks_wrong((without + type(without)()).counts)


def test_the_first_bad_cells_are_listed_and_all_are_counted():
    data = b"a,b\n" + b"x,y,z\n" * 50
    for block in (1, 64, 1 << 20):
        result = everything(CsvReader(max_listed=7, block_bytes=block), data, AB, batch_rows=3)
        assert [cell[:3] for cell in result["bad"]] == [
            (row, row + 2, name) for row in range(4) for name in ("a", "(extra)")
        ][:7]
        assert result["counts"] == {"a": 50, "(extra)": 50}


def test_the_text_of_a_bad_cell_is_shown_up_to_a_thousand_characters():
    data = "a,b\n" + "é" * 5000 + ",x\n"
    result = everything(CsvReader(), data.encode(), AB)
    assert result["bad"] == [(0, 2, "a", "é" * 1000)]


def test_only_the_columns_asked_for_are_read(monkeypatch):
    asked = []
    import pyarrow.csv as arrow_csv

    real = arrow_csv.ConvertOptions

    def spy(*args, **options):
        asked.append(options["include_columns"])
        return real(*args, **options)

    monkeypatch.setattr(arrow_csv, "ConvertOptions", spy)
    schema = pa.schema([(f"c{n}", pa.int64()) for n in range(50)])
    data = ",".join(schema.names) + "\n" + ",".join(["1"] * 50) + "\n"
    everything(CsvReader(), data.encode(), schema, columns=["c7"])
    assert asked == [["7"]]


def test_rows_short_of_many_cells_do_not_become_one_large_piece():
    schema = pa.schema([(f"c{n}", pa.int8()) for n in range(3000)])
    reading = CsvReader(header=False).read(Source.memory(b"1\n" * 4000), schema)
    sizes = [batch.table.num_rows for batch in reading]
    assert sum(sizes) == 4000
    assert max(sizes) * 3000 <= 1 << 22
    assert reading.stats.bad["c2999"] == 4000


def test_a_type_text_cannot_hold_is_refused_before_the_file_is_opened():
    with pytest.raises(SchemaError) as caught:
        CsvReader().read(None, pa.schema({"a": pa.list_(pa.int64())}))
    assert caught.value.column == "a"


@pytest.mark.parametrize("columns", [["c"], "a", ["a", "a"]])
def test_columns_that_cannot_be_chosen_are_refused(columns):
    with pytest.raises(InputError):
        CsvReader().read(Source.memory(b""), AB, columns=columns)


@pytest.mark.parametrize(
    "options",
    [
        {"separator": ""},
        {"separator": "||"},
        {"separator": "é"},
        {"separator": "\n"},
        {"separator": '"'},
        {"quote": "''"},
        {"escape": ","},
        {"block_bytes": 0},
        {"skip_lines": -1},
        {"date_format": "%Q"},
        {"decimal": "x"},
    ],
)
def test_options_that_make_no_sense_are_refused(options):
    with pytest.raises(InputError):
        CsvReader(**options)


def test_without_quotes_a_quote_is_a_character():
    assert everything(CsvReader(quote=None), b'a,b\n1,"x\n', AB)["columns"]["b"] == ['"x']


def test_decimal_commas_dates_and_spellings():
    data = b'tag;preis;offen\n31.12.2026;"1,50";ja\n-;2;nein\n'
    reader = CsvReader(
        separator=";",
        decimal=",",
        date_format="%d.%m.%Y",
        nulls=("-",),
        true_values=("ja",),
        false_values=("nein",),
    )
    schema = pa.schema({"tag": pa.date32(), "preis": pa.decimal128(5, 2), "offen": pa.bool_()})
    batch = next(reader.read(Source.memory(data), schema))
    assert batch.table.to_pylist()[0]["tag"] == dt.date(2026, 12, 31)
    assert [str(value) for value in batch.table["preis"].to_pylist()] == ["1.50", "2.00"]
    assert batch.table["offen"].to_pylist() == [True, False]
    assert batch.bad.num_rows == 0


@pytest.mark.parametrize(
    "path", sorted(GOLDEN.glob("*.expected.json")), ids=lambda path: path.name.split(".")[0]
)
@pytest.mark.parametrize("block", [1, 13, 1 << 20])
def test_nasty_files_are_read_as_they_always_were(path, block):
    story = json.loads(path.read_text(encoding="utf-8"))
    kinds = {
        "int": pa.int64(),
        "float": pa.float64(),
        "text": pa.string(),
        "date": pa.date32(),
        "bool": pa.bool_(),
    }
    kinds |= {"decimal": pa.decimal128(7, 2), "time": pa.timestamp("ms", "UTC")}
    schema = pa.schema([(name, kinds[kind]) for name, kind in story["schema"].items()])
    reader = type(CsvReader()).from_dict({**story["reader"], "block_bytes": block})
    assert isinstance(reader, CsvReader | JsonReader)
    result = everything(reader, Source.file(GOLDEN / story["file"]), schema)
    result["columns"] = {
        n: [str(v) if v is not None else None for v in vs] for n, vs in result["columns"].items()
    }
    assert json.loads(json.dumps(result)) == story["result"]
