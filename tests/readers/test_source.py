"""Files, packed and torn, in many encodings."""

from __future__ import annotations

import gzip
import io
import os
import pickle
import resource
import subprocess
import sys
import zlib
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.architecture import ROOT
from tests.examples import examples
from tests.readers.reading import everything
from trueline.errors import BrokenFile, InputError, LimitExceeded, SchemaError, StoreError
from trueline.readers import CsvReader, JsonReader, Source, TextReader, find
from trueline.readers.stream import opened

TEXT = pa.schema({"text": pa.string()})
TABLE = pa.schema({"a": pa.int64(), "b": pa.string()})


def lines(data, **options):
    return everything(TextReader(**options), data, TEXT)


def test_a_pattern_gives_its_files_in_the_order_of_their_names(tmp_path):
    for name in ("b.csv", "a.csv", "c.txt", "sub/d.csv"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(b"x")
    names = [Path(source.path).name for source in find(str(tmp_path / "*.csv"))]
    assert names == ["a.csv", "b.csv"]
    assert len(find(tmp_path / "**" / "*.csv")) == 3
    both = find([tmp_path / "c.txt", str(tmp_path / "*.csv"), b"y"])
    assert [Path(source.path).name for source in both] == ["c.txt", "a.csv", "b.csv", "(memory)"]


def test_a_name_that_looks_like_a_pattern_is_a_name_if_there_is_such_a_file(tmp_path):
    (tmp_path / "a[1].csv").write_bytes(b"x")
    (tmp_path / "a1.csv").write_bytes(b"y")
    assert find(tmp_path / "a[1].csv")[0].open().read() == b"x"


@pytest.mark.parametrize("given", ["no.csv", "no*.csv", ".", 5])
def test_what_is_no_file_is_refused(tmp_path, monkeypatch, given):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError):
        find(given)


