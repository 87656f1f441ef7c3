"""Small files that took gigabytes, and lack of memory that was reported as damage (guard:G8).

Each attack runs in a process of its own, with little memory allowed by the settings, and says how much
more than before it has held at most. They are forks of one that has loaded everything: to load takes longer
than most attacks.
"""

from __future__ import annotations

import gzip
import io
import json
import os
import resource
import struct
import subprocess
import sys
import traceback
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

import trueline as tl
from trueline.chain.block import Block
from trueline.chain.datatypes import DataSchema
from trueline.chain.events import AddData, DataSlice, OffsetInterval
from trueline.chain.schema import fields_of, to_arrow
from trueline.chain.store.store import Folder
from trueline.errors import BrokenFile, CorruptionError, LimitExceeded, OutOfMemory, TruelineError
from trueline.identity.multihash import Multihash
from trueline.readers import Limits, Source
from trueline.readers.parquet_file import BoundedFile
from trueline.view import View

MIB = 1 << 20
RECORD, BATCH = 1 * MIB, 4 * MIB
# What docs/reference/settings.md promises.
OF_TEXT, OF_PARQUET = 64 * RECORD, 16 * BATCH
# What taking rows in holds besides, whatever comes: pieces of 64 MiB and groups of 128 MiB, as they come
# and as they are written.
OF_INTAKE = 768 * MIB
# More than any attack may need, so that one that succeeds does no harm here.
ROOM = 8 << 30
# 64 KiB that a dictionary holds once, and that 4,096 rows repeat: 256 MiB, or for what may hold more 1 GiB.
LONG, ROWS = 1 << 16, 1 << 12
# Keys or columns of a file of text: as many lines with all of them would be more than four million cells.
KEYS = 3_000

pytestmark = [
    pytest.mark.contract("guard:G8"),
    pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="peaks are read from /proc"),
]


# --- files ----------------------------------------------------------------------------


def parquet(table: pa.Table, **options: Any) -> bytes:
    file = io.BytesIO()
    usual = {"compression": "zstd", "store_schema": False, "write_statistics": False}
    pq.write_table(table, file, **{**usual, **options})
    return file.getvalue()


def repeated(rows: int = ROWS, size: int = LONG) -> pa.DictionaryArray:
    return pa.DictionaryArray.from_arrays(pa.array(np.zeros(rows, np.int32)), pa.array(["a" * size]))


def dictionary_bomb(rows: int = ROWS) -> bytes:
    return parquet(pa.table({"s": repeated(rows)}))


def chained_bomb() -> bytes:
    """Each text is said to be as the one before: 64 MiB from pages of one long text and runs of zeros."""
    texts = pa.array(["a" * LONG] * (1 << 10))
    return parquet(pa.table({"s": texts}), use_dictionary=False, column_encoding={"s": "DELTA_BYTE_ARRAY"})


def list_bomb() -> bytes:
    """One row with twenty million nulls, which two runs of levels say."""
    ends = pa.array(np.array([0, 20_000_000], np.int32))
    nulls = pa.nulls(20_000_000, pa.int64())
    return parquet(pa.table({"s": pa.ListArray.from_arrays(ends, nulls)}))


def page_bomb() -> bytes:
    """A page of one text of 200 MiB, which zstd writes in some thousand bytes."""
    return parquet(pa.table({"s": pa.array([b"\0" * (200 * MIB)])}), use_dictionary=False)


def wide_bomb() -> bytes:
    """Pages of 1 MiB that 400 columns have to hold open together."""
    text = pa.array(["a" * MIB])
    return parquet(pa.table({f"c{n}": text for n in range(400)}), use_dictionary=False)


def claiming(rows: int) -> bytes:
    """A file of three rows whose footer says it has many: numbers of Thrift are written by hand."""
    raw = parquet(pa.table({"s": pa.array([1, 2, 3], pa.int64())}), use_dictionary=False)
    (length,) = struct.unpack("<I", raw[-8:-4])
    footer = raw[-8 - length : -8]
    # Field 3 of the file and of each group of rows, of 64 bits: its number of rows.
    claim = b"\x16" + _varint(rows << 1)
    changed = footer.replace(b"\x16\x06", claim)
    assert changed.count(claim) >= 3
    return raw[: -8 - length] + changed + struct.pack("<I", len(changed)) + b"PAR1"


