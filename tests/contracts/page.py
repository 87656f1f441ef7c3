"""The page "Contracts" of the documentation, made from the same data as the check."""

from __future__ import annotations

from pathlib import Path

from tests.contracts.register import AREAS, Contract, contracts, done

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "contracts.md"

HEAD = """# Contracts

<!-- Made by `make contracts` from tests/contracts/contracts.json: change that file, not this page. -->

Everything Trueline promises has a number. A test that holds a
contract carries it as a mark, `@pytest.mark.contract("chain:C8")`; `make contracts` shows which contracts
have a test. For the pieces that are done ({done}) each contract has a test, is dropped (with the reason),
or only permits something; the check fails otherwise.

Strengths: *must*; *should*; *convention* (a habit worth freezing); *permits* (allowed, so there is nothing to
test); *dropped* (does not apply here). Short capitals at the end of a text say where the rule was found in
ML.NET: XML and DP, TS, IM, CN, KV, VB, SC its documents, CODE its source, TEST its test framework.
"""


def page() -> str:
    """Write the whole page."""
    parts = [HEAD.format(done=", ".join(sorted(done())))]
    for area, what in AREAS.items():
        rows = [_row(c) for c in contracts().values() if c.area == area]
        parts.append(f"\n## {area}: {what}\n\n| contract | strength | piece | text |\n|---|---|---|---|\n")
        parts.extend(rows)
    return "".join(parts)


def _row(contract: Contract) -> str:
    text = contract.text
    if contract.error and contract.strength != "dropped":
        text += f" Refused with `{contract.error}`."
    if contract.why:
        text += f" **Why:** {contract.why}."
    safe = text.replace("|", "\\|").replace("\n", " ").replace("<", "&lt;")
    return f"| `{contract.id}` | {contract.strength} | {contract.piece} | {safe} |\n"
