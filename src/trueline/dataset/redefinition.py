"""Changing the definition of a root from here on: its source, how it is read, lateness, description.

What was recorded stays as it is. Merge strategy, key, event time and columns are for ever.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Final

from trueline.chain.chain import Chain
from trueline.chain.events import (
    AddPushSource,
    DisablePollingSource,
    DisablePushSource,
    Event,
    SetAttachments,
    SetInfo,
    SetPollingSource,
)
from trueline.chain.head_state import Tail
from trueline.dataset.declared_source import to_fetch
from trueline.dataset.definition import PATH, Addendum, Definition, addendum_at

# How differences of a definition that no later block can change begin.
_FIXED: Final = ("kind:", "merge:", "event_time:", "schema:")


def is_fixed(difference: str) -> bool:
    """Say whether a difference is one that no later block can change.

    >>> is_fixed("merge: it is append, asked for is ledger('id')"), is_fixed("source: it is None, asked …")
    (True, False)
    """
    return difference.startswith(_FIXED)


def redefined(definition: Definition, chain: Chain) -> list[Event]:
    """Return the events that bring a chain to a definition from which it differs, in their order."""
    tail = chain.tail()
    assert tail is not None
    asked = _kept_reader(definition, tail)
    events = list(asked.events())
    return [*_sources(tail, events), *_described(chain, events), *_attached(tail, events)]


def _kept_reader(definition: Definition, tail: Tail) -> Definition:
    """Let a source that stays where it is be read as it was, where nothing else was asked for."""
    source, polling = definition.source, tail.polling
    if source is None or source.reader is not None or polling is None:
        return definition
    read = addendum_at(tail).reader
    if read is None or to_fetch(source.location, definition.base) != polling.fetch:
        return definition
    from trueline.readers import Reader

    return replace(definition, source=replace(source, reader=Reader.from_dict(read)))


def _sources(tail: Tail, events: list[Event]) -> Iterator[Event]:
    for event in events:
        if isinstance(event, SetPollingSource) and event != tail.polling:
            yield from (DisablePushSource(source_name=name) for name in tail.push)
            yield event
        elif isinstance(event, AddPushSource) and tail.polling is not None:
            yield DisablePollingSource()
            yield event


def _described(chain: Chain, events: list[Event]) -> Iterator[Event]:
    before = chain.newest(SetInfo)
    for event in events:
        if isinstance(event, SetInfo) and (before is None or before.event != event):
            yield event


def _attached(tail: Tail, events: list[Event]) -> Iterator[Event]:
    """Replace our document among the attachments; which keys are equal stays as it was recorded."""
    items = [item for each in events if isinstance(each, SetAttachments) for item in each.attachments.items]
    asked = next((Addendum.from_text(item.content) for item in items if item.path == PATH), Addendum())
    asked = replace(asked, key_equality=addendum_at(tail).key_equality)
    if (event := asked.attached(tail.attachments)) is not None:
        yield event
