"""Say which contracts have tests: `python -m tests.contracts [--check]`.

Without `--check` it lists every contract and writes the page; with it only the summary and the gaps. Exits 1
when a contract of a piece that is done has no test, 2 when the tests cannot be collected.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

from tests.contracts.page import PAGE, page
from tests.contracts.register import AREAS, NEEDS_NO_TEST, contracts, done, missing
from trueline.console import Console, TerminalConsole

ROOT = Path(__file__).parents[2]


def collect() -> dict[str, list[str]]:
    """Ask pytest which tests carry which contracts."""
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "contracts.json"
        command = [sys.executable, "-m", "pytest", "tests", "--collect-only", "-qq", "-p", "no:cacheprovider"]
        done = subprocess.run(
            [*command, f"--contracts-out={out}"], cwd=ROOT, capture_output=True, text=True, check=False
        )
        if done.returncode:
            sys.stderr.write(done.stdout + done.stderr)
            raise SystemExit(2)
        marked: dict[str, list[str]] = json.loads(out.read_text(encoding="utf-8"))
        return marked


def state(strength: str, tests: list[str]) -> str:
    """Say in a word where a contract stands."""
    if strength in NEEDS_NO_TEST:
        return strength
    return "tested" if tests else "no test"


def report(console: Console, marked: dict[str, list[str]], *, whole: bool) -> int:
    """Show where every area stands, and what is missing in the pieces that are done."""
    rows: list[tuple[object, ...]] = []
    for area in AREAS:
        known = [c for c in contracts().values() if c.area == area]
        states = [state(c.strength, marked.get(c.id, [])) for c in known]
        if whole:
            for contract, word in zip(known, states, strict=True):
                where = contract.why or ", ".join(
                    sorted({t.split("::")[0] for t in marked.get(contract.id, [])})
                )
                console.say(f"{contract.id:<10} {word:<8} {contract.piece:<10} {where}".rstrip())
        counts = (states.count(word) for word in ("tested", "dropped", "permits", "no test"))
        rows.append((area, len(known), *counts))
    console.table(["area", "contracts", "tested", "dropped", "permits", "no test"], rows)
    gaps = missing(marked, done())
    for gap in gaps:
        console.error(f"{gap.id} ({gap.piece} is done) has no test: {gap.text}")
    if gaps:
        console.error(
            f"{len(gaps)} contracts of pieces that are done have no test",
            remedy='mark the test that holds one with @pytest.mark.contract("<id>")',
        )
    return 1 if gaps else 0


def main(arguments: list[str]) -> int:
    """Report, and without `--check` write the page."""
    check = "--check" in arguments
    code = report(TerminalConsole(), collect(), whole=not check)
    if not check:
        PAGE.parent.mkdir(parents=True, exist_ok=True)
        PAGE.write_text(page(), encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
