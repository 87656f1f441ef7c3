from __future__ import annotations

import io
from hashlib import sha3_256

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given
from hypothesis import strategies as st

from trueline.errors import InputError, StoreError
from trueline.identity import Multihash, physical_hash
from trueline.identity.multihash import HashingWriter


class Narrow(io.RawIOBase):
    """A raw sink that takes at most three bytes at a time."""

    def __init__(self):
        self.taken = bytearray()
        self.room = 1 << 30

    def writable(self):
        return True

    def write(self, data):
        part = bytes(data)[: min(3, self.room - len(self.taken))]
        self.taken += part
        return len(part)


@given(st.binary(max_size=3000))
def test_a_stream_hashes_as_its_bytes(data):
    expected = "f1620" + sha3_256(data).hexdigest()
    for source in (data, bytearray(data), memoryview(data), io.BytesIO(data)):
        assert physical_hash(source) == expected


def test_only_what_is_left_to_read_is_hashed(tmp_path):
    (tmp_path / "slice").write_bytes(b"x" * 1_000_000)
    for stream in ((tmp_path / "slice").open("rb"), io.BytesIO(b"x" * 1_000_000)):
        with stream:
            stream.seek(999_990)
            assert physical_hash(stream) == Multihash.of(b"x" * 10)


@pytest.mark.parametrize("source", [io.StringIO("text"), "text", None, 7])
def test_text_is_refused(source):
    with pytest.raises(InputError, match="binary mode"):
        physical_hash(source)


@given(st.lists(st.binary(max_size=50)))
def test_a_writer_names_exactly_what_the_sink_took(chunks):
    for sink in (io.BytesIO(), Narrow()):
        writer = HashingWriter(sink)
        assert [writer.write(chunk) for chunk in chunks] == [len(chunk) for chunk in chunks]
        taken = sink.getvalue() if isinstance(sink, io.BytesIO) else bytes(sink.taken)
        assert taken == b"".join(chunks)
        assert (writer.size, writer.tell(), writer.hash()) == (len(taken), len(taken), Multihash.of(taken))


def test_a_sink_that_stops_taking_bytes_is_an_error_and_not_a_loop():
    sink = Narrow()
    writer = HashingWriter(sink)
    sink.room = 7
    with pytest.raises(StoreError, match="after 7"):
        writer.write(b"0123456789")
    assert writer.hash() == Multihash.of(b"0123456") == Multihash.of(sink.taken)


def test_parquet_is_named_while_it_is_written():
    sink = io.BytesIO()
    writer = HashingWriter(sink)
    with pa.PythonFile(writer, mode="w") as file:
        pq.write_table(pa.table({"x": list(range(10_000))}), file)
    assert writer.closed
    assert writer.size == len(sink.getvalue()) > 0
    assert writer.hash() == Multihash.of(sink.getvalue())
    assert pq.read_table(pa.BufferReader(sink.getvalue())).num_rows == 10_000


def test_the_sink_stays_open_when_the_writer_is_closed():
    sink = io.BytesIO()
    writer = HashingWriter(sink)
    writer.write(b"foo")
    writer.close()
    with pytest.raises(InputError, match="after close"):
        writer.write(b"bar")
    assert sink.getvalue() == b"foo"
    assert writer.hash() == Multihash.of(b"foo")
