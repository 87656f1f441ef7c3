"""A pull is a run over datasets: side by side, at one time, the same as one after another."""

from __future__ import annotations

import ast
import shutil
import threading

import pytest

import trueline as tl
from tests.architecture import module_name, source_files
from trueline.chain.instant import Instant
from trueline.errors import PullError, StoreError
from trueline.run import Run
from trueline.workspace.pull import pull as pulling

NOON = Instant.parse("2100-01-01T12:00:00Z")  # later than any clock that made the datasets


def at_noon(folder):
    ws = tl.open(folder)
    ws.clock = lambda: NOON
    return ws


def write(folder, name, *ids):
    folder.mkdir(exist_ok=True)
    (folder / name).write_text("id,price\n" + "".join(f"{i},{i}.5\n" for i in ids))


@pytest.fixture
def shop(tmp_path, server):
    """Datasets of every kind of source and strategy, below one folder that can be copied."""
    folder = tmp_path / "shop"
    with tl.open(folder, create=True) as ws:
        ws.create("pattern", source=folder / "in" / "*.csv")
        ws.create("stock", source=tl.source(folder / "stock", tl.csv()), merge=tl.merge.snapshot("id"))
        ws.create("keyed", source=tl.source(folder / "keyed", tl.csv()), merge=tl.merge.upsert("id"))
        ws.create("page", source=server.serve("/now.csv", b"id,price\n1,2\n", etag='"one"'))
        ws.create("silent", source=tl.source(folder / "nothing", tl.csv()))
        for number in range(4):
            ws.create(f"many-{number}", source=tl.source(folder / "in" / f"{number}.csv"))
    for number in range(4):
        write(folder / "in", f"{number}.csv", *range(number * 10, number * 10 + 7))
    for name in ("stock", "keyed"):
        write(folder / name, "a.csv", 1, 2, 3)
        write(folder / name, "b.csv", 2, 4)
    (folder / "nothing").mkdir()
    return folder


def history(ws):
    return {ds.name: [str(name) for name, _ in ds.blocks()] for ds in ws.datasets()}


def test_pulling_side_by_side_equals_pulling_one_after_another_hash_for_hash(shop, tmp_path):
    other = tmp_path / "copy"
    shutil.copytree(shop, other)
    with at_noon(shop) as ws:
        report = ws.pull()
        together = history(ws)
        assert ws.verify().ok
    with at_noon(other) as ws:
        for name in reversed(list(ws)):
            ws.pull(name)
        assert history(ws) == together
        assert ws.pull().rows == 0
    rows = {each.dataset: each.rows for each in report if not each.dataset.startswith("many")}
    assert rows == {"keyed": 4, "page": 1, "pattern": 28, "silent": 0, "stock": 6}
    assert [each.dataset for each in report] == sorted(together)


def test_all_that_a_pull_writes_has_its_one_time(shop):
    with at_noon(shop) as ws:
        report = ws.pull()
        first = {each.dataset: each.commits[0].system_time for each in report if each.commits}
        assert len(first) == 8
        assert set(first.values()) == {NOON}
        # Commits of one dataset follow each other, so a second one is a nanosecond later.
        assert [commit.system_time - NOON for commit in report["stock"].commits] == [0, 1]
        assert set(ws["keyed"].view(system=True).to_arrow()["system_time"].to_pylist()) == {NOON.datetime}


def test_a_clock_that_stands_still_or_goes_back_never_takes_the_chain_back(shop):
    with at_noon(shop) as ws:
        ws.pull()
        ws.clock = lambda: Instant(NOON - 10**9)
        write(shop / "in", "5.csv", 99)
        assert ws.pull("pattern")["pattern"].commit.system_time == NOON + 1
        assert ws.verify().ok


def test_datasets_are_pulled_at_the_same_time(ws, server):
    both = threading.Barrier(2, timeout=60)

    def meet(handler):
        both.wait()
        handler.send_response(200)
        handler.send_header("Content-Length", "5")
        handler.end_headers()
        handler.wfile.write(b"id\n1\n")

    for name in ("one", "two"):
        ws.create(name, source=server.serve(f"/{name}.csv", send=meet))
    assert ws.pull().rows == 2


def test_a_dataset_that_fails_is_a_key_left_out_and_keeps_the_commits_it_got(shop, monkeypatch):
    monkeypatch.setattr(pulling, "FILES_OF_A_COMMIT", 2)
    (shop / "in" / "3.csv").write_bytes(b"\x1f\x8bnot gzip")
    seen = []

    class Watching:
        def event(self, event):
            seen.append((event.what, event.key))

    with at_noon(shop) as ws:
        with pytest.raises(PullError) as refused:
            ws.pull(observers=[Watching()])
        report = refused.value.report
        assert set(report.errors) == {"pattern", "many-3"}
        assert len(report["pattern"].commits) == 1
        assert report["many-2"].rows == 7
    failed = {key for what, key in seen if what == "failed"}
    assert failed == {"pattern", "many-3"}
    assert {key for what, key in seen if what == "changed"} == set(report_names(report)) - failed


