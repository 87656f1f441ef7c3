"""A short true story: what a workspace does, and what it survives."""

from __future__ import annotations

import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from datetime import date
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trueline
from trueline.errors import Counterexample, EnvironmentMissing, InputError

if TYPE_CHECKING:
    from trueline import View
    from trueline.console import Console
    from trueline.flow import Flow, Simulation
    from trueline.workspace import Commit, Dataset, Workspace

# Runs in a process of its own, which is killed (as by `kill -9`) at the moment that is named.
_DIES = """
import datetime, os, signal, sys
import trueline
path, moment = sys.argv[1:]
sales = trueline.open(path)["sales"]
move = sales.chain.store.move_head
def move_head(*arguments, **options):
    sales.chain.store.sync()
    if moment == "after":
        move(*arguments, **options)
    os.kill(os.getpid(), signal.SIGKILL)
sales.chain.store.move_head = move_head
sales.append([{"day": datetime.date(2026, 11, 16), "city": "Chur", "price": 7.0}])
"""


_FILE_A = "day,city,price\n2026-11-16,Bern,10.5\n2026-11-16,Basel,n.a.\n"
_FILE_B = "day,city,price\n2026-11-17,Genf,7.75\n2026-02-30,Zug,9\n2026-11-17,Bern,ten\n2026-11-17,Chur,3\n"


def tell_story(console: Console, keep: str | None) -> None:
    """Run the demo on a workspace in a temporary folder, or in a new folder that is kept."""
    with _folder(keep) as folder, trueline.open(folder / "shop", create=True) as workspace:
        story = Story(console, workspace)
        story.tell()
        if keep is not None:
            console.say(
                f"\nThe workspace is in {workspace.location}: trueline -C {folder / 'shop'} log", "strong"
            )
        console.answer(
            {"ok": True, "kept": str(folder) if keep else None, "facts": story.facts}, lambda _: None
        )


@contextmanager
def _folder(keep: str | None) -> Iterator[Path]:
    if keep is None:
        with tempfile.TemporaryDirectory(prefix="trueline-demo-") as made:
            yield Path(made)
        return
    folder = Path(keep).expanduser().absolute()
    if folder.exists() and any(folder.iterdir()):
        raise InputError(f"{folder} is not empty", remedy="name a new folder for the demo")
    folder.mkdir(parents=True, exist_ok=True)
    yield folder