def _varint(value: int) -> bytes:
    out = bytearray()
    while value >= 0x80:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    return bytes([*out, value])


def new_keys() -> bytes:
    return b"".join(b'{"key_%d":1}\n' % n for n in range(KEYS))


def short_lines() -> bytes:
    """A header of 3,000 columns, and ten thousand rows that have one cell of them."""
    return ",".join(f"c{n}" for n in range(KEYS)).encode() + b"\n" + b"1\n" * 10_000


def unclosed() -> bytes:
    return b'a,b\n1,2\n3,"' + b"x,\n" * (14 * MIB)


def zipped(byte: bytes, mebibytes: int = 1024) -> bytes:
    out = io.BytesIO()
    with gzip.GzipFile(fileobj=out, mode="wb", compresslevel=1) as file:
        for _ in range(mebibytes):
            file.write(byte * MIB)
    return out.getvalue()


# --- a process that is attacked --------------------------------------------------------


def peak() -> int:
    """The most this process has held so far."""
    lines = Path("/proc/self/status").read_text().splitlines()
    return next(int(line.split()[1]) << 10 for line in lines if line.startswith("VmHWM"))


def attack(name: str, folder: Path, file: str) -> str:
    """Run one way of reading in this process, and say what came of it and what it took."""
    resource.setrlimit(resource.RLIMIT_AS, (ROOM, ROOM))
    path = str(folder / file)
    with tl.open(folder / "ws", create=True) as ws:
        ws.config.set("limits.record_bytes", RECORD)
        ws.config.set("limits.batch_bytes", BATCH)
        ws.create("good").append([{"x": 1}])
        ws["good"].view().to_arrow()
        before = peak()
        try:
            WAYS[name](ws, path)
            code, fields = "done", {}
        except TruelineError as error:
            code, fields = error.code, error.fields
            fields = {"limit": fields.get("limit"), "line": fields.get("line"), "remedy": error.remedy}
    return json.dumps([peak() - before, code, fields])


def serve() -> None:
    """Run the attacks that are asked for, each in a fork of this process; say what came of each in a line."""
    for line in sys.stdin:
        read, write = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                way, folder, file = json.loads(line)
                os.write(write, attack(way, Path(folder), file).encode())
            except BaseException:  # noqa: BLE001 (all of it is told)
                os.write(write, traceback.format_exc().encode())
            os._exit(0)
        os.close(write)
        with os.fdopen(read) as answer:
            said = answer.read()
        os.waitpid(child, 0)
        sys.stdout.write(json.dumps(said) + "\n")
        sys.stdout.flush()


def read_parquet(_: Any, path: str) -> None:
    for batch in View.read_parquet(path, max_batch_bytes=BATCH).batches():
        assert batch.num_rows


def verify(ws: Any, _: str) -> None:
    report = ws["bomb"].verify()
    assert all("logical hash" in str(problem) for problem in report.problems), report


def view(ws: Any, _: str) -> None:
    for batch in ws["bomb"].view().batches():
        assert batch.num_rows


def count(_: Any, path: str) -> None:
    View.read_parquet(path, max_batch_bytes=BATCH).count()


WAYS = {
    "append": lambda ws, path: ws.create("bomb").append(path),
    "append typed": lambda ws, path: ws.create("bomb", schema=pa.schema({"s": pa.string()})).append(path),
    "read_parquet": read_parquet,
    "read_csv": lambda _, path: list(View.read_csv(path, max_record_bytes=RECORD).batches()),
    "read_text": lambda _, path: list(View.read_text(path, max_record_bytes=RECORD).batches()),
    "count": count,
    "view": view,
    "verify": verify,
}


@pytest.fixture(scope="module")
def attacker():
    """The process that runs attacks."""
    code = "from tests.attacks.test_memory import serve; serve()"
    with subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system"},
    ) as process:
        yield process
        process.stdin.close()


