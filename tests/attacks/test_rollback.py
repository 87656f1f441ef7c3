"""A head put back to an older block, or another dataset put under a name: reported, and never completed."""

from __future__ import annotations

import itertools
import os
import re
import shlex
import shutil
import time

import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import trueline as tl
from tests.attacks.growing import appended
from tests.examples import examples
from trueline.chain.chain import Chain
from trueline.chain.store.memory import MemoryStore
from trueline.chain.store.store import Folder
from trueline.cli.app import run
from trueline.errors import InputError, ObjectMissing, RolledBack
from trueline.identity.multihash import Multihash

pytestmark = pytest.mark.contract("guard:G6")
_numbers = itertools.count()


@pytest.fixture
def ws(tmp_path):
    with tl.open(tmp_path / "ws", create=True) as workspace:
        yield workspace


@pytest.fixture
def sales(ws):
    ds = ws.create("sales")
    for n in range(4):
        ds.append(pa.table({"x": [n]}))
    return ds


def set_head(ds, block) -> None:
    """What somebody with write access to the folder does."""
    (ds.workspace._location.folder(ds.name) / "refs" / "head").write_text(str(block))


def objects(ds) -> set[tuple[str, str]]:
    store = ds.chain.store
    return {(folder.value, str(stored.hash)) for folder in Folder for stored in store.list(folder)}


def age(ds) -> None:
    """Make everything old enough for gc."""
    folder, then = ds.workspace._location.folder(ds.name), time.time() - 7200
    for path in [folder, *folder.rglob("*")]:
        os.utime(path, (then, then), follow_symlinks=False)


def kinds(report) -> list[str]:
    return [str(problem.kind) for problem in report.problems]


def commits(ds) -> list[Multihash]:
    return [commit.block for commit in ds.log()][::-1]


# --- rolled back -------------------------------------------------------------------


@pytest.mark.parametrize("looks", [False, True], ids=["at once", "after others have looked"])
def test_an_older_head_is_reported(ws, sales, looks):
    tip, number = sales.head, sales.info.blocks - 1
    older = commits(sales)[-3]
    set_head(sales, older)
    if looks:
        # Reading brings the index to the older head; what it has seen is not forgotten by that.
        assert sales.view().to_arrow().num_rows == 2
        ws.close()
    (problem,) = ws["sales"].verify().problems
    assert (problem.kind, problem.block, problem.sequence_number) == ("rolled_back", tip, number)
    assert (problem.expected, problem.actual, problem.rule) == (str(tip), str(older), "guard:G6")
    assert "2 blocks further on" in problem.message
    assert kinds(ws.verify()) == ["rolled_back"]


def test_gc_does_not_complete_a_rollback(ws, sales):
    before = objects(sales)
    set_head(sales, commits(sales)[0])
    age(sales)
    for dry_run in (True, False):
        with pytest.raises(RolledBack, match="sales") as caught:
            ws.gc(older_than=0, dry_run=dry_run)
    assert "--restore-head" in caught.value.remedy
    assert objects(sales) == before


def test_a_removal_does_not_complete_a_rollback(sales):
    before = objects(sales)
    set_head(sales, commits(sales)[1])
    with pytest.raises(RolledBack):
        sales.drop_data(where="x = 0", reason="any")
    assert objects(sales) == before


def test_an_append_after_the_rollback_does_not_hide_it(ws, sales):
    tip, older = sales.head, commits(sales)[-2]
    set_head(sales, older)
    sales.append(pa.table({"x": [99]}))
    (problem,) = sales.verify().problems
    assert (str(problem.kind), problem.block) == ("rolled_back", tip)
    assert "another branch" in problem.message
    assert str(older) in problem.message
    with pytest.raises(RolledBack):
        ws.gc(older_than=0)


def test_the_remedy_puts_the_head_back(ws, sales):
    tip = sales.head
    set_head(sales, commits(sales)[0])
    (problem,) = sales.verify().problems
    eval(problem.remedy.split("`, ")[1].split(";")[0], {"ws": ws})
    assert sales.head == tip
    assert sales.verify().ok
    age(sales)
    ws.gc(older_than=0)
    assert sales.view().to_arrow()["x"].to_pylist() == [0, 1, 2, 3]


def test_the_remedy_accepts_the_head(ws, sales):
    set_head(sales, commits(sales)[0])
    (problem,) = sales.verify().problems
    eval(problem.remedy.rsplit(", ", 1)[1], {"ws": ws})
    assert sales.verify().ok
    age(sales)
    assert ws.gc(older_than=0).objects > 0
    ws.close()
    assert ws["sales"].verify().ok


