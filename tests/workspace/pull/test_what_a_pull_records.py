"""What a pull of derived datasets writes, and what it reads to know where it goes on."""

from __future__ import annotations

import re
import shutil
from contextlib import contextmanager
from itertools import count
from pathlib import Path

import pyarrow as pa
import pytest

import trueline as tl
from tests.workspace.derive.computed_here import computing, counted, define_by_hand
from trueline.chain.instant import Instant
from trueline.chain.store.file import FileStore
from trueline.chain.store.store import Folder
from trueline.dataset.append.incoming import from_table
from trueline.kernel.tasks import InlineTasks
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.derive import strategies
from trueline.workspace.derive.request import DerivationRequest, inputs_of

COLUMNS = {"account": pa.string(), "total": pa.float64()}
ROW = pa.table({"account": ["a"], "total": [1.0]})


def defined(ws, name, inputs):
    return define_by_hand(ws, name, f"select * from {name}", inputs, columns=COLUMNS)


def contents(folder):
    """All files of a dataset but its index, a cache, with their bytes."""
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and not {"index", ".index", "locks", "leases"} & set(path.parts)
    }


@pytest.mark.contract("derive:V10")
def test_no_byte_of_blocks_checkpoints_and_tags_depends_on_the_number_of_a_cut(tmp_path):
    with tl.open(tmp_path / "one", create=True) as ws:
        for name in ("transfers", "rates"):
            ws.create(name).append(ROW)
        defined(ws, "credits", ["transfers"])
        defined(ws, "balances", ["credits", "transfers"])
    shutil.copytree(tmp_path / "one", tmp_path / "other")
    numbers, written = [], []
    for place, more in (("one", 0), ("other", 3)):
        with tl.open(tmp_path / place) as ws, computing(counted):
            # Nothing that is pulled rests on what moves here.
            log = CutLog.of(ws)
            for _ in range(more):
                ws["rates"].append(ROW)
                log.record([ws["rates"].id])
            seconds = count(Instant.parse("2100-01-01T00:00:00Z"), 10**9)
            ws.clock = lambda seconds=seconds: Instant(next(seconds))
            found = []
            for _ in range(2):
                ws["transfers"].append(ROW)
                found.append(ws.pull("balances")["balances"].cut)
            ws.tag("audit", "balances")
            ws.tag("together", ws.snapshot("credits", "balances"))
            raw = {name: contents(Path(ws[name].chain.store.location)) for name in ("credits", "balances")}
            (document,) = (path for path in Path(ws.location).rglob("*") if _is_tags(path))
            tags = re.sub(rb'"created":\s*"[^"]*"', b"", document.read_bytes())
            assert b"audit" in tags
        numbers.append(found)
        written.append((raw, tags))
    assert numbers == [[1, 2], [4, 5]]
    assert {Path(each).parts[0] for each in written[0][0]["balances"]} >= {"blocks", "checkpoints"}
    assert written[0] == written[1]


def _is_tags(path):
    return path.is_file() and b'"trueline/tags"' in path.read_bytes()


@pytest.mark.contract("derive:V11")
def test_inputs_stand_in_the_block_as_they_were_declared(ws):
    for name in ("alpha", "middle", "zeta"):
        ws.create(name).append(ROW)
    made = defined(ws, "d", ["zeta", "alpha", "middle"])
    order = [ws[name].id for name in ("zeta", "alpha", "middle")]
    asked = DerivationRequest("d", "select 1", ["zeta", "alpha", "middle"])
    assert [each.dataset_ref for each in inputs_of(ws, asked).named] == list(map(str, order))

    def taken():
        read = made.chain.tail().data.query_inputs
        assert [each.dataset_id for each in read] == order
        return [(each.prev_offset, each.new_offset, each.last_block) for each in read]

    with computing(counted):
        ws.pull("d")
        heads = [ws[name].head for name in ("zeta", "alpha", "middle")]
        assert taken() == [(None, 0, head) for head in heads]
        ws["alpha"].append(ROW)
        ws.pull("d")
        # The others keep their positions.
        assert taken() == [(0, None, heads[0]), (0, 1, ws["alpha"].head), (0, None, heads[2])]
        ws["zeta"].append(pa.concat_tables([ROW, ROW]))
        ws.pull("d")
        assert taken()[:2] == [(0, 2, ws["zeta"].head), (1, None, ws["alpha"].head)]
        assert made.verify(replay=True).ok


@pytest.mark.contract("derive:V11")
@pytest.mark.parametrize("many", [120, pytest.param(500, marks=pytest.mark.soak)])
def test_a_pull_reads_as_many_blocks_whatever_the_length_of_the_history(tmp_path, monkeypatch, many):
    @contextmanager
    def computed(transaction):
        """Give a result that is not made of the inputs, whose slices would have to be read."""
        with transaction.dataset.chain.store.scratch() as scratch:
            yield None, from_table(ROW, transaction.tail, with_op=False), scratch, InlineTasks()

    read = []
    real = FileStore.get

    def get(self, folder, name, *args, **more):
        if folder is Folder.BLOCKS:
            read.append(name)
        return real(self, folder, name, *args, **more)

    monkeypatch.setattr(FileStore, "get", get)
    with tl.open(tmp_path / "ws", create=True) as ws:
        ws.create("transfers").append(ROW)
        defined(ws, "credits", ["transfers"])
        defined(ws, "balances", ["credits"])
    counts = []
    with computing(counted):
        monkeypatch.setattr(strategies, "computed", computed)
        for commits in (10, many - 10):
            with tl.open(tmp_path / "ws") as ws:
                for _ in range(commits):
                    ws["transfers"].append(ROW)
                    ws.pull("balances")
                ws["transfers"].append(ROW)
            for work in ("plan", "pull"):
                with tl.open(tmp_path / "ws") as ws:
                    read.clear()
                    done = getattr(ws, work)("balances")
                    counts.append((work, len(read)))
            assert all(len(each.commits) == 1 for each in done)
    assert counts[:2] == counts[2:]
    assert all(number > 0 for _, number in counts)