@pytest.fixture
def attacked(attacker):
    """Attack a workspace in a folder by a file: returns what it held, how it ended and what it said."""

    def asked(way: str, folder: Path, file: str, content: bytes | None = None) -> tuple[int, str, Any]:
        if content is not None:
            (folder / file).write_bytes(content)
        attacker.stdin.write(json.dumps([way, str(folder), file]) + "\n")
        attacker.stdin.flush()
        said = json.loads(attacker.stdout.readline())
        assert said.startswith("["), said[-2000:]
        taken, code, fields = json.loads(said)
        return taken, code, fields

    return asked


# --- Parquet ----------------------------------------------------------------------------


def test_a_dictionary_of_one_long_text_does_not_fill_the_memory_of_a_view(tmp_path, attacked):
    content = dictionary_bomb()
    assert len(content) < 400
    taken, code, _ = attacked("read_parquet", tmp_path, "bomb.parquet", content)
    assert (code, taken <= OF_PARQUET) == ("done", True), taken


def test_a_dictionary_of_one_long_text_is_taken_in_some_rows_at_a_time(tmp_path, attacked):
    taken, code, _ = attacked("append", tmp_path, "bomb.parquet", dictionary_bomb(4 * ROWS))
    assert (code, taken <= OF_PARQUET + OF_INTAKE) == ("done", True), taken


@pytest.mark.parametrize("way", ["view", "verify"])
def test_a_slice_of_a_stranger_does_not_fill_the_memory(tmp_path, way, attacked):
    stranger(tmp_path / "ws")
    taken, code, _ = attacked(way, tmp_path, "")
    assert (code, taken <= OF_PARQUET) == ("done", True), taken


def test_a_slice_of_a_stranger_is_cloned_and_verified_within_bounds(tmp_path, attacked):
    stranger(tmp_path / "theirs")
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.clone(str(tmp_path / "theirs" / "datasets" / "bomb"), "bomb")
    taken, code, _ = attacked("verify", tmp_path, "")
    assert (code, taken <= OF_PARQUET) == ("done", True), taken


def stranger(folder: Path) -> None:
    """Make a dataset with a slice of 256 MiB in some hundred bytes."""
    with tl.open(folder, create=True) as ws:
        dataset = ws.create("bomb", schema=pa.schema({"s": pa.string()}))
        chain = dataset.chain
        tail = chain.tail()
        stored = to_arrow(DataSchema(fields_of(tail.schema)))
        numbers = np.arange(ROWS)
        block = chain.block(tail.head)
        moment = int(block.system_time) // 1_000_000
        values = {
            "offset": pa.array(numbers, pa.int64()),
            "op": pa.array(np.zeros(ROWS, np.int32)),
            "system_time": pa.array(np.full(ROWS, moment)).cast(pa.timestamp("ms", "UTC")),
            "event_time": pa.nulls(ROWS, pa.timestamp("ms", "UTC")),
            "s": repeated(),
        }
        required = [pa.field(n, values[n].type, stored.field(n).nullable) for n in stored.names]
        raw = parquet(pa.table([values[name] for name in stored.names], schema=pa.schema(required)))
        data = DataSlice(
            Multihash.of(b"nobody knows"),
            chain.store.put(Folder.DATA, raw),
            OffsetInterval(0, ROWS - 1),
            len(raw),
        )
        event = AddData(new_data=data)
        chain.append(
            Block(
                system_time=block.system_time,
                prev_block_hash=tail.head,
                sequence_number=tail.sequence_number + 1,
                event=event,
            )
        )


@pytest.mark.parametrize("bomb", [list_bomb, page_bomb, wide_bomb])
@pytest.mark.parametrize("way", ["read_parquet", "append"])
def test_what_has_to_be_in_memory_at_once_and_is_too_large_is_refused(tmp_path, bomb, way, attacked):
    taken, code, fields = attacked(way, tmp_path, "bomb.parquet", bomb())
    assert (code, fields["limit"]) == ("LimitExceeded", "limits.batch_bytes")
    assert "config set limits.batch_bytes" in fields["remedy"]
    assert taken <= OF_PARQUET, taken


