"""Options are values: they can be stored, sent and compared."""

from __future__ import annotations

import json

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.readers.reading import totals
from trueline import readers
from trueline.chain.sources import ReadCsv, ReadNdJson, ReadParquet
from trueline.errors import InputError, SchemaError
from trueline.readers import CsvReader, JsonReader, ParquetReader, Reader, ReadStats, TextReader

READERS = [
    CsvReader(separator=";", nulls=("", "NA"), names=("a", "b"), date_format="%d.%m.%Y", encoding="cp1252"),
    CsvReader(),
    JsonReader(timezone="Europe/Zurich"),
    ParquetReader(),
    TextReader(column="line", whole=True),
]


@pytest.mark.parametrize("reader", READERS, ids=lambda reader: reader.kind)
def test_a_reader_comes_back_from_json_equal(reader):
    again = Reader.from_dict(json.loads(json.dumps(reader.to_dict())))
    assert again == reader
    assert hash(again) == hash(reader)
    assert Reader.from_dict({"kind": reader.kind, **json.loads(json.dumps(reader.options))}) == reader


def test_only_options_that_were_changed_are_stored():
    assert CsvReader().to_dict() == {"kind": "csv"}
    assert CsvReader(separator=";").to_dict() == {"kind": "csv", "separator": ";"}


@pytest.mark.parametrize("values", [{}, {"kind": "xls"}, {"kind": "csv", "separatr": ";"}])
def test_what_is_no_reader_is_refused(values):
    with pytest.raises(InputError):
        Reader.from_dict(values)


def test_a_reader_cannot_be_changed():
    with pytest.raises(AttributeError):
        CsvReader().separator = ";"


@pytest.mark.parametrize(
    ("reader", "event"),
    [
        (CsvReader(separator=";", escape="\\", timestamp_format="%d.%m.%Y %H:%M"), ReadCsv),
        (CsvReader(header=False, nulls=("NA",)), ReadCsv),
        (JsonReader(encoding="utf-16", date_format="%d.%m.%Y"), ReadNdJson),
        (ParquetReader(), ReadParquet),
    ],
)
def test_a_reader_is_a_read_step_and_back(reader, event):
    step = reader.to_read_step()
    assert step["kind"] == event.KIND
    assert type(reader).from_read_step(step) == reader
    names = {
        name.split("_")[0] + "".join(part.title() for part in name.split("_")[1:]) for name in event.__slots__
    }
    assert set(step) - {"kind"} <= names


def test_a_foreign_csv_source_has_no_header_unless_it_says_so():
    assert CsvReader.from_read_step({"kind": "Csv"}).header is False


def test_a_step_of_another_kind_is_refused():
    for reader in (CsvReader, JsonReader, ParquetReader):
        with pytest.raises(InputError):
            reader.from_read_step({"kind": "EsriShapefile"})
    with pytest.raises(InputError):
        TextReader().to_read_step()


SCHEMA = pa.schema({"a": pa.int64()})


@given(st.lists(st.sampled_from([b"a\n1\nx\n", b"a\n\n", b"a,b\n1,2,3\n", b"a\n2026\n\xff\n"]), min_size=1))
def test_totals_add_up_and_survive_json(files):
    each = [totals(CsvReader(), data, SCHEMA) for data in files]
    total = ReadStats()
    for stats in each:
        total = total + stats
    assert total.rows == sum(stats.rows for stats in each)
    assert total.counts.total == sum(stats.counts.total for stats in each)
    assert ReadStats.from_dict(json.loads(json.dumps(total.to_dict()))) == total


def test_shares_are_of_the_rows():
    assert totals(CsvReader(), b"a\n1\nx\ny\n2\n", SCHEMA).counts.shares == {"a": 0.5}


def test_every_public_name_is_there():
    assert [name for name in readers.__all__ if not hasattr(readers, name)] == []
    assert readers.csv(separator=";") == CsvReader(separator=";")
    assert (readers.json, readers.parquet, readers.text) == (JsonReader, ParquetReader, TextReader)


@pytest.mark.parametrize("make", [readers.csv, readers.json])
def test_types_that_are_declared_are_not_inferred(make):
    text = make is readers.csv
    data = b"zip,price\n01067,1\n" if text else b'{"zip": "01067", "price": 1}\n'
    file = readers.Source.memory(data)
    reader = make(types={"zip": "text", "price": pa.decimal128(10, 2)})
    assert reader.infer([file]) == pa.schema({"zip": pa.string(), "price": pa.decimal128(10, 2)})
    known = pa.schema({"price": pa.float64()})
    assert reader.infer([file], known=known).field("price").type == pa.float64(), "a dataset keeps its types"
    assert reader.to_dict() == {"kind": make.kind, "types": {"zip": "text", "price": "decimal(10, 2)"}}
    assert readers.Reader.from_dict(reader.to_dict()) == reader
    assert hash(readers.Reader.from_dict(reader.to_dict())) == hash(reader)
    with pytest.raises(SchemaError, match="'city', which the files do not have"):
        make(types={"city": "text"}).infer([file])
    for wrong in ("zip=text", {"zip": "colour"}, {1: "text"}):
        with pytest.raises(InputError):
            make(types=wrong)