class Story:
    """The chapters; each says what it does, does it, and shows what came of it."""

    def __init__(self, console: Console, workspace: Workspace) -> None:
        self.console = console
        self.workspace = workspace
        self.facts: dict[str, Any] = {}

    def tell(self) -> None:
        """Run all chapters."""
        sales = self.commits()
        self.files(sales)
        self.preparation()
        self.keys()
        self.views(sales)
        self.engines(sales)
        self.derivation()
        self.agreement()
        self.bank()
        self.race(sales)
        self.proof()
        self.deaths(sales)
        self.damage(sales)

    def chapter(self, title: str, words: str) -> None:
        """Begin a chapter."""
        self.console.say(f"\n{title}", "strong")
        self.console.say(words)

    def commits(self) -> Dataset:
        """Three commits and their log."""
        self.chapter(
            "Commits", "A dataset is made, and rows are appended three times. Each append is one commit."
        )
        sales = self.workspace.create(
            "sales", event_time="day", description="What was sold, where, for how much"
        )
        sales.append(_rows(13, ("Bern", 9.5), ("Basel", 12.0)))
        sales.append(_rows(14, ("Bern", 11.0)))
        sales.append(_rows(15, ("Zug", 30.0), ("Genf", 8.25), ("Bern", 10.0)))
        self.log(sales.log())
        self.facts["commits"] = sales.info.commits
        return sales

    def log(self, commits: Iterator[Commit]) -> None:
        """Show commits, one line each."""
        for commit in commits:
            self.console.say(f"  {commit.short}  {commit.summary}", "faint")

    def files(self, sales: Dataset) -> None:
        """Files with bad cells are ingested once."""
        self.chapter(
            "Files",
            "Two files come in. A cell that cannot be read is null and counted; no row is lost. The same\n"
            "file sent again is recognised by its bytes.",
        )
        inbox = Path(self.workspace.location).parent / "inbox"
        inbox.mkdir()
        (inbox / "a.csv").write_text(_FILE_A, encoding="utf-8")
        (inbox / "b.csv").write_text(_FILE_B, encoding="utf-8")
        commit = sales.append(str(inbox / "*.csv"))
        self.console.say(f"  {commit.short}  {commit.told}", "faint")
        for cell in commit.bad_cells().to_arrow().to_pylist():
            place = f"{Path(cell['file']).name} line {cell['line']}"
            self.console.say(f"    {place}, {cell['column']}: {cell['text']!r}", "faint")
        again = sales.append(inbox / "b.csv")
        self.console.say(f"  again    {again.summary}, {Path(again.skipped[0]).name} is known", "faint")
        self.facts["bad"] = dict(commit.bad)
        self.facts["skipped"] = len(again.skipped)

    def preparation(self) -> None:
        """Files go through steps that work ahead; the same files one step after another."""
        from trueline.cli.demo_preparing import prepare

        self.chapter(
            "Working ahead",
            "Three files go through three slow steps on their way in. Later steps begin on a file before\n"
            "earlier ones are done with it; where a file then changes, that work is thrown away.",
        )
        folder = Path(self.workspace.location).parent / "prepared"
        self.facts["prepared"] = prepare(self.console, self.workspace, folder)

    def keys(self) -> None:
        """An upsert turns into events; what did not change is not an event."""
        self.chapter(
            "Keys", "Customers are kept by key. A later row corrects an earlier one; both stay in the record."
        )
        customers = self.workspace.create("customers", merge=trueline.merge.upsert("id"))
        customers.append([{"id": 1, "city": "Bern"}, {"id": 2, "city": "Zug"}])
        commit = customers.append(
            [{"id": 2, "city": "Chur"}, {"id": 1, "city": "Bern"}, {"id": 3, "city": "Genf"}]
        )
        self.console.say(f"  {commit.short}  {commit.told}", "faint")
        for row in customers.view().to_arrow().to_pylist():
            self.console.say(f"    {row['id']}  {row['city']}", "faint")
        self.facts["customers"] = customers.view().count()

    def views(self, sales: Dataset) -> None:
        """A view, its ids, two readers that share it, and a view that breaks a contract."""
        self.chapter(
            "Views",
            "A view is a repeatable look at exactly known rows: lazy, typed, and each row has an id however\n"
            "it is read. Two cursors share one; put together again they are the serial one.",
        )
        view = sales.view().filter("price >= :least", least=9).with_columns(gross="price * 1.081")
        serial = _read([view.cursor()])
        for position, (row_id, city, gross) in enumerate(serial):
            self.console.say(f"    {position}  {row_id.hex[-6:]}  {city:<6} {gross:6.2f}", "faint")
        members = view.cursor_set(n=2)
        together = _read([trueline.view.consolidate(members)])
        which = "the same" if together == serial else "OTHER"
        self.console.say(f"  {len(members)} cursors, put together: {which} rows and ids", "good")
        try:
            trueline.testing.check(_careless())
            caught = ""
        except trueline.testing.ContractBroken as broken:
            caught = str(broken).splitlines()[0]
        self.console.say("  A view that loses rows when one of its columns is read is caught:", "faint")
        self.console.say(f"    {caught}", "faint")
        self.facts["views"] = {"rows": len(serial), "same": together == serial, "caught": caught[:7]}

    def engines(self, sales: Dataset) -> None:
        """One view in this process and on Spark: the same rows, ids and order."""
        self.chapter(
            "Two engines",
            "A view that joins, groups and sorts is computed twice, in this process and by tasks of Spark,\n"
            "whose shuffle moves the rows. Values are compared bit by bit, ids and order too.",
        )
        view = _moving(sales.view())
        try:
            there = _all_of(view.on_spark())
        except EnvironmentMissing as missing:
            self._left_out(missing)
            self.facts["engines"] = None
            return
        here = _all_of(view)
        for row_id, city, total, best in here:
            self.console.say(f"    {row_id.hex[-6:]}  {city:<6} {total:6.2f}  {best:6.2f}", "faint")
        which = "the same" if there == here else "OTHER"
        self.console.say(f"  on Spark: {which} rows, ids and order", "good" if there == here else "bad")
        self.facts["engines"] = {"rows": len(here), "same": there == here}

    def _left_out(self, missing: EnvironmentMissing) -> None:
        self.console.say(f"  left out, as there is no Spark here: {missing.problem}", "faint")
        self.console.say(f"  {missing.remedy}", "faint")

    def derivation(self) -> None:
        """Datasets that follow others by increments, proven by replay."""
        from trueline.cli.demo_deriving import derive_and_replay

        self.chapter(
            "Derived datasets",
            "Credits, debits and balances are computed from transfers by SQL, and follow them. Each commit\n"
            "records what it was computed from, so that anybody can compute it again.",
        )
        folder = Path(self.workspace.location).parent / "bank"
        try:
            self.facts["derived"] = derive_and_replay(self.console, folder)
        except EnvironmentMissing as missing:
            self._left_out(missing)
            self.facts["derived"] = None

    def agreement(self) -> None:
        """A counter that breaks under one schedule, and one that no schedule breaks."""
        self.chapter(
            "Agreement",
            "A counter acknowledges increments and answers queries. A simulator runs a test of it under\n"
            "every schedule: an acknowledged increment must be in every later answer.",
        )
        self.facts["simulated"] = _simulated(self.console)

    def bank(self) -> None:
        """Tables that are updated one by one, read as they are and where they agree."""
        from trueline.cli.demo_agreement import read_bank

        self.chapter(
            "Tables that agree",
            "Transfers become credits and debits, these balances, these a total: whatever is credited\n"
            "is debited. Tables are pulled one by one, a dashboard reads them after each: the newest\n"
            "of each shows money appear, a snapshot never does.",
        )
        self.facts["bank"] = read_bank(self.console, Path(self.workspace.location).parent / "dashboard")

    def race(self, sales: Dataset) -> None:
        """Two writers plan from the same head; both commit, one after the other."""
        self.chapter(
            "Two writers at once",
            "A second writer commits while the first is still preparing. The first finds that the head has\n"
            "moved, plans again behind it, and loses nothing.",
        )
        with trueline.open(self.workspace.location) as other:
            won: list[Commit] = []
            rows = _WhileWaiting(
                _rows(15, ("Lugano", 21.0)),
                lambda: won.append(other["sales"].append(_rows(15, ("Thun", 5.0)))),
            )
            lost = sales.append(rows)
        self.console.say(f"  second writer  {won[0].short}  {won[0].summary}", "faint")
        self.console.say(f"  first writer   {lost.short}  {lost.summary}", "faint")
        self.facts["race"] = [won[0].offsets.start, lost.offsets.start]

    def proof(self) -> None:
        """The whole chain, checked."""
        self.chapter("Proof", "verify reads every block and every file and checks each hash and each rule.")
        report = self.workspace.verify()
        self.console.say(
            f"  {report.blocks} blocks and {report.objects} files: {'ok' if report.ok else 'WRONG'}", "good"
        )
        self.facts["verified"] = report.ok

    def deaths(self, sales: Dataset) -> None:
        """Processes killed inside a commit leave the old head or the new one."""
        self.chapter(
            "A process dies",
            "Two processes are killed inside a commit, just before and just after its head moves.",
        )
        for moment in ("before", "after"):
            head, rows = sales.head, sales.info.events
            self._die(moment)
            which = "old" if sales.head == head else "new"
            whole = "ok" if self.workspace.verify().ok else "WRONG"
            self.console.say(
                f"  killed {moment:<6}  the {which} head, {sales.info.events - rows:+} rows, verify: {whole}",
                "faint",
            )
            self.facts[f"killed {moment}"] = which
        swept = self.workspace.gc(older_than=0)
        self.console.say(
            f"  gc removes what the first of these left behind: {swept.objects} files",
            "faint",
        )
        self.facts["swept"] = swept.objects

    def _die(self, moment: str) -> None:
        command = [sys.executable, "-c", _DIES, self.workspace.location, moment]
        subprocess.run(command, capture_output=True, check=False, timeout=60)  # noqa: S603 (our own program)

    def damage(self, sales: Dataset) -> None:
        """One changed byte is found, with its file and its block."""
        self.chapter("A byte changes", "One bit of the oldest file is flipped, outside of Trueline.")
        first = [commit for commit in sales.log() if commit.rows][-1]
        folder = Path(self.workspace.location) / "datasets" / sales.name / "data"
        damaged = next(path for path in folder.iterdir() if path.stat().st_size == first.size)
        intact = damaged.read_bytes()
        damaged.write_bytes(intact[:100] + bytes([intact[100] ^ 1]) + intact[101:])
        report = self.workspace.verify()
        damaged.write_bytes(intact)
        for problem in report.problems:
            self.console.say(f"  {problem}", "bad")
        self.facts["found"] = [str(problem.block) for problem in report.problems]
        again = "ok" if self.workspace.verify().ok else "WRONG"
        self.console.say(f"  the file is put back; verify: {again}", "good")