def test_a_file_that_changed_since_it_was_listed_is_an_error(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one")
    source = Source.file(tmp_path / "a.txt")
    (tmp_path / "a.txt").write_bytes(b"more")
    with pytest.raises(InputError) as caught:
        lines(source)
    assert caught.value.code == "FileChanged"


def test_a_source_can_be_sent_to_another_process(tmp_path):
    (tmp_path / "a.txt").write_bytes(b"one")
    for source in (Source.file(tmp_path / "a.txt"), Source.memory(b"one")):
        assert pickle.loads(pickle.dumps(source)).open().read() == b"one"


def test_gzip_is_told_by_its_first_bytes_and_may_have_several_members():
    data = gzip.compress(b"a\nb") + gzip.compress(b"") + gzip.compress(b"c\n") + b"\0" * 100
    assert lines(data)["columns"]["text"] == ["a", "bc"]
    assert lines(data, block_bytes=1)["columns"]["text"] == ["a", "bc"]


@settings(max_examples=examples(60))
@given(st.binary(max_size=60).filter(lambda data: b"\0" not in data), st.integers(1, 20))
def test_packed_or_not_the_lines_are_the_same(data, block):
    if data.startswith(b"\x1f\x8b"):
        data = b"x" + data
    assert lines(gzip.compress(data), block_bytes=block) == lines(data)


PACKED = gzip.compress(b"".join(b"%d,x\n" % number for number in range(1000)), mtime=0)


@pytest.mark.parametrize("cut", [2, 3, 9, 10, 11, 100, len(PACKED) - 9, len(PACKED) - 8, len(PACKED) - 1])
def test_a_gzip_file_cut_off_is_broken(cut):
    with pytest.raises(BrokenFile) as caught:
        lines(Source.memory(PACKED[:cut], "torn.gz"))
    assert "torn.gz" in str(caught.value)
    assert caught.value.path == "torn.gz"


@pytest.mark.parametrize("at", [3, 40, len(PACKED) - 6, len(PACKED) - 2])
def test_a_gzip_file_with_a_wrong_byte_is_broken_or_changed_in_the_header_only(at):
    data = bytearray(PACKED)
    data[at] ^= 0xFF
    with pytest.raises(BrokenFile):
        lines(bytes(data))


def test_rubbish_behind_gzip_data_is_broken():
    with pytest.raises(BrokenFile):
        lines(PACKED + b"rubbish")


def test_a_gzip_bomb_does_not_fill_the_memory():
    code = """
import resource, sys, zlib, pyarrow as pa
from trueline.readers import Source, TextReader
from trueline.errors import LimitExceeded
pack = zlib.compressobj(1, wbits=31)
chunk = b"a" * (1 << 20)
bomb = b"".join(pack.compress(chunk) for _ in range(512)) + pack.flush()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
try:
    list(TextReader().read(Source.memory(bomb), pa.schema({"text": pa.string()})))
except LimitExceeded as error:
    print(error.code, (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) // 1024)
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(ROOT / "src")},
    )
    assert done.returncode == 0, done.stderr
    code, grown = done.stdout.split()
    assert code == "RecordTooLong"
    assert int(grown) < 200


@pytest.mark.parametrize(
    "encoding",
    ["utf-8", "utf-8-sig", "latin-1", "cp1252", "utf-16", "utf-16-le", "utf-16-be", "utf-32", "shift_jis"],
)
def test_encodings(encoding):
    text = (
        "a,b\n1,ä\n"
        if encoding in {"latin-1", "cp1252"}
        else "a,b\n1,日\n"
        if encoding == "shift_jis"
        else "a,b\n1,ä€\n"
    )
    for block in (1, 3, 1 << 20):
        result = everything(CsvReader(encoding=encoding, block_bytes=block), text.encode(encoding), TABLE)
        assert result["columns"] == {"a": [1], "b": [text[6:-1]]}


def test_text_of_two_bytes_without_a_mark_is_little_endian():
    assert lines("ab".encode("utf-16-le"), encoding="utf-16")["columns"] == {"text": ["ab"]}


def test_a_byte_order_mark_is_dropped_at_the_start_only():
    assert lines("\ufeffa\n\ufeffb".encode())["columns"] == {"text": ["a", "\ufeffb"]}
    assert lines("\ufeffa\n\ufeffb".encode(), block_bytes=1)["columns"] == {"text": ["a", "\ufeffb"]}
    assert lines("\ufeff\ufeffa".encode("utf-16-be"), encoding="utf-16-be")["columns"] == {
        "text": ["\ufeffa"]
    }


@pytest.mark.parametrize(
    ("encoding", "data"),
    [
        ("utf-8", b"1,ok\n2,\xff\xfe\n3,ok\n"),
        ("cp1252", b"1,ok\n2,\x81\x8d\n3,ok\n"),
        ("euc-jp", b"1,ok\n2,\xc2\xa0\xff\n3,ok\n"),
        ("utf-16-le", "1,ok\n2,".encode("utf-16-le") + b"\x00\xd8" + "\n3,ok\n".encode("utf-16-le")),
    ],
)
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_bytes_that_are_no_text_are_one_bad_cell(encoding, data, block):
    reader = CsvReader(header=False, encoding=encoding, block_bytes=block)
    result = everything(reader, data, TABLE)
    assert result["columns"] == {"a": [1, 2, 3], "b": ["ok", None, "ok"]}
    assert [cell[:3] for cell in result["bad"]] == [(1, 2, "b")]
    assert "\ufffd" in result["bad"][0][3]
    assert result["undecodable"] == 1
    assert everything(reader, data, TABLE, columns=["a"])["bad"] == []


def test_a_header_that_is_no_text_names_the_encoding():
    with pytest.raises(SchemaError, match="encoding"):
        everything(CsvReader(), "ä,b\n".encode("latin-1"), TABLE)


@pytest.mark.parametrize("encoding", ["nonsense", "base64", "idna", "unicode_escape", ""])
def test_what_is_no_encoding_of_text_is_refused(encoding):
    with pytest.raises(InputError):
        CsvReader(encoding=encoding)


@pytest.mark.parametrize("reader", [CsvReader(header=False), JsonReader(), TextReader()])
@pytest.mark.parametrize("block", [1, 1 << 20])
def test_a_zero_byte_is_a_broken_file_with_its_line(reader, block):
    reader = type(reader).from_dict({**reader.to_dict(), "block_bytes": block})
    with pytest.raises(BrokenFile, match="utf-16") as caught:
        everything(reader, b"1\n2\n\x003\n", pa.schema({"text": pa.string()}))
    assert caught.value.line == 3


@pytest.mark.parametrize("block", [1, 5, 1 << 20])
@pytest.mark.parametrize(
    ("data", "line"), [(b'a,b\n1,"x\n2,y\n', 2), (b'a,b\n1,x\n"2', 3), (b'a,"b', 1), (b'a,b\n\n"1""', 3)]
)
def test_a_quote_that_is_never_closed_is_a_broken_file_with_its_line(data, line, block):
    with pytest.raises(BrokenFile, match="quote") as caught:
        everything(CsvReader(block_bytes=block), data, TABLE)
    assert caught.value.line == line


@pytest.mark.parametrize("block", [1, 7, 1 << 20])
@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b""])
@pytest.mark.parametrize("reader", [CsvReader(), TextReader(), JsonReader()])
def test_a_record_may_have_as_many_bytes_as_the_limit_and_not_one_more(reader, end, block):
    reader = type(reader).from_dict({**reader.to_dict(), "block_bytes": block, "max_record_bytes": 10})
    if isinstance(reader, JsonReader) and end == b"\r":
        return
    schema = pa.schema({"a": pa.string()}) if not isinstance(reader, TextReader) else TEXT
    limit = 9 if isinstance(reader, JsonReader) and end == b"\r\n" else 10
    first = b"{}\n" if isinstance(reader, JsonReader) else b"a\n"
    everything(reader, first + b"x" * limit + end + (b"y" if end else b""), schema)
    with pytest.raises(LimitExceeded) as caught:
        everything(reader, first + b"x" * (limit + 1) + end + (b"y" if end else b""), schema)
    assert (caught.value.code, caught.value.line) == ("RecordTooLong", 2)


def test_a_cell_of_many_megabytes_is_read_within_the_limit():
    cell = "x\n" * (1 << 21)
    result = everything(CsvReader(), f'a,b\n1,"{cell}"\nno,y\n'.encode(), TABLE)
    assert result["columns"]["b"] == [cell, "y"]
    assert result["bad"] == [(1, (1 << 21) + 3, "a", "no")]


def test_a_device_that_fails_is_an_error_of_ours():
    class Failing(io.RawIOBase):
        def readable(self):
            return True

        def readinto(self, buffer):
            raise OSError(5, "Input/output error")

    with pytest.raises(StoreError, match="far"):
        lines(Source("far", Failing))


def test_a_source_is_closed_whatever_happens():
    held = io.BytesIO(b"a\0")
    with pytest.raises(BrokenFile):
        lines(Source("x", lambda: held))
    assert held.closed


def test_a_stream_gives_no_more_than_it_is_asked_for():
    packed = zlib.compressobj(9, wbits=31)
    data = packed.compress(b"a" * 10_000_000) + packed.flush()
    with opened(Source.memory(data)) as stream:
        assert 0 < len(stream.read(1000)) <= 1000


def test_memory_is_bounded_while_a_long_file_is_read(tmp_path):
    with gzip.open(tmp_path / "long.gz", "wb", compresslevel=1) as file:
        for _ in range(120):
            file.write(b"12345678,abcdefgh\n" * 60_000)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    rows = 0
    for batch in CsvReader(header=False).read(Source.file(tmp_path / "long.gz"), TABLE, columns=["a"]):
        rows += batch.table.num_rows
    assert rows == 7_200_000
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 120 * 1024
