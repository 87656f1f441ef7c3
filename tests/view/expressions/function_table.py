"""The functions of the language as the page "Expressions" lists them, written from the code."""

from __future__ import annotations

from trueline.view.expressions.functions.registry import ALIASES, functions


def table() -> str:
    """Return all functions, their other names and what they give."""
    lines = ["| function | gives |", "|---|---|"]
    for name, each in functions().items():
        others = [alias for alias, meant in ALIASES.items() if meant == name]
        also = f" (also {', '.join(f'`{alias}`' for alias in sorted(others))})" if others else ""
        lines.append(f"| `{each.written}`{also} | {each.says} |")
    return "\n".join(lines).replace("||", "\\|\\|")


def differences() -> str:
    """Return the functions that differ from Spark's."""
    lines = ["| function | here |", "|---|---|"]
    lines += [f"| `{name}` | {each.spark} |" for name, each in functions().items() if each.spark]
    return "\n".join(lines)