def _rows(day: int, *sold: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"day": date(2026, 11, day), "city": city, "price": price} for city, price in sold]


class _WhileWaiting:
    """Rows whose owner takes so long to hand them over that something else happens first."""

    def __init__(self, rows: list[dict[str, Any]], happens: Callable[[], None]) -> None:
        self._rows = rows
        self._happens = happens

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        import pyarrow as pa

        self._happens()
        return pa.Table.from_pylist(self._rows).__arrow_c_stream__(requested_schema)


def _read(cursors: Sequence[Any]) -> list[tuple[Any, ...]]:
    """Read cursors to their ends: ids, cities and prices."""
    found = []
    for cursor in cursors:
        with cursor:
            city, gross = cursor.getter("city"), cursor.getter("gross")
            while cursor.move_next():
                found.append((cursor.id, city(), gross()))
    return found


def _moving(sales: View) -> View:
    """What was sold by city, beside the best of its days: every step moves rows."""
    sold = sales.filter("price > 0")
    best = sold.group_by("day").agg(best="max(price)")
    by_city = sold.join(best, on="day").group_by("city").agg(total="sum(price)", best="max(best)")
    return by_city.sort("total", descending=True)


def _all_of(view: View) -> list[tuple[Any, ...]]:
    """Read a view to its end: the id and all values of each row."""
    found = []
    with view.cursor() as cursor:
        getters = [cursor.getter(name) for name in view.columns]
        while cursor.move_next():
            found.append((cursor.id, *(get() for get in getters)))
    return found


