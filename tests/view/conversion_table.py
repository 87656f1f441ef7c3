"""The conversion table as the page "Types" shows it, written from the code."""

from __future__ import annotations

from trueline.types.conversions import FAMILIES, RULES


def table() -> str:
    """Return the matrix and, cell by cell, the rules."""
    lines = ["| from \\ to | " + " | ".join(FAMILIES) + " |", "|---" * (len(FAMILIES) + 1) + "|"]
    for source in FAMILIES:
        cells = [_mark(source, target) for target in FAMILIES]
        lines.append(f"| **{source}** | " + " | ".join(cells) + " |")
    lines += ["", "| from | to | becomes | null if |", "|---|---|---|---|"]
    lines += [f"| {a} | {b} | {rule.rule} | {rule.loses or '–'} |" for (a, b), rule in RULES.items()]
    return "\n".join(lines)


def _mark(source: str, target: str) -> str:
    rule = RULES.get((source, target))
    return "·" if rule is None else "some" if rule.loses else "all"
