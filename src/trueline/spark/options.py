"""Options of `format("trueline")`, which Spark passes as flat text: for reading and for writing."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.store.options import nested
from trueline.errors import InputError
from trueline.workspace import open as open_workspace

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset

# `path` is what load(…), save(…) and start(…) are given: another word for the workspace.
PLACE: Final = ("workspace", "path", "dataset")
_STORE: Final = "store."
# What `trueline.open` takes for itself.
_OURS: Final = ("store.path", "store.create", "store.spark", "store.trusted_sql")
_TRUE: Final = {"true": True, "false": False}


def parsed(options: Mapping[str, str], known: Sequence[str]) -> dict[str, str]:
    """Return options by their names in lower case, or raise naming the one that is not valid.

    >>> parsed({"path": "shop", "Dataset": "sales", "newColumns": "add"}, ["newColumns"])
    {'dataset': 'sales', 'newcolumns': 'add', 'workspace': 'shop'}
    """
    given = {name.lower(): value for name, value in options.items()}
    names = (*PLACE, *known)
    for name in given:
        if name not in {each.lower() for each in names} and not name.startswith(_STORE):
            raise bad_option(
                f"there is no option {name!r}",
                f"the options are {', '.join(names)}, and {_STORE}… for object stores",
            )
    path = given.pop("path", None)
    if path is not None and given.setdefault("workspace", path) != path:
        raise bad_option(
            "the options 'path' and 'workspace' name two workspaces",
            "leave out one of them: they mean the same",
        )
    for name in ("workspace", "dataset"):
        if not given.get(name):
            raise bad_option(f"the option {name!r} is missing", f'add .option("{name}", …)')
    return given


def bad_option(problem: str, remedy: str) -> InputError:
    """Return the error about an option."""
    return InputError(problem, remedy=remedy, code="BadOption")


def flag(given: Mapping[str, str], name: str) -> bool:
    """Return an option that is true or false, false if it is left out."""
    text = given.get(name.lower(), "false")
    found = _TRUE.get(text.lower())
    if found is None:
        raise bad_option(f"the option {name!r} is {text!r:.40}, not a boolean", "give true or false")
    return found


def store_options(given: Mapping[str, str]) -> dict[str, Any]:
    """Return what `trueline.open` takes for an object store.

    >>> store_options({"dataset": "x", "store.region": "here", "store.client_options.allow_http": "true"})
    {'region': 'here', 'client_options': {'allow_http': 'true'}}
    """
    for name in given:
        if name in _OURS:
            raise bad_option(
                f"there is no option {name!r}", "give options of the provider, such as store.region"
            )
    theirs = {name: value for name, value in given.items() if name.startswith(_STORE)}
    return nested(((name.removeprefix(_STORE), value) for name, value in theirs.items()), _STORE)


def absolute(workspace: str) -> str:
    """Return where a workspace is for processes in any folder."""
    return workspace if "://" in workspace else os.path.abspath(workspace)  # noqa: PTH100 (keeps links)


@contextmanager
def opened(workspace: str, dataset: str, store: Mapping[str, Any]) -> Iterator[Dataset]:
    """Open a dataset."""
    with open_workspace(workspace, **store) as found:
        yield found[dataset]