def _careless() -> Any:
    """A view that leaves out what it cannot read, but only where it is read."""
    types, view = trueline.types, trueline.view

    class Careless(trueline.testing.SimpleView):  # type: ignore[misc]
        schema = view.Schema([view.Field("city", types.text), view.Field("price", types.float64)])

        def rows(self, columns: Sequence[Any]) -> Iterator[list[Any]]:
            names = [column.name for column in columns]
            for city, price in (("Bern", 9.5), ("Zug", None), ("Chur", 3.0)):
                if price is not None or "price" not in names:
                    cells = {"city": city, "price": price}
                    yield [cells[name] for name in names]

    return Careless()


def _counter(aligned: bool) -> Flow:
    """Increments are acknowledged, queries answered with the count."""
    from trueline.flow import Flow, nondet

    flow = Flow("counter")
    server = flow.process("server")
    increments, queries = server.source("increments"), server.source("queries")
    tick = server.tick("answering")
    why = nondet("any count that includes what was acknowledged will do")
    if aligned:
        point = server.local_align_point("count")
        server.sink("acks", increments.release_aligned(point))
        count = increments.count().snapshot_aligned(tick, point, why)
    else:
        server.sink("acks", increments)
        count = increments.count().snapshot(tick, why)
    asked = queries.batch(tick, nondet("asked when it is asked"))
    server.sink("answers", asked.cross_singleton(count).all_ticks())
    return flow


def _reads_its_writes(sim: Simulation) -> None:
    """What was acknowledged is in every later answer."""
    sim.send("increments", "one", "two")
    first = sim.next("acks")
    sim.send("queries", "how many?")
    asked, count = sim.next("answers")
    assert count >= 1, f"the answer to {asked!r} is {count}, after {first!r} was acknowledged"


def _simulated(console: Console) -> dict[str, Any]:
    """Test both counters under every schedule; return what was found."""
    facts: dict[str, Any] = {"naive": None}
    try:
        _counter(aligned=False).simulate(_reads_its_writes)
    except Counterexample as found:
        console.say("  as it is usually written:", "strong")
        for line in found.trace.text().splitlines():
            console.say(f"    {line}", "faint")
        facts["naive"] = list(found.choices)
    explored = _counter(aligned=True).simulate(_reads_its_writes, hashing=False)
    console.say("  with an align point:", "strong")
    console.say(f"    {explored}", "good" if explored.exhaustive else "bad")
    facts["aligned"] = explored.exhaustive
    return facts
