"""What a definition says that the specification has no field for: one document among the attachments.

It is part of the chain, so it is hashed, pushed and cloned with everything else.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from trueline.chain.chain import Chain
from trueline.chain.datatypes import Extra
from trueline.chain.events import AttachmentEmbedded, AttachmentsEmbedded, SetAttachments
from trueline.chain.tail import Tail
from trueline.errors import InputError, UnsupportedVersion
from trueline.workspace.duration import in_units

PATH: Final = "trueline.json"
FORMAT: Final = "trueline/definition"
VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Addendum:
    """How late rows may come, and how files of a declared source are read where a read step cannot say it.

    >>> Addendum(lateness_ns=7_200_000_000_000).to_text()
    '{"format":"trueline/definition","lateness_ns":7200000000000,"version":1}'
    >>> Addendum.from_text(Addendum(max_bad=0.1).to_text()).max_bad
    0.1
    """

    lateness_ns: int = 0
    reader: Mapping[str, Any] | None = None
    max_bad: float | None = None
    max_bytes: int | None = None

    def to_text(self) -> str:
        """Return the canonical text: equal definitions have equal bytes."""
        usual = Addendum()
        said = {name: getattr(self, name) for name in self.__slots__}
        said = {name: value for name, value in said.items() if value != getattr(usual, name)}
        return Extra.of({**said, "format": FORMAT, "version": VERSION}).entries

    @classmethod
    def from_text(cls, text: str) -> Addendum:
        """Read the document; what is not understood is an error, for rows would be taken in wrongly."""
        try:
            value = json.loads(text)
        except (ValueError, RecursionError):
            value = None
        if not isinstance(value, dict) or value.get("format") != FORMAT:
            raise _damaged("it is not a definition")
        known = {name: item for name, item in value.items() if name not in ("format", "version")}
        unknown = sorted(set(known) - set(cls.__slots__))
        if value.get("version") != VERSION or unknown:
            what = f"{unknown[0]!r}" if unknown else f"version {value.get('version')!r}"
            raise UnsupportedVersion(
                f"the attachment {PATH} says {what}, which is not known here", remedy="upgrade"
            )
        return cls(**known)

    def __post_init__(self) -> None:
        if type(self.lateness_ns) is not int or self.lateness_ns < 0:
            raise _damaged(f"the lateness is {self.lateness_ns!r}")
        if self.reader is not None and not isinstance(self.reader, Mapping):
            raise _damaged(f"the reader is {self.reader!r:.80}")
        limits: tuple[object, ...] = (self.max_bad, self.max_bytes)
        for limit in limits:
            if limit is not None and (not isinstance(limit, int | float) or not 0 <= limit < 1 << 63):
                raise _damaged(f"a limit is {limit!r:.80}")

    def attached(self, before: SetAttachments | None = None) -> SetAttachments | None:
        """Return the attachments with this document in them; None if that changes nothing."""
        others = tuple(item for item in _items(before) if item.path != PATH)
        mine = (AttachmentEmbedded(PATH, self.to_text()),) if self != Addendum() else ()
        after = SetAttachments(AttachmentsEmbedded((*others, *mine)))
        same = after == before or (before is None and not mine)
        return None if same else after


def addendum_of(chain: Chain) -> Addendum:
    """Return the addendum in force."""
    tail = chain.tail()
    return addendum_at(tail) if tail is not None else Addendum()


def addendum_at(tail: Tail) -> Addendum:
    """Return the addendum in force at a tail."""
    for item in _items(tail.attachments):
        if item.path == PATH:
            return Addendum.from_text(item.content)
    return Addendum()


def lateness_shown(chain: Chain) -> str | None:
    """Say how late rows may come, as it is written ("2h"); None if nothing was said, or not so that we know.

    Looking at a dataset must not fail for a document that only adding to it needs.
    """
    try:
        length = addendum_of(chain).lateness_ns
    except InputError:
        return None
    return in_units(length / 1e9) if length else None


def _items(event: SetAttachments | None) -> tuple[AttachmentEmbedded, ...]:
    return event.attachments.items if event is not None else ()


def _damaged(why: str) -> InputError:
    return InputError(
        f"the attachment {PATH} cannot be understood: {why}",
        remedy="it was not written by this software; replace the attachment",
        code="BadAddendum",
    )
