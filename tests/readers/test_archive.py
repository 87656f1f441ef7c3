"""Zip archives: one member is read as the file, hostile archives are refused in time."""

from __future__ import annotations

import io
import tracemalloc
import zipfile

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.readers.reading import everything
from trueline.errors import BrokenFile, InputError, LimitExceeded
from trueline.readers import Source, csv, json, parquet, reader_for, text
from trueline.readers.parts import WHOLE

SCHEMA = pa.schema({"a": pa.int64()})


def zipped(members: dict[str, bytes], method: int = zipfile.ZIP_DEFLATED) -> bytes:
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", method) as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return file.getvalue()


def parquet_bytes(table: pa.Table, **options) -> bytes:
    file = io.BytesIO()
    pq.write_table(table, file, **options)
    return file.getvalue()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
@pytest.mark.parametrize(
    ("reader", "name", "data"),
    [
        (csv(), "a.csv", b"a\n1\n2\n"),
        (json(), "a.json", b'[{"a": 1}, {"a": 2}]'),
        (parquet(), "a.parquet", parquet_bytes(pa.table({"a": [1, 2]}))),
    ],
)
def test_the_one_member_is_read_as_the_file(reader, name, data, method):
    archive = zipped({"folder/": b"", f"folder/{name}": data, f"__MACOSX/._{name}": b"\0"}, method)
    file = Source.memory(archive, "data.zip")
    assert reader_for([file]) == reader
    assert reader.infer([file]).names == ["a"]
    assert everything(reader, file, SCHEMA)["columns"]["a"] == [1, 2]
    assert reader.parts(file, size=1) == [WHOLE]


def test_lines_of_text_and_names_that_say_what_is_inside():
    file = Source.memory(zipped({"whatever": b"x\ny\n"}), "notes.txt.zip")
    assert reader_for([file]) == text()
    assert everything(text(), file, pa.schema({"text": pa.string()}))["columns"]["text"] == ["x", "y"]


def test_several_members_are_listed_and_one_can_be_named():
    file = Source.memory(zipped({"a.json": b"{}", "b.csv": b"a\n7\n"}), "two.zip")
    for ask in (
        lambda: reader_for([file]),
        lambda: csv().infer([file]),
        lambda: everything(csv(), file, SCHEMA),
    ):
        with pytest.raises(InputError, match=r"two\.zip has 2 members: 'a\.json', 'b\.csv'") as refused:
            ask()
        assert (refused.value.code, refused.value.path) == ("SeveralMembers", "two.zip")
        assert refused.value.remedy == "name one: reader=trueline.json(member='a.json'), or --member 'a.json'"
    assert everything(csv(member="b.csv"), file, SCHEMA)["columns"]["a"] == [7]
    with pytest.raises(InputError) as refused:
        everything(csv(member="c.csv"), file, SCHEMA)
    assert refused.value.code == "NoSuchMember"


def test_a_member_of_what_is_not_an_archive_is_refused():
    with pytest.raises(InputError, match="is not a zip archive"):
        everything(csv(member="a.csv"), b"a\n1\n", SCHEMA)


def test_names_in_an_archive_are_never_paths(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    names = ["../outside.csv", "/etc/outside.csv", "a\n\x1b[31m.csv"]
    for name in names:
        file = Source.memory(zipped({name: b"a\n1\n"}), "evil.zip")
        assert everything(csv(), file, SCHEMA)["rows"] == 1
        assert everything(csv(member=name), file, SCHEMA)["rows"] == 1
    with pytest.raises(InputError) as refused:
        csv().infer([Source.memory(zipped(dict.fromkeys(names, b"")), "evil.zip")])
    assert "\x1b" not in str(refused.value)
    assert str(refused.value).count("\n") == 1, "the problem, the remedy, and no line of theirs"
    assert list(tmp_path.iterdir()) == []
    assert not (tmp_path.parent / "outside.csv").exists()


def test_an_archive_that_is_torn_or_damaged_is_a_broken_file():
    whole = zipped({"a.csv": b"a\n" + b"1\n" * 1000})
    for cut in range(4, len(whole), 7):
        with pytest.raises(BrokenFile) as broken:
            everything(csv(), Source.memory(whole[:cut], "torn.zip"), SCHEMA)
        assert broken.value.path == "torn.zip"
    for place in range(4, len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x41
        try:
            rows = everything(csv(), Source.memory(bytes(damaged)), SCHEMA)["rows"]
        except InputError:
            continue
        assert rows == 1000


def test_an_encrypted_member_and_other_methods_are_refused():
    data = bytearray(zipped({"a.csv": b"a\n1\n"}))
    at = data.index(b"PK\x01\x02")
    data[at + 8] |= 1
    data[6] |= 1
    for archive in (bytes(data), zipped({"a.csv": b"a\n1\n"}, zipfile.ZIP_LZMA)):
        with pytest.raises(InputError) as refused:
            everything(csv(), archive, SCHEMA)
        assert refused.value.code == "NotReadableMember"


def peak(act) -> int:
    tracemalloc.start()
    try:
        act()
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


def test_a_bomb_takes_no_more_memory_than_the_limits_allow():
    line = Source.memory(zipped({"a.csv": b"a\n" + b"x" * (64 << 20)}), "bomb.zip")
    table = Source.memory(zipped({"a.parquet": b"\0" * (64 << 20)}), "bomb.zip")
    assert max(line.size, table.size) < 100_000

    def refused():
        with pytest.raises(LimitExceeded):
            everything(csv(max_record_bytes=1 << 20), line, SCHEMA)
        with pytest.raises(LimitExceeded) as beyond:
            everything(parquet(max_batch_bytes=1 << 20), table, SCHEMA)
        assert beyond.value.limit == "limits.batch_bytes"

    assert peak(refused) < 32 << 20


def test_a_large_directory_is_refused_before_it_is_read():
    many = zipped({f"{number:0200}": b"" for number in range(20_000)}, zipfile.ZIP_STORED)

    def refused():
        with pytest.raises(LimitExceeded, match="directory"):
            everything(csv(), Source.memory(many, "many.zip"), SCHEMA)

    assert peak(refused) < 16 << 20
