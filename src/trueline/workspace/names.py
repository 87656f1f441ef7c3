"""What a dataset and a tag may be called: names that cannot lead out of the workspace."""

from __future__ import annotations

import re
from collections.abc import Iterable
from difflib import get_close_matches
from typing import Final

from trueline.chain.store.store import is_ref
from trueline.dataset.at import reads_as_position
from trueline.errors import BadName, DatasetNotFound, InputError

_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,127}")
# Windows opens a device for these, whatever their ending; a workspace should survive being copied there.
_DEVICES: Final = re.compile(r"(?:con|prn|aux|nul|com[0-9]|lpt[0-9])(?:\..*)?", re.IGNORECASE)


def is_name(text: object) -> bool:
    """Say whether a text may name a dataset."""
    return (
        isinstance(text, str)
        and _NAME.fullmatch(text) is not None
        and ".." not in text
        and not text.endswith(".")
        and not _DEVICES.fullmatch(text)
    )


def check_name(text: object) -> str:
    """Return a dataset's name, or refuse it.

    >>> check_name("trades.2026")
    'trades.2026'
    >>> check_name("../etc")
    Traceback (most recent call last):
    trueline.errors.BadName: '../etc' cannot name a dataset
      → use 1 to 128 of letters, digits, '.', '_', '-', with a letter or digit first; no '..'
    """
    if not is_name(text):
        shown = text[:200] if isinstance(text, str) else text
        remedy = "use 1 to 128 of letters, digits, '.', '_', '-', with a letter or digit first; no '..'"
        name, sign, at = str(text).partition("@")
        if sign and is_name(name):
            remedy = f"a dataset is read as it was by ws[{name!r}].view(at={at[:80]!r})"
        raise BadName(f"{shown!r} cannot name a dataset", remedy=remedy, name=shown)
    return str(text)


def is_tag_name(text: object) -> bool:
    """Say whether a text may be a tag: a plain name that cannot be taken for another way to say `at`.

    >>> [is_tag_name(text) for text in ("v1.0", "train-2026-11-13", "2026-11-13", "cafe", "17", "head")]
    [True, True, False, False, False, False]
    """
    return isinstance(text, str) and is_ref(text) and reads_as_position(text) is None


def check_tag_name(text: object) -> str:
    """Return a tag's name, or refuse it."""
    if is_tag_name(text):
        return str(text)
    if isinstance(text, str) and (what := reads_as_position(text)):
        raise InputError(
            f"{text!r:.80} cannot be a tag: after an @ it reads as {what}",
            remedy=f"put a word in front of it, as in release-{text:.60}",
            code="BadTag",
        )
    raise InputError(
        f"{text!r:.80} cannot be a tag",
        remedy="use 1 to 100 of letters, digits, '.', '_', '-', with a letter or digit first; no '..'",
        code="BadTag",
    )


def same_but_for_case(name: str, others: Iterable[str]) -> str | None:
    """Return the name that differs from this one by case alone, None if there is none."""
    lower = name.lower()
    return next((other for other in others if other != name and other.lower() == lower), None)


def not_found(name: str, others: Iterable[str], location: str) -> DatasetNotFound:
    """The error of a name that is not there, with the one that may have been meant."""
    known = sorted(others)
    close = get_close_matches(name, known, n=1)
    if close:
        remedy = f"did you mean {close[0]!r}?"
    elif known:
        shown = ", ".join(known[:10]) + (" …" if len(known) > 10 else "")
        remedy = f"the datasets are: {shown}"
    else:
        remedy = f"there is none yet: ws.create({name!r}) or `trueline create {name}` makes it"
    return DatasetNotFound(f"no dataset {name!r} in {location}", remedy=remedy, name=name)
