"""`python -m bench [NAME …]`: run the benchmarks and print one table, losses included."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from bench import (
    agreement,
    append,
    codec,
    cold,
    data,
    derive,
    files_spark,
    flows,
    identity,
    ingest,
    machine,
    plan,
    runs,
    snapshots,
    table,
    upsert,
    verify,
    view,
    views,
    views_process,
    views_spark,
)
from bench.run import Run
from bench.scale import FULL, NORMAL, QUICK, TINY, Scale
from bench.table import Row

Scenario = Callable[[Run], Iterator[Row]]
SCENARIOS: dict[str, Scenario] = {
    "append": append.run,
    "plan": plan.run,
    "verify": verify.run,
    "snapshots": snapshots.run,
    "cuts": agreement.cuts,
    "visible": agreement.visible,
    "bank": agreement.bank,
    "ids": identity.run,
    "codec": codec.run,
    "cold": cold.run,
    "ingest": ingest.run,
    "data": data.run,
    "view": view.run,
    "views": views.run,
    "views-spark": views_spark.run,
    "views-process": views_process.run,
    "upsert": upsert.run,
    "runs": runs.run,
    "flows": flows.run,
    "files-spark": files_spark.run,
    "derive-keyed": derive.keyed,
    "derive-sums": derive.sums,
    "derive-tiny": derive.tiny,
    "derive-empty": derive.empty,
    "derive-stateless": derive.stateless,
    "derive-rewrites": derive.rewrites,
    "replay": derive.replay,
}
RESULTS = Path(__file__).parent / "results"


def arguments(words: Sequence[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m bench", description="Ours beside the peers, in one run, as a table."
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help=f"some of: {', '.join(SCENARIOS)}")
    size = parser.add_mutually_exclusive_group()
    for scale, what in (
        (TINY, "a few seconds: shows that it runs, the numbers mean nothing"),
        (QUICK, "five minutes: a million rows, 10,000 commits and blocks, eight seconds per peer"),
        (FULL, "over an hour: 10 M rows, a million blocks (18 GB of disk), ten minutes per peer"),
    ):
        size.add_argument(f"--{scale.name}", dest="scale", action="store_const", const=scale, help=what)
    parser.add_argument("--no-peers", dest="peers", action="store_false", help="measure ours only")
    parser.add_argument("--results", type=Path, default=RESULTS, help="folder for JSON and Markdown")
    parser.set_defaults(scale=NORMAL)
    options = parser.parse_args(words)
    if unknown := [name for name in options.names if name not in SCENARIOS]:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(SCENARIOS)}")
    return options


def main(words: Sequence[str] | None = None) -> int:
    options = arguments(words)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that the temporary folder goes
    scale: Scale = options.scale
    with tempfile.TemporaryDirectory(prefix="trueline-bench-") as folder:
        run = Run(scale, Path(folder), options.peers)
        about = machine.describe(run.folder) | {"scale": scale.name}
        line = f"{machine.in_words(about)}\nscale {scale.name}"
        print(line, flush=True)
        rows: list[Row] = []
        for name in dict.fromkeys(options.names) or SCENARIOS:
            rows += _measure(name, run, about, options.results)
        (options.results / "table.md").write_text(f"{line}\n\n{table.markdown(rows)}\n", encoding="utf-8")
        print(f"\n{table.plain(rows)}\n\n{table.verdict(rows)}", flush=True)
        # Millions of files take minutes to remove; the table need not wait for that.
        print("  removing the temporary files", file=sys.stderr, flush=True)
    return 1 if any(row.note.startswith(f"{row.scenario} failed") for row in rows) else 0


def _measure(name: str, run: Run, about: dict[str, object], results: Path) -> list[Row]:
    """Run one scenario, show its rows as they come and keep them as JSON."""
    print(f"\n{name}", flush=True)
    start = time.perf_counter()
    rows: list[Row] = []
    try:
        for row in SCENARIOS[name](run):
            print("  " + " · ".join(cell for cell in row.cells if cell != "–"), flush=True)
            rows.append(row)
    except Exception as error:  # noqa: BLE001  # what the others measured must not be lost
        traceback.print_exc()
        rows.append(Row(name, f"{name}: FAILED", note=f"{name} failed: {type(error).__name__}"))
    seconds = round(time.perf_counter() - start, 1)
    results.mkdir(parents=True, exist_ok=True)
    content = {"machine": about, "seconds": seconds, "rows": [row.to_dict() for row in rows]}
    text = json.dumps(content, indent=1, ensure_ascii=False)
    (results / f"{name}.json").write_text(text + "\n", encoding="utf-8")
    return rows


if __name__ == "__main__":
    sys.exit(main())
