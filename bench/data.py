"""Verifying the data of a dataset: its files and the rows in them, beside bare sha3-256."""

from __future__ import annotations

import os
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from hashlib import sha3_256
from pathlib import Path

import trueline
from bench import sources
from bench.machine import lacks_bytes
from bench.run import Run
from bench.table import Row, rate
from bench.timing import alternate, settle
from trueline.chain import Chain
from trueline.dataset.verify import verify_data
from trueline.kernel.tasks import InlineTasks

ROUNDS = 4
NOTE = (
    "data: bytes of the slices, page cache warm. Ours hashes the files, decodes them, hashes the rows (which "
    "have more bytes than the compressed files), and checks offsets, operations and times. "
    "The peer is hashlib's sha3-256 over the files alone."
)


def run(run: Run) -> Iterator[Row]:
    rows = run.scale.verified
    if missing := lacks_bytes(run.folder, rows * 100):
        yield Row("data", f"verify {rows:,} rows", note=f"data was not measured: {missing}")
        return
    place = run.folder / "data"
    with run.doing(f"appending {rows:,} rows"), trueline.open(place, create=True) as workspace:
        dataset = workspace.create("rows", schema=sources.SCHEMA)
        for table in sources.chunks(rows):
            dataset.append(table)
    files = sorted((place / "datasets" / "rows" / "data").iterdir())
    size = sum(file.stat().st_size for file in files)
    settle()
    with trueline.open(place) as workspace:
        for workers in dict.fromkeys((1, min(8, os.cpu_count() or 1))):
            yield _beside(workspace["rows"].chain, files, rows, size, workers)


def _beside(chain: Chain, files: list[Path], rows: int, size: int, workers: int) -> Row:
    actions = {"ours": partial(_verified, chain, size, workers), "bare": partial(_hashed, files, workers)}
    taken = alternate(actions, ROUNDS, warmup=1)
    ours, bare = taken["ours"], taken["bare"]
    threads = "1 thread" if workers == 1 else f"{workers} threads"
    return Row(
        "data",
        f"verify the data of {rows:,} rows, {threads}",
        rate(size / ours.median, "B", ours),
        rate(size / bare.median, "B", bare),
        bare.median / ours.median,
        note=NOTE,
    )


def _verified(chain: Chain, size: int, workers: int) -> None:
    assert chain.head is not None
    report = verify_data(chain, None, chain.head, tasks=InlineTasks(workers))
    assert report.ok, report
    assert report.bytes == size


def _hashed(files: list[Path], workers: int) -> None:
    with ThreadPoolExecutor(workers) as pool:
        for digest in pool.map(_digest, files):
            assert digest


def _digest(file: Path) -> bytes:
    hasher = sha3_256()
    with file.open("rb") as opened:
        while chunk := opened.read(4 << 20):
            hasher.update(chunk)
    return hasher.digest()
