"""Which remedies are prose, and why those are that look like something to type."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from tests.remedies.collect import Remedy

PROSE = Path(__file__).with_name("prose.txt")
_REASON = "  <- "


@cache
def prose() -> dict[Remedy, str]:
    """Return the remedies of `prose.txt` with the reasons given there.

    A line without indentation is a module below `trueline`, an indented one a
    text as the code has it, then ` <- ` and a reason where the text names
    something that could be typed.
    """
    found: dict[Remedy, str] = {}
    module = ""
    for number, line in enumerate(PROSE.read_text("utf-8").splitlines(), 1):
        if not line.strip() or line.startswith("#"):
            continue
        if not line.startswith(" "):
            module = line.strip()
            continue
        text, _, reason = line.strip().partition(_REASON)
        key = Remedy(module, text.replace("\\n", "\n"))
        assert key not in found, f"{PROSE.name}:{number}: it is there twice"
        found[key] = reason
    return found


def lines(keys: list[Remedy], reasons: dict[Remedy, str] | None = None) -> str:
    """Return lines of `prose.txt` for remedies."""
    written: list[str] = []
    for index, key in enumerate(sorted(keys)):
        if not index or sorted(keys)[index - 1].module != key.module:
            written.append(key.module)
        reason = (reasons or {}).get(key, "")
        text = key.text.replace("\n", "\\n")
        written.append(f"    {text}{_REASON}{reason}" if reason else f"    {text}")
    return "\n".join(written)