def test_texts_that_continue_each_other_are_read_some_at_a_time(tmp_path, attacked):
    taken, code, _ = attacked("read_parquet", tmp_path, "bomb.parquet", chained_bomb())
    assert (code, taken <= OF_PARQUET) == ("done", True), taken


@pytest.mark.parametrize("way", ["read_parquet", "count", "append"])
def test_a_footer_that_claims_rows_that_are_not_there_is_broken(tmp_path, way, attacked):
    taken, code, _ = attacked(way, tmp_path, "bomb.parquet", claiming(1 << 40))
    assert (code, taken <= OF_PARQUET) == ("BrokenFile", True), taken


def test_ten_thousand_groups_of_one_row_are_read(tmp_path, attacked):
    content = parquet(pa.table({"s": pa.array(np.arange(10_000))}), row_group_size=1)
    taken, code, _ = attacked("read_parquet", tmp_path, "groups.parquet", content)
    assert (code, taken <= OF_PARQUET + OF_INTAKE) == ("done", True), taken


def test_columns_that_are_nested_too_deep_are_refused_before_arrow_builds_them():
    kind = pa.int8()
    for _ in range(150):
        kind = pa.struct([("s", kind)])
    raw = parquet(pa.table({"s": pa.nulls(1, kind)}))
    with pytest.raises(BrokenFile, match=r"nested 15\d levels deep"):
        tl.parquet().infer([Source.memory(raw)])


def test_more_columns_than_allowed_are_refused():
    raw = parquet(pa.table({f"c{n}": [1] for n in range(20)}))
    with pytest.raises(LimitExceeded, match=r"20 columns.*\n.*limits.columns 20.*max_columns=20") as caught:
        tl.parquet(max_columns=10).infer([Source.memory(raw)])
    assert (caught.value.code, caught.value.found) == ("TooManyColumns", 20)
    assert len(tl.parquet(max_columns=20).infer([Source.memory(raw)])) == 20


@pytest.mark.parametrize("version", ["1.0", "2.0"])
@pytest.mark.parametrize("codec", ["none", "snappy", "gzip", "zstd", "brotli", "lz4"])
def test_rows_of_usual_files_are_the_same_however_few_are_read_at_once(version, codec):
    values = [list(range(n % 40)) for n in range(3_000)]
    table = pa.table(
        {
            "text": pa.array([f"{'x' * (n % 300)}{n % 7}" for n in range(3_000)]),
            "list": pa.array(values),
            "lists": pa.array([[each, each] for each in values]),
            "struct": pa.array([{"a": n, "b": str(n)} for n in range(3_000)]),
        }
    )
    raw = parquet(table, compression=codec, data_page_version=version, row_group_size=1_000)
    few = BoundedFile(io.BytesIO(raw), "few", Limits(batch_bytes=192 << 10))
    sizes = [batch.num_rows for batch in few.all_batches(65_536)]
    assert max(sizes) < 1_000
    assert pa.Table.from_batches(few.all_batches(65_536)).equals(pq.read_table(io.BytesIO(raw)))


# --- text -------------------------------------------------------------------------------


def test_a_new_key_on_every_line_does_not_fill_the_memory():
    source = Source.memory(new_keys())
    schema = tl.json().infer([source])
    assert len(schema) == KEYS
    # All lines together have 9 million cells.
    assert next(tl.json().read(source, schema)).table.num_rows * KEYS <= 1 << 22


def test_more_keys_than_columns_are_allowed_are_refused():
    content = b"".join(b'{"key_%d":1}\n' % n for n in range(12_000))
    with pytest.raises(LimitExceeded, match=r"limits\.columns"):
        tl.json().infer([Source.memory(content)], rows=20_000)


def test_rows_short_of_thousands_of_cells_do_not_fill_the_memory():
    reader, source = tl.csv(), Source.memory(short_lines())
    schema = reader.infer([source])
    assert len(schema) == KEYS
    assert next(reader.read(source, schema)).table.num_rows * KEYS <= 1 << 22


