"""Work in the tasks of a cluster, an executor killed in the middle of each: chapters of `deaths_story`."""

from __future__ import annotations

import shutil
import traceback
from collections.abc import Callable, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.csv as arrow_csv
import pytest

import trueline as tl
from tests.spark.killing import KillingStore
from tests.spark.lowering.counting import counted
from tests.spark.passing import passing
from trueline.chain import Instant
from trueline.dataset.append import merge as merging
from trueline.dataset.append import stream
from trueline.spark.types import arrow_schema_of
from trueline.workspace import placement
from trueline.workspace.derive import follow, strategies
from trueline.workspace.derive.strategies import increment
from trueline.workspace.preparing import validate
from trueline.workspace.transfer import clone as cloning
from trueline.workspace.transfer import push as pushing
from trueline.workspace.transfer.remote import StoreRemote

NOW = Instant.parse("2030-01-01T00:00:00Z")
ROWS = 20_000
FILES = 3


def write_files(folder: Path) -> Path:
    inbox = folder / "inbox"
    inbox.mkdir()
    for number in range(FILES):
        ids = np.arange(number * ROWS, (number + 1) * ROWS)
        table = pa.table({"id": ids, "price": ids % 97 / 8, "name": [f"n{each % 41}" for each in ids]})
        arrow_csv.write_csv(table, inbox / f"{number}.csv")
    return inbox


class Story:
    """A session of a cluster, files, and a workspace that every chapter begins with a copy of."""

    def __init__(self, session: Any, folder: Path) -> None:
        self.session, self.folder = session, folder
        self.inbox = write_files(folder)
        with tl.open(folder / "base", create=True) as ws:
            ws.create("trades")
            ws.create("pulled", source=str(self.inbox / "*.csv"))
            ws.create("keyed", merge=tl.merge.upsert("id"))

    @contextmanager
    def opened(self, name: str, spark: Any = None):
        place = self.folder / name
        if not place.exists():
            shutil.copytree(self.folder / "base", place, symlinks=True)
        with tl.open(place, spark=spark) as ws:
            ws.clock = lambda: NOW
            yield ws

    def compared(self, name: str, work: Any, at: str, dataset: str = "trades") -> dict[str, Any]:
        """Do work in this process, and in tasks of which one kills its executor; return both heads."""
        with self.opened(f"{name}-here") as ws:
            work(ws)
            expected = str(ws[dataset].head)
        told = self.told(name)
        with self.opened(f"{name}-there", self.session) as ws:
            ws[dataset].chain.store = KillingStore(ws[dataset].chain.store, told, at)
            with passing() as passed:
                work(ws)
        with self.opened(f"{name}-there") as ws:
            found = {"heads": [expected, str(ws[dataset].head)], "ok": ws[dataset].verify().ok}
        return found | {"passed": dict(passed)} | self.killed(told)

    def appended(self, name: str, view: Any, dataset: str = "trades") -> dict[str, Any]:
        """Append a view in tasks of which one kills its executor."""
        told = self.told(name)
        with self.opened(f"{name}-there", self.session) as ws:
            ds = ws[dataset]
            ds.chain.store = KillingStore(ds.chain.store, told, "scratch")
            with passing() as passed, counted(self.session) as sent:
                rows = ds.append(view).rows
        with self.opened(f"{name}-there") as ws:
            found = {"hashes": hashes(ws[dataset]), "ok": ws[dataset].verify().ok, "rows": rows}
        return found | {"passed": dict(passed), "sent": sent.bytes} | self.killed(told)

    def told(self, name: str) -> Path:
        folder = self.folder / f"{name}-told"
        folder.mkdir()
        return folder

    def killed(self, told: Path) -> dict[str, Any]:
        marker = told / "killed"
        return {"killed": int(marker.read_text()) if marker.exists() else None}


def files(story: Story) -> dict[str, Any]:
    return story.compared("files", lambda ws: ws["trades"].append(str(story.inbox / "*.csv")), "scratch")


def view(story: Story) -> dict[str, Any]:
    # Looking for its columns is not part of the append.
    rows = tl.View.read_csv(str(story.inbox / "*.csv")).sort("price")
    return story.compared("view", lambda ws: ws["trades"].append(rows), "scratch")