def test_the_remedies_work_on_the_command_line(ws, sales, capsys):
    folder, tip = str(ws._location.path), sales.head
    set_head(sales, commits(sales)[0])
    ws.close()
    assert run(["-C", folder, "gc"]) == 1
    assert run(["-C", folder, "verify"]) == 1
    shown = capsys.readouterr()
    restore, accept = re.findall(r"`trueline (verify [^`]+)`", (shown.out + shown.err).replace("\n", " "))[:2]
    assert run(["-C", folder, *shlex.split(restore)]) == 0
    assert ws["sales"].head == tip
    set_head(sales, commits(sales)[0])
    assert run(["-C", folder, "verify", "sales"]) == 1
    assert run(["-C", folder, *shlex.split(accept)]) == 0
    assert run(["-C", folder, "verify"]) == 0
    assert run(["-C", folder, "verify", "--accept-head"]) == 2


def test_a_head_is_put_back_only_where_all_before_it_is_here(ws, sales):
    tip, middle = sales.head, commits(sales)[-2]
    set_head(sales, commits(sales)[0])
    (ws._location.folder("sales") / "blocks" / str(middle)).unlink()
    (problem,) = sales.verify().problems
    assert "not all" in problem.message
    assert "copy" in problem.remedy
    with pytest.raises(ObjectMissing):
        sales.restore_head(tip)
    assert sales.head == commits(sales)[0]


def test_putting_a_head_back_over_a_branch_forgets_the_branch(sales):
    tip = sales.head
    set_head(sales, commits(sales)[0])
    sales.append(pa.table({"x": [99]}))
    sales.restore_head(tip)
    assert sales.verify().ok


def test_what_was_seen_outlives_an_index_that_is_made_anew(sales):
    set_head(sales, commits(sales)[0])
    sales.chain.rebuild_index()
    assert kinds(sales.verify()) == ["rolled_back"]
    sales.chain.rebuild_index()
    assert kinds(sales.verify()) == ["rolled_back"]


def test_where_the_index_cannot_be_written(ws, sales, monkeypatch):
    """A folder that is read only, or full: the copy in memory knows what the file knew."""
    from trueline.chain.index import Index
    from trueline.chain.index_rows import Unusable

    tip = sales.head
    set_head(sales, commits(sales)[0])
    ws.close()
    connect = Index._connect

    def refused(index):
        if index.place is not None:
            raise Unusable("read only")
        return connect(index)

    monkeypatch.setattr(Index, "_connect", refused)
    (problem,) = ws["sales"].verify().problems
    assert (str(problem.kind), problem.block) == ("rolled_back", tip)


def test_in_an_object_store(tmp_path, monkeypatch):
    import obstore

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    with tl.open(f"memory://rollback-{next(_numbers)}/lake", create=True) as ws:
        ds = ws.create("sales")
        first = ds.append(pa.table({"x": [1]}))
        tip = ds.append(pa.table({"x": [2]})).block
        before = objects(ds)
        obstore.put(ws._location._client, "lake/datasets/sales/refs/head", str(first.block).encode())
        assert kinds(ds.verify()) == ["rolled_back"]
        with pytest.raises(RolledBack):
            ws.gc(older_than=0)
        assert objects(ds) == before
        ds.restore_head(tip)
        assert ds.verify().ok


# --- replaced ----------------------------------------------------------------------


def replace_folder(ws, name, other) -> None:
    ws.close()
    shutil.rmtree(ws._location.folder(name))
    shutil.copytree(ws._location.folder(other), ws._location.folder(name))


def test_another_dataset_under_the_name_is_reported(ws, sales):
    other = ws.create("other")
    other.append(pa.table({"x": [7]}))
    tip = sales.head
    replace_folder(ws, "sales", "other")
    (problem,) = ws["sales"].verify().problems
    assert (str(problem.kind), problem.block) == ("replaced", tip)
    assert str(ws["other"].id) in problem.message
    with pytest.raises(RolledBack):
        ws.gc(older_than=0)
    ws["sales"].accept_head()
    assert ws.verify().ok
    ws.gc(older_than=0)