@pytest.mark.parametrize("kind", ["csv", "json", "text"])
def test_columns_that_a_file_lacks_do_not_fill_the_memory(kind):
    content = {"csv": b"s\n" + b"1\n" * 5_000, "json": b"{}\n" * 5_000, "text": b"\n" * 5_000}[kind]
    reader = getattr(tl, kind)(**({"column": "s"} if kind == "text" else {}))
    schema = pa.schema([("s", pa.string()), *((f"c{n}", pa.int64()) for n in range(5_000))])
    reading = reader.read(Source.memory(content), schema)
    assert next(reading).table.num_rows * 5_001 <= 1 << 22


def test_a_line_of_brackets_is_a_bad_line():
    content = b'{"a":' + b"[" * 100_000 + b"]" * 100_000 + b"}\n" + b'{"a":1}\n'
    batch = next(tl.json().read(Source.memory(content), pa.schema({"a": pa.int64()})))
    assert batch.table["a"].to_pylist() == [None, 1]
    assert batch.bad["column"].to_pylist() == ["(line)"]


@pytest.mark.parametrize("way", ["append", "read_csv"])
def test_a_quote_that_is_never_closed_is_reported_with_its_line(tmp_path, way, attacked):
    taken, code, fields = attacked(way, tmp_path, "open.csv", unclosed())
    assert (code, fields["limit"], fields["line"]) == ("RecordTooLong", "limits.record_bytes", 3)
    assert "config set limits.record_bytes" in fields["remedy"]
    assert taken <= OF_TEXT, taken


def test_the_remedy_for_a_long_record_works(tmp_path):
    path = tmp_path / "long.csv"
    path.write_bytes(b"a\n" + b"x" * (2 * MIB) + b"\n")
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.config.set("limits.record_bytes", RECORD)
        dataset = ws.create("long")
        with pytest.raises(LimitExceeded) as caught:
            dataset.append(path)
        words = caught.value.remedy.split("config set ")[1].split(",")[0].split()
        ws.config.set(*words)
        assert dataset.append(path).rows == 1


def test_a_header_of_a_million_columns_is_refused(tmp_path, attacked):
    taken, code, fields = attacked("append", tmp_path, "wide.csv", b"a," * 400_000 + b"a\n1\n")
    assert (code, fields["limit"], fields["line"]) == ("TooManyColumns", "limits.columns", 1)
    assert taken <= OF_TEXT, taken


@pytest.mark.parametrize("name", ["zeros.csv.gz", "letters.csv.gz", "letters.jsonl.gz", "letters.txt.gz"])
def test_a_gibibyte_in_a_megabyte_is_not_unpacked(tmp_path, name, attacked):
    content = zipped(b"\0" if name.startswith("zeros") else b"a")
    taken, code, _ = attacked("append", tmp_path, name, content)
    assert code in ("RecordTooLong", "BrokenFile")
    assert taken <= OF_TEXT, taken


def test_a_text_without_a_line_end_is_refused(tmp_path, attacked):
    taken, code, fields = attacked("read_text", tmp_path, "line.txt", b"x" * (100 * MIB))
    assert (code, fields["line"]) == ("RecordTooLong", 1)
    assert taken <= OF_TEXT, taken


# --- lack of memory ---------------------------------------------------------------------


class Full(io.BytesIO):
    """A file in the middle of which there is no memory left."""

    def read(self, size: int | None = -1) -> bytes:
        if size is not None and size > 512:
            raise MemoryError
        return super().read(size)


STARVED = """
import resource, sys
import pyarrow as pa, trueline as tl
from pathlib import Path
from trueline.view import View
folder = Path(sys.argv[2])
with tl.open(folder / "ws") as ws:
    dataset = ws["good"]
    ws["tiny"].view().to_arrow()
    ws["tiny"].verify()
    held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (held + (24 << 20), held + (24 << 20)))
    try:
        if sys.argv[1] == "view":
            dataset.view().to_arrow()
        elif sys.argv[1] == "verify":
            found = dataset.verify().problems
            print("problems", found)
        else:
            View.read_parquet(str(folder / "good.parquet")).to_arrow()
        print("done")
    except Exception as error:
        print(type(error).__name__)
"""