def steps(story: Story) -> dict[str, Any]:
    def work(ws: Any) -> None:
        ws["trades"].append(str(story.inbox / "*.csv"), steps=[validate("price > 1", drop=True)])

    return story.compared("steps", work, "scratch")


def streamed(story: Story, name: str, made: Callable[[pa.Table], Any]) -> dict[str, Any]:
    """Rows of this process come in, more than it holds: tasks write the slices."""
    rows = in_files()
    with pytest.MonkeyPatch.context() as patch:
        for place in (stream, placement):
            patch.setattr(place, "IN_MEMORY_BYTES", 1_000)
        return story.compared(name, lambda ws: ws["trades"].append(made(rows)), "write")


def table(story: Story) -> dict[str, Any]:
    return streamed(story, "table", lambda rows: rows)


def reader(story: Story) -> dict[str, Any]:
    return streamed(story, "reader", lambda rows: rows.to_reader(500))


def iterator(story: Story) -> dict[str, Any]:
    return streamed(story, "iterator", lambda rows: iter(rows.to_batches(500)))


def keyed_files(story: Story) -> dict[str, Any]:
    """Files come into a dataset that merges by key, again: tasks sort them and compare them with its rows."""

    def work(ws: Any) -> None:
        for number in (0, 1):
            ws["keyed"].append(str(story.inbox / f"{number}.csv"))
        ws["keyed"].append(str(story.inbox / "*.csv"), resend=True)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "FEW_ROWS", 0)
        return story.compared("keyed_files", work, "scratch", "keyed")


def keyed_frame(story: Story) -> dict[str, Any]:
    """A view of a frame comes into a dataset that merges by key."""
    made = frame_of(story.session)
    with story.opened("keyed_frame-here") as ws, pytest.MonkeyPatch.context() as patch:
        patch.setattr(merging, "FEW_ROWS", 0)
        ws["keyed"].append(in_files().cast(arrow_schema_of(made.schema)))
        expected = hashes(ws["keyed"])
        view = tl.View.from_spark(made, order_by=["id"])
        return story.appended("keyed_frame", view, "keyed") | {"expected": expected}


def pull(story: Story) -> dict[str, Any]:
    return story.compared("pull", lambda ws: ws.pull("pulled"), "write", "pulled")


def verify(story: Story) -> dict[str, Any]:
    told = story.told("verify")
    with story.opened("verify", story.session) as ws:
        ws.config.set("spark.tasks", "never")
        ds = ws["trades"]
        for number in range(FILES):
            ds.append(str(story.inbox / f"{number}.csv"))
        expected = ds.verify()
        ws.config.set("spark.tasks", "auto")
        ds.chain.store = KillingStore(ds.chain.store, told, "open")
        with passing() as passed:
            found = ds.verify()
        same = found == expected and found.ok and found.objects == FILES
    return {"same": same, "passed": dict(passed)} | story.killed(told)


def clone_and_push(story: Story) -> dict[str, Any]:
    """The one who sends, then the one who fetches, loses an executor."""
    sending, fetching = story.told("push"), story.told("clone")
    with story.opened("copies", story.session) as ws, pytest.MonkeyPatch.context() as patch:
        ds = ws["trades"]
        for number in range(FILES):
            ds.append(str(story.inbox / f"{number}.csv"))
        open_store, open_remote = pushing.open_store, cloning.open_remote

        def killing(url: Any, **options: Any) -> StoreRemote:
            found: Any = open_remote(url, **options)
            return StoreRemote(KillingStore(found.store, fetching, "open"))  # type: ignore[arg-type]

        patch.setattr(pushing, "open_store", lambda url: KillingStore(open_store(url), sending, "write"))
        patch.setattr(cloning, "open_remote", killing)
        with passing() as passed:
            sent = ds.push(story.folder / "copy")
            twin = ws.clone(story.folder / "copy", "twin")
        ok = ws.verify("twin").ok
        return {
            "heads": [str(ds.head), str(twin.head)],
            "ok": ok,
            "objects": sent.objects,
            "passed": dict(passed),
            "killed": story.killed(sending)["killed"],
            "killed too": story.killed(fetching)["killed"],
        }