def test_another_dataset_copied_over_it_can_be_undone(ws, sales):
    """Only the head and new objects were written: everything of the former is still there."""
    other = ws.create("other")
    other.append(pa.table({"x": [7]}))
    whose, tip, before = sales.id, sales.head, objects(sales)
    ws.close()
    shutil.copytree(ws._location.folder("other"), ws._location.folder("sales"), dirs_exist_ok=True)
    (problem,) = ws["sales"].verify().problems
    assert str(problem.kind) == "replaced"
    assert str(whose) in problem.message
    with pytest.raises(RolledBack):
        ws.gc(older_than=0)
    assert before <= objects(ws["sales"])
    ws["sales"].restore_head(tip)
    assert ws["sales"].id == whose
    assert ws.verify("sales").ok


# --- what is meant -----------------------------------------------------------------


def test_a_reset_is_meant(ws, sales):
    sales.chain.reset(commits(sales)[0])
    assert sales.verify().ok
    age(sales)
    ws.gc(older_than=0)


def test_a_head_that_moved_on_elsewhere_is_fine(ws, sales, tmp_path):
    """Another machine, with an index of its own, writes to the same folder."""
    assert sales.verify().ok
    ws.close()
    shutil.copytree(ws._location.private, tmp_path / "kept")
    ws["sales"].append(pa.table({"x": [5]}))
    ws.close()
    shutil.rmtree(ws._location.private)
    shutil.copytree(tmp_path / "kept", ws._location.private)
    assert ws["sales"].verify().ok
    ws.gc(older_than=0)


def test_a_head_that_went_back_and_on_again_is_fine(sales):
    tip = sales.head
    set_head(sales, commits(sales)[0])
    assert not sales.verify().ok
    set_head(sales, tip)
    assert sales.verify().ok
    sales.append(pa.table({"x": [5]}))
    assert sales.verify().ok


def test_a_dataset_made_anew_under_the_name_of_a_deleted_one_is_fine(ws, sales):
    ws.close()
    shutil.rmtree(ws._location.folder("sales"))
    ws.create("sales").append(pa.table({"x": [1]}))
    assert ws.verify().ok


def test_a_clone_by_force_is_meant(ws, sales, tmp_path):
    with tl.open(tmp_path / "there", create=True) as there:
        clone = there.clone(ws._location.folder("sales"))
        clone.append(pa.table({"x": [50]}))
        sales.append(pa.table({"x": [60]}))
        there.clone(ws._location.folder("sales"), force=True)
        assert clone.verify().ok
        assert there.gc(older_than=0).skipped == {}


# --- clones, and heads kept elsewhere ------------------------------------------------


def test_a_clone_knows_what_it_was_brought_up_to(ws, sales, tmp_path):
    with tl.open(tmp_path / "there", create=True) as there:
        clone = there.clone(ws._location.folder("sales"))
        tip = clone.head
        set_head(clone, commits(clone)[0])
        there.close()
        shutil.rmtree(there._location.private)  # the index is lost
        (problem,) = there["sales"].verify().problems
        assert (str(problem.kind), problem.block) == ("rolled_back", tip)
        with pytest.raises(RolledBack):
            there.gc(older_than=0)
        there["sales"].accept_head()
        assert there.verify().ok


def test_a_clone_that_was_replaced_knows_whose_it_was(ws, sales, tmp_path):
    other = ws.create("other")
    other.append(pa.table({"x": [7]}))
    with tl.open(tmp_path / "there", create=True) as there:
        there.clone(ws._location.folder("sales"))
        there.close()
        shutil.rmtree(there._location.private)
        shutil.rmtree(there._location.folder("sales"))
        shutil.copytree(ws._location.folder("other"), there._location.folder("sales"))
        (problem,) = there["sales"].verify().problems
        assert str(problem.kind) == "replaced"
        assert str(sales.id) in problem.message
        there["sales"].accept_head()
        assert there.verify().ok
        assert there["sales"].origin is None


def test_an_update_heals_a_clone_that_was_rolled_back(ws, sales, tmp_path):
    with tl.open(tmp_path / "there", create=True) as there:
        clone = there.clone(ws._location.folder("sales"))
        set_head(clone, commits(clone)[0])
        assert kinds(clone.verify()) == ["rolled_back"]
        there.pull()
        assert clone.verify().ok


