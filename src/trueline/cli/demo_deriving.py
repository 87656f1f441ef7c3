"""A chapter of the demo: datasets computed from others, and a forged row that replay finds."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import trueline

if TYPE_CHECKING:
    from trueline.console import Console
    from trueline.workspace import Workspace

DEFINITIONS: Final = {
    "credits": "select account, sum(amount) as total from transfers where amount > 0 group by account",
    "debits": "select account, sum(amount) as total from transfers where amount < 0 group by account",
    "balances": "select account, sum(total) as balance from"
    " (select account, total from credits union all select account, total from debits) group by account",
}
FORGED: Final = 1_000_000.0

# Runs in a process of its own: somebody who may write in the folder changes a balance, then hashes the slice
# again, links every block after it again, and removes the state that knows the old balance.
_FORGES: Final = """
import sys
from dataclasses import replace
import pyarrow as pa, pyarrow.parquet as pq
import trueline
from trueline.chain.checkpoint import is_ours
from trueline.chain.schema import to_arrow
from trueline.chain.store.store import Folder
from trueline.identity.logical import LogicalHasher

path, column, value = sys.argv[1:]
chain = trueline.open(path)["balances"].chain
store, head, before = chain.store, chain.head, None
for name, block in list(chain.between(None)):
    event = block.event
    if name == head:
        schema = to_arrow(chain.tail().schema.schema)
        with store.open(Folder.DATA, event.new_data.physical_hash) as file:
            rows = pq.read_table(file).cast(schema)
        values = rows[column].to_pylist()[:-1] + [float(value)]
        at = schema.get_field_index(column)
        rows = rows.set_column(at, schema.field(at), pa.array(values, schema.field(at).type))
        sink, hasher = pa.BufferOutputStream(), LogicalHasher(schema)
        pq.write_table(rows, sink)
        hasher.update(rows)
        raw = sink.getvalue().to_pybytes()
        data = replace(event.new_data, logical_hash=hasher.finish(), size=len(raw),
                       physical_hash=store.put(Folder.DATA, raw))
        event = replace(event, new_data=data)
    before = store.put(Folder.BLOCKS, replace(block, prev_block_hash=before, event=event).to_bytes())
store.move_head(before, expected=head)
for each in list(store.list(Folder.CHECKPOINTS)):
    if not is_ours(store.get(Folder.CHECKPOINTS, each.hash)):
        store.delete(Folder.CHECKPOINTS, each.hash)
chain.rebuild_index()
chain.forget_heads()
"""


def derive_and_replay(console: Console, folder: Path) -> dict[str, Any]:
    """Derive balances, let them follow, and forge one; return what was seen."""
    facts: dict[str, Any] = {}
    with trueline.open(folder, create=True) as bank:
        _transfer(bank, (1, "anna", 120.0), (2, "bert", 80.0), (3, "anna", -30.0))
        for name, text in DEFINITIONS.items():
            bank.derive(name, text, key="account")
        _pull(console, bank)
        # A transfer that was wrong is corrected by its id.
        _transfer(bank, (2, "bert", 75.5), (4, "bert", -20.25), (5, "cleo", 0.1))
        plan = bank.plan()
        console.say("  Three transfers later, one of them a correction, the plan of the next pull:", "strong")
        for line in plan.explain().splitlines():
            console.say(f"    {line}", "faint")
        facts["planned"] = {stage.dataset: stage.strategy for stage in plan if stage.moves}
        _pull(console, bank, plan)
        facts["balances"] = _balances(console, bank)
        report = bank.verify(replay=True)
        said = f"{report.replayed} commits computed again from their inputs"
        console.say(f"  replay: {said}: {'ok' if report.ok else 'WRONG'}", "good" if report.ok else "bad")
        facts["replayed"] = report.replayed if report.ok else None
    facts["forged"] = _forged(console, folder)
    return facts


def _transfer(bank: Workspace, *rows: tuple[int, str, float]) -> None:
    if "transfers" not in bank:
        bank.create("transfers", merge=trueline.merge.upsert("id"))
    names = ("id", "account", "amount")
    bank["transfers"].append([dict(zip(names, row, strict=True)) for row in rows])


def _pull(console: Console, bank: Workspace, *plan: Any) -> None:
    for each in bank.pull(*plan):
        console.say(f"  pull  {each.dataset:<9} {each.told}", "faint")


def _balances(console: Console, bank: Workspace) -> dict[str, float]:
    found = {row["account"]: row["balance"] for row in bank["balances"].view().to_arrow().to_pylist()}
    for account, balance in found.items():
        console.say(f"    {account:<6} {balance:14,.2f}", "faint")
    return found


def _forged(console: Console, folder: Path) -> dict[str, Any]:
    """Let somebody change a balance and all hashes; return what each way to verify says of it."""
    console.say("  Somebody changes the last balance, and all hashes and blocks so that they fit:", "strong")
    command = [sys.executable, "-c", _FORGES, str(folder), "balance", str(FORGED)]
    subprocess.run(command, capture_output=True, check=True, timeout=60)  # noqa: S603 (our own program)
    with trueline.open(folder) as bank:
        shown = _balances(console, bank)
        hashes = bank.verify()
        console.say(f"  verify: {'ok, since all hashes fit' if hashes.ok else 'WRONG'}", "faint")
        found = bank.verify("balances", replay=True)
        for problem in found.problems:
            for line in str(problem).splitlines():
                console.say(f"  {line}", "bad")
        kinds = sorted({str(problem.kind) for problem in found.problems})
        return {"shown": max(shown.values()), "hashes": hashes.ok, "replay": kinds}