@pytest.fixture(scope="module")
def large(tmp_path_factory):
    """A file and a dataset of 64 MB."""
    folder = tmp_path_factory.mktemp("large")
    table = pa.table({"x": np.random.default_rng(1).random(8_000_000)})
    pq.write_table(table, folder / "good.parquet", use_dictionary=False)
    with tl.open(folder / "ws", create=True) as ws:
        ws.create("good").append(table)
        ws.create("tiny").append(table[:10])
    return folder


@pytest.mark.parametrize("way", ["view", "verify", "read_parquet"])
def test_lack_of_memory_is_never_reported_as_damage(large, way):
    done = subprocess.run(
        [sys.executable, "-c", STARVED, way, str(large)],
        capture_output=True,
        text=True,
        check=False,
        cwd=Path(__file__).parents[2],
        env={**os.environ, "ARROW_DEFAULT_MEMORY_POOL": "system", "OMP_NUM_THREADS": "1"},
    )
    # What has no memory for a message either may end without one, but it does not blame the data.
    said = done.stdout.split()[-1:]
    is_aborted = not said and "cannot allocate memory" in done.stderr
    assert is_aborted or said in (["OutOfMemory"], ["MemoryError"]), done.stdout + done.stderr[-1000:]


def test_a_slice_that_there_is_no_memory_for_is_not_damaged(tmp_path, monkeypatch):
    with tl.open(tmp_path, create=True) as ws:
        dataset = ws.create("good")
        dataset.append(pa.table({"x": np.arange(100_000)}))
        monkeypatch.setattr(type(dataset.chain.store), "open", lambda *_: Full(_bytes_of(dataset)))
        with pytest.raises(OutOfMemory, match="out of memory while reading"):
            dataset.view().to_arrow()
        with pytest.raises(OutOfMemory, match="out of memory while verifying"):
            dataset.verify()


def _bytes_of(dataset: Any) -> bytes:
    folder = Path(dataset.chain.store.location) / "data"
    return next(path.read_bytes() for path in folder.iterdir() if path.is_file())


def test_a_file_that_there_is_no_memory_for_is_not_broken(tmp_path, monkeypatch):
    pq.write_table(pa.table({"x": [1, 2]}), tmp_path / "good.parquet")
    monkeypatch.setattr(BoundedFile, "batches", _starving)
    with (
        tl.open(tmp_path / "ws", create=True) as ws,
        pytest.raises(OutOfMemory, match="out of memory while reading"),
    ):
        ws.create("good").append(tmp_path / "good.parquet")
    with pytest.raises(OutOfMemory, match="out of memory while reading"):
        View.read_parquet(str(tmp_path / "good.parquet")).to_arrow()


def test_a_state_that_there_is_no_memory_for_is_not_damaged(tmp_path, monkeypatch):
    with tl.open(tmp_path, create=True) as ws:
        dataset = ws.create("keyed", merge=tl.merge.Upsert(key=["k"]))
        dataset.append(pa.table({"k": np.arange(50_000), "x": np.arange(50_000)}))
        monkeypatch.setattr(BoundedFile, "batches", _starving)
        with pytest.raises(OutOfMemory):
            dataset.append(pa.table({"k": [1], "x": [2]}))
        with pytest.raises(OutOfMemory):
            dataset.view().to_arrow()


def _starving(*_: Any, **__: Any) -> Any:
    raise pa.ArrowMemoryError("malloc of size 64 failed")


@pytest.mark.parametrize(
    "error", [MemoryError(), pa.ArrowMemoryError("malloc of size 1 failed"), OSError(12, "no")]
)
def test_every_form_of_it_is_out_of_memory(error):
    with pytest.raises(OutOfMemory) as caught:
        tl.errors.check_memory(error, "anything")
    assert isinstance(caught.value, MemoryError)
    assert not isinstance(caught.value, CorruptionError)
    assert caught.value.remedy