def in_files() -> pa.Table:
    """Return the rows of all files."""
    ids = np.arange(FILES * ROWS)
    return pa.table({"id": ids, "price": ids % 97 / 8, "name": [f"n{each % 41}" for each in ids]})


def frame_of(session: Any) -> Any:
    """Return the same rows as a frame."""
    return session.range(0, FILES * ROWS, 1, 4).selectExpr(
        "id", "id % 97 / 8.0D as price", "concat('n', id % 41) as name"
    )


def frame(story: Story) -> dict[str, Any]:
    """A view of a frame is appended, in its order; what passes the driver is counted."""
    made = frame_of(story.session)
    with story.opened("frame-here") as ws:
        ordered = in_files().sort_by([("price", "ascending"), ("id", "ascending")])
        ws["trades"].append(ordered.cast(arrow_schema_of(made.schema)))
        expected = hashes(ws["trades"])
    return story.appended("frame", tl.View.from_spark(made, order_by=["price", "id"])) | {
        "expected": expected
    }


def query(story: Story) -> dict[str, Any]:
    """The answer to a query is appended."""
    with story.opened("query-there", story.session) as ws:
        ws.create("base").append(str(story.inbox / "*.csv"))
        answer = ws.sql("select id, price, name from base where price > 1 order by price, id")
        with story.opened("query-here") as here:
            kept = tl.View.read_csv(str(story.inbox / "*.csv")).filter("price > 1").sort("price", "id")
            here["trades"].append(kept)
            expected = hashes(here["trades"])
        return story.appended("query", answer) | {"expected": expected}


def hashes(ds: Any) -> list[str]:
    """The logical hashes of all slices."""
    return [str(block.event.new_data.logical_hash) for _, block in ds.blocks() if has_data(block.event)]


def has_data(event: Any) -> bool:
    return getattr(event, "new_data", None) is not None


DERIVED = "select name, count(*) as n, sum(price) as total, max(id) as newest from trades group by name"


def derived(story: Story) -> dict[str, Any]:
    """A derived dataset is pulled twice, the second time by the increment, and replayed.

    In one workspace the groups are few, in the other they are left to tasks, of which one kills its executor.
    """
    told, heads, done = story.told("derived"), [], []
    advance = strategies.advance_by

    def noted(transaction: Any) -> Any:
        done.append(advance(transaction))
        return done[-1]

    for name in ("derived-few", "derived-many"):
        with story.opened(name, story.session) as ws, pytest.MonkeyPatch.context() as patch:
            patch.setattr(follow, "advance_by", noted)
            ws["trades"].append([str(story.inbox / f"{number}.csv") for number in (0, 1)])
            ds = ws.derive("totals", DERIVED, key="name")
            ws.pull("totals")
            ws["trades"].append(str(story.inbox / "2.csv"))
            with passing() as passed:
                if name == "derived-many":
                    patch.setattr(increment, "DRIVER_BYTES", 1)
                    patch.setattr(merging, "FEW_ROWS", 0)
                    ds.chain.store = KillingStore(ds.chain.store, told, "scratch")
                ws.pull("totals")
            heads.append(hashes(ds))
        with story.opened(name, story.session) as ws:
            report = ws.verify("totals", replay=True)
            heads[-1] += [str(problem) for problem in report.problems]
            rows = ws["totals"].view().sort("name").to_arrow().to_pylist()
    return {
        "heads": heads,
        "strategies": [(each.strategy, each.reason) for each in done],
        "driver bytes": done[-1].driver_bytes,
        "ok": report.ok and report.replayed > 0,
        "rows": [len(rows), sum(row["n"] for row in rows)],
        "passed": dict(passed),
    } | story.killed(told)


def run(session: Any, folder: Path, chapters: Sequence[str]) -> dict[str, Any]:
    """Run chapters; return what each found."""
    story = Story(session, folder)
    said: dict[str, Any] = {}
    for name in chapters:
        try:
            said[name] = globals()[name](story)
        except BaseException:  # noqa: BLE001 (every chapter is told)
            said[name] = {"error": traceback.format_exc()[-3000:]}
    return said
