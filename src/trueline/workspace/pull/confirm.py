"""Whose source is polled: one's own, or one that was confirmed here (guard:G4).

A source says which files of this machine are read. In a dataset that came
from somebody else, somebody else said so.
"""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Final

from trueline.chain.events import SetPollingSource
from trueline.chain.instant import Instant
from trueline.chain.store.files import refusal
from trueline.chain.store.folders import Inside
from trueline.chain.text import to_dict
from trueline.dataset.declared_source import shown
from trueline.errors import InputError, SourceNotConfirmed
from trueline.identity.dataset_id import DatasetId
from trueline.workspace.locations import Place, holds_key

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

# Beside the keys, which say that a dataset is one's own: what is read there are files of this machine.
_FOLDER: Final = "confirmed"


def is_ours(place: Place, dataset_id: DatasetId, polling: SetPollingSource) -> bool:
    """Say whether a source may be polled: the dataset's key is here, or just this source was confirmed."""
    return holds_key(place, dataset_id) or _confirmed(place, dataset_id) == digest(polling)


def confirm(place: Place, dataset_id: DatasetId, polling: SetPollingSource) -> None:
    """Record durably that a source of a dataset may be polled; a changed source asks again."""
    value = {
        "id": str(dataset_id),
        "source": digest(polling),
        "shown": shown(polling.fetch),
        "confirmed": str(Instant.now()),
    }
    text = json.dumps(value, indent=2, ensure_ascii=False) + "\n"
    path = _path(place, dataset_id)
    try:
        path.write(text.encode(), replace=True)
    except OSError as error:
        raise refusal(error, "write", str(path)) from error


def digest(polling: SetPollingSource) -> str:
    """Return what changes with anything in the definition of a source."""
    text = json.dumps(to_dict(polling), sort_keys=True, ensure_ascii=False, default=str)
    return hashlib.sha3_256(text.encode()).hexdigest()


def not_confirmed(name: str, polling: SetPollingSource) -> SourceNotConfirmed:
    """The error of a source that is not polled."""
    source = shown(polling.fetch)
    return SourceNotConfirmed(
        f"dataset {name!r} polls {source}, which somebody else declared: its key is not here, "
        "and it was not confirmed here",
        remedy="if these files are to be read into it: "
        f"`trueline pull --confirm {name}`, ws[{name!r}].confirm_source()",
        name=name,
        source=source,
    )


def _confirmed(place: Place, dataset_id: DatasetId) -> str | None:
    try:
        raw = _path(place, dataset_id).read_small()
        value = json.loads(raw) if raw is not None else None
    except (OSError, ValueError, RecursionError):
        return None
    if not isinstance(value, dict) or value.get("id") != str(dataset_id):
        return None
    found = value.get("source")
    return found if isinstance(found, str) else None


def _path(place: Place, dataset_id: DatasetId) -> Inside:
    return place.inside(place.keys.parent / _FOLDER / f"{dataset_id.removeprefix('did:odf:')}.json")


def confirm_source(dataset: Dataset) -> str:
    """Confirm the source that a dataset polls, or the function that computes it; return what that is."""
    from trueline.workspace.derive.function import confirm_function

    tail, origin = dataset._tail, dataset.origin
    if tail.transform is not None and (function := confirm_function(dataset)) is not None:
        return function
    if tail.polling is None or origin is not None:
        kind = "has no source" if origin is None else f"is a copy of {origin.url}, which polls for it"
        raise InputError(
            f"dataset {dataset.name!r} {kind}", remedy="there is nothing to confirm", code="NoSource"
        )
    confirm(dataset.workspace._location, tail.dataset_id, tail.polling)
    return shown(tail.polling.fetch)