def report_names(report):
    return [each.dataset for each in report]


def test_words_of_a_pull_go_to_the_callers_console_and_one_bar_counts_datasets(shop, monkeypatch):
    take = pulling._pulled

    def telling(workspace, dataset, terms):
        tl.console.current().warn(f"about {dataset.name}")
        return take(workspace, dataset, terms)

    monkeypatch.setattr(pulling, "_pulled", telling)
    with at_noon(shop) as ws, tl.console.use(tl.console.CapturedConsole()) as seen:
        ws.pull()
        assert sorted(item.problem for item in seen.items) == [f"about {name}" for name in ws]
    assert [(work.label, work.done, work.total) for work in seen.work] == [("pull", 9, 9)]


def test_no_thread_of_a_pull_outlives_it_and_what_is_begun_ends_whole_when_it_is_interrupted(ws, inbox):
    write(inbox, "a.csv", 1)
    ws.create("other", source=inbox)
    ws.create("sales", source=inbox)

    class Interrupting:
        def event(self, event):
            if event.what == "started" and event.key == "sales":
                raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        ws.pull(observers=[Interrupting()])
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("trueline-run")]
    assert ws.pull().ok
    assert [ds.info.rows for ds in ws.datasets()] == [1, 1]


def test_a_download_is_given_up_when_the_pull_is(ws, server, monkeypatch):
    from trueline.run import Token
    from trueline.workspace.pull import scheduler as together

    given_up = Token()
    given_up.supersede()
    ws.create("page", source=server.serve("/now.csv", b"id\n1\n"))
    monkeypatch.setattr(together, "current", lambda: given_up)
    with pytest.raises(PullError) as refused:
        ws.pull()
    assert "interrupted" in refused.value.report.errors["page"].problem
    assert ws["page"].info.rows == 0


# --- one scheduler ---------------------------------------------------------------------

# Who starts threads, and for what: pieces of one operation, or requests that wait for others. None of
# them decides what is done next among steps, files to prepare, or datasets: that is run's alone.
STARTS_THREADS = {
    "trueline.run.executors": "the workers of runs",
    "trueline.run.run": "the coordinator, while values are fed",
    "trueline.chain.store.staging": "syncs beside the writer",
    "trueline.chain.store.object_turn": "renews a turn",
    "trueline.spark.engines": "a thread for each action of Spark, so that its properties end with it",
    "trueline.testing.threads": "cursors on threads, for the kit",
    "trueline.kernel.read_ahead": "reads ahead of a cursor",
    "trueline.workspace.snapshot.lease": "renews the leases of open snapshots",
    "trueline.kernel.exchange": "the batches of one view",
    "trueline.kernel.chunk": "the columns and aggregates of one view",
    "trueline.kernel.word_order": "the sorting of one view",
    "trueline.dataset.state.lookup": "the segments of one lookup",
    "trueline.kernel.tasks": "the pieces of one operation, as Spark's tasks",
    "trueline.workspace.cuts.transaction": "renews a transaction",
    "trueline.workspace.derive.strategies.keyed": "what is kept of an increment, beside its rows",
    "trueline.workspace.derive.replay": "the datasets and intervals of one proof",
    "trueline.workspace.snapshot.wait": "watches what datasets have reached",
    "trueline.workspace.transfer.arrive": "requests of one transfer",
    "trueline.workspace.transfer.copy": "requests of one transfer",
}
MAKERS = {"Thread", "InheritableThread", "ThreadPoolExecutor", "ProcessPoolExecutor", "Timer"}


def starts_threads(path):
    nodes = ast.walk(ast.parse(path.read_text(encoding="utf-8")))
    called = {ast.unparse(node.func).rpartition(".")[2] for node in nodes if isinstance(node, ast.Call)}
    return bool(called & MAKERS)


def test_there_is_one_scheduler_in_the_project():
    found = {module_name(path) for path in source_files() if starts_threads(path)}
    assert found == set(STARTS_THREADS)


def test_a_pull_does_nothing_but_by_its_run(shop, monkeypatch):
    def refuse(self, inputs):
        raise StoreError(f"a run over {', '.join(inputs)}")

    monkeypatch.setattr(Run, "execute", refuse)
    with at_noon(shop) as ws:
        before = history(ws)
        with pytest.raises(StoreError, match="a run over keyed, many-0, many-1"):
            ws.pull()
        assert history(ws) == before