def test_a_head_that_was_kept_elsewhere(ws, sales):
    kept = commits(sales)
    tip = sales.head
    assert sales.verify(expected_head=kept[0]).ok
    assert sales.verify(expected_head=tip).ok
    assert sales.verify(expected_head=sales.commit(tip)).ok
    set_head(sales, kept[1])
    ws.close()
    shutil.rmtree(ws._location.private)  # nothing here knows better
    assert ws["sales"].verify().ok
    (problem,) = ws["sales"].verify(expected_head=str(tip)).problems
    assert str(problem.kind) == "rolled_back"
    assert "accept" not in problem.remedy
    stranger = Multihash.of(b"of something else")
    assert kinds(ws["sales"].verify(expected_head=stranger)) == ["rolled_back"]
    with pytest.raises(InputError):
        ws["sales"].verify(expected_head="7137c635")


def test_a_source_without_the_expected_head_is_not_cloned(ws, sales, tmp_path, capsys):
    kept, tip = commits(sales), sales.head
    place = ws._location.folder("sales")
    with tl.open(tmp_path / "there", create=True) as there:
        set_head(sales, kept[1])
        with pytest.raises(RolledBack):
            there.clone(place, expected_head=tip)
        assert "sales" not in there
        folder = str(there._location.path)
        assert run(["-C", folder, "clone", str(place), "--expected-head", str(tip)]) == 1
        set_head(sales, tip)
        assert run(["-C", folder, "clone", str(place), "--expected-head", str(tip)]) == 0
        assert there["sales"].head == tip
        assert run(["-C", folder, "verify", "sales", "--expected-head", str(kept[0])]) == 0
        there.clone(place, expected_head=kept[0])
        with pytest.raises(RolledBack):
            there.clone(place, expected_head=Multihash.of(b"newer"))
        set_head(sales, kept[1])
        with pytest.raises(RolledBack):
            there.clone(place, force=True, expected_head=tip)
        assert there["sales"].head == tip


# --- all of it ---------------------------------------------------------------------


@settings(max_examples=examples(60), deadline=None)
@given(data=st.data())
def test_whatever_the_history_a_head_that_goes_back_is_known(data):
    """Appends, branches and rollbacks in any order: every end that was seen and left is remembered."""
    chain = Chain(MemoryStore())
    appended(chain, 1)
    parents: dict[Multihash, Multihash | None] = {name: block.prev_block_hash for name, block in chain.walk()}
    heads = [chain.head]
    for _ in range(data.draw(st.integers(1, 6), label="steps")):
        if data.draw(st.booleans(), label="append"):
            appended(chain, data.draw(st.integers(1, 2), label="rows"))
            parents |= {name: block.prev_block_hash for name, block in chain.walk()}
        else:
            # By its place, for hashes differ from run to run.
            to = heads[data.draw(st.integers(0, len(heads) - 1), label="head")]
            chain.store.move_head(to, expected=chain.head)
        chain.tail()
        heads.append(chain.head)
    seen = set(heads)
    past: set[Multihash] = set()
    name = chain.head
    while name is not None:
        past.add(name)
        name = parents[name]
    suspicious = {str(each.head) for each in chain.seen_heads()}
    # Heads on the way to one that is reported need not be reported themselves.
    ends = {
        str(each)
        for each in seen - past
        if not any(_is_before(each, other, parents) for other in seen - past)
    }
    assert ends <= suspicious <= {str(each) for each in seen - past}


def _is_before(one, other, parents) -> bool:
    name = parents[other]
    while name is not None and name != one:
        name = parents[name]
    return name is not None


@settings(max_examples=examples(15), deadline=None)
@given(sizes=st.lists(st.integers(1, 3), min_size=1, max_size=5), data=st.data())
def test_wherever_a_head_goes_back_to_it_is_reported_and_nothing_is_deleted(tmp_path_factory, sizes, data):
    with tl.open(tmp_path_factory.mktemp("history"), create=True) as ws:
        ds = ws.create(
            "sales", merge=tl.merge.upsert("x") if data.draw(st.booleans(), label="keyed") else None
        )
        for number, rows in enumerate(sizes):
            ds.append(pa.table({"x": range(rows), "y": [number] * rows}))
        tip, names = ds.head, [name for name, _ in ds.blocks()]
        to = names[data.draw(st.integers(0, len(names) - 1), label="rolled back to")]
        before = objects(ds)
        set_head(ds, to)
        if data.draw(st.booleans(), label="reopened"):
            ws.close()
            ds = ws["sales"]
        age(ds)
        if to == tip:
            assert ds.verify().ok
            assert ws.gc(older_than=0).objects == 0
        else:
            assert "rolled_back" in kinds(ds.verify())
            with pytest.raises(RolledBack):
                ws.gc(older_than=0)
        assert objects(ds) == before
