"""`python -m tools.incremental [--check]`: write which queries are incremental, from the library of tests.

The tables are in `docs/incremental.md`, between marks. The strategy of each query is what a test has Spark
say. With `--check` nothing is written: it says whether the tables are old.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from tests.workspace.derive.queries import QUERIES
from trueline.workspace.derive.strategies.classify import KEYED, REASONS, STATELESS, WHOLE_REASONS

PAGE: Final = Path(__file__).parents[1] / "docs" / "incremental.md"
BEGIN, END = "<!-- tools/incremental.py writes this table: {} -->\n", "<!-- end of the table -->\n"


def _by_verdict() -> dict[str, list[str]]:
    """Return the queries of the library by their strategy, or by the code of why they are recomputed."""
    found: dict[str, list[str]] = {}
    for query in QUERIES:
        if query.is_run:
            text = query.sql.replace("|", "\\|")
            found.setdefault(query.how.partition(":")[0], []).append(f"`{text}`")
    return found


def strategies() -> Iterator[str]:
    """Yield the queries that follow by the increment."""
    yield from ("| query | strategy |", "|---|---|")
    found = _by_verdict()
    for strategy in (STATELESS, KEYED):
        yield from (f"| {text} | `{strategy}` |" for text in found.get(strategy, ()))


def reasons() -> Iterator[str]:
    """Yield why queries are recomputed, each with the shortest that is."""
    found = _by_verdict()
    yield from ("| code | because | for example |", "|---|---|---|")
    for code, why in REASONS.items():
        example = min(found.get(code, [""]), key=len)
        yield f"| `{code}` | {why} | {example} |".replace("|  |", "| |")


def whole() -> Iterator[str]:
    """Yield why what follows by the increment is computed as a whole; equal reasons share a line."""
    yield from ("| code | because |", "|---|---|")
    codes: dict[str, list[str]] = {}
    for code, why in WHOLE_REASONS.items():
        codes.setdefault(why, []).append(f"`{code}`")
    yield from (f"| {', '.join(each)} | {why} |" for why, each in codes.items())


def page() -> str:
    """Return the page with its tables as they should be."""
    text = PAGE.read_text(encoding="utf-8")
    for name, lines in {"strategies": strategies(), "reasons": reasons(), "whole": whole()}.items():
        begin = BEGIN.format(name)
        before, _, rest = text.partition(begin)
        table = "\n".join([*lines, ""])
        text = f"{before}{begin}\n{table}\n{END}{rest.partition(END)[2]}"
    return text


def main(arguments: list[str]) -> int:
    """Write the page, or say whether it is out of date."""
    is_old = page() != PAGE.read_text(encoding="utf-8")
    if "--check" in arguments:
        return int(is_old)
    PAGE.write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
