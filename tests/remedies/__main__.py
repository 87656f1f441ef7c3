"""`python -m tests.remedies`: bring `prose.txt` up to date, and print which stories are still to be told."""

from __future__ import annotations

import sys

import tests.remedies.stories  # noqa: F401 (registers them)
from tests.remedies.collect import remedies
from tests.remedies.registry import PROSE, lines, prose
from tests.remedies.story import STORIES

HEADER = (
    "# Remedies that name nothing to type: a module, then its texts as the code has them (see registry.py).\n"
    "# `python -m tests.remedies` adds new ones and removes those that are gone; read what it adds.\n"
)


def main() -> int:
    """Keep what is marked, add what names nothing to type, leave the rest to somebody who tells a story."""
    told = {key for each in STORIES for key in each.remedies}
    left = [key for key in remedies() if key not in told]
    kept = [key for key in left if key in prose() or not key.can_be_typed]
    PROSE.write_text(f"{HEADER}{lines(kept, prose())}\n", encoding="utf-8")
    missing = [key for key in left if key not in kept]
    for key in missing:
        sys.stdout.write(f'@story("{key.module}", {key.text!r})  # {remedies()[key]}\n')
    sys.stdout.write(f"{len(kept)} are prose, {len(told)} have stories, {len(missing)} have neither\n")
    return 1 if missing else 0


if __name__ == "__main__":
    sys.exit(main())
