"""Tags: names for commits and snapshots. A tag holds the position of each dataset that it names: id → block.

They are one document beside the datasets, changed as a whole by compare-and-set as the catalogue of names is.
`gc` keeps what they name, `push` and `clone` carry those of a dataset.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.instant import Instant
from trueline.dataset.at import resolve
from trueline.dataset.commit import Commit
from trueline.errors import CutGone, InputError, RetryError, TruelineError, UnsupportedVersion
from trueline.identity.multihash import Multihash
from trueline.workspace.dataset import Dataset
from trueline.workspace.locations import Place, tags_damaged
from trueline.workspace.names import check_tag_name, is_tag_name, not_found, same_but_for_case
from trueline.workspace.small_objects import CatalogueBytes
from trueline.workspace.snapshot.snapshot import WorkspaceSnapshot, cut_off

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

_FORMAT: Final = "trueline/tags"
_VERSION: Final = 1
_ID: Final = re.compile(r"did:[a-z0-9]{1,20}:[A-Za-z0-9._:%-]{1,500}")
_ATTEMPTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Tag:
    """A name for commits: `positions` by the ids of datasets, `at` by the names they have here now.

    >>> import tempfile, pyarrow as pa, trueline as tl
    >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
    ...     commit = ws.create("sales").append(pa.table({"price": [9.5, 12.0]}))
    ...     tag = ws.tag("audit", commit)
    ...     tag.name, tag.at["sales"] == commit.block
    ('audit', True)
    """

    name: str
    positions: Mapping[str, Multihash]
    created: Instant
    at: Mapping[str, Multihash] = field(default_factory=dict, compare=False)

    def to_dict(self) -> dict[str, object]:
        """Return it as plain values, for programs."""
        return {
            "tag": self.name,
            "created": str(self.created),
            "datasets": {name: str(block) for name, block in self.at.items()},
        }

    def __str__(self) -> str:
        return f"{self.name}: " + ", ".join(f"{name}@{block.short}" for name, block in self.at.items())


Documents = dict[str, Tag]


class Tags:
    """The tags of a workspace."""

    def __init__(self, place: Place) -> None:
        self._place = place
        self._known: tuple[bytes, Documents] | None = None

    def read(self) -> Documents:
        """Return all tags, by name."""
        return self._parsed(self._place.read_tags())

    def of(self, dataset_id: str) -> dict[str, Multihash]:
        """Return the tags of one dataset: the block that each names."""
        return {
            name: tag.positions[dataset_id]
            for name, tag in self.read().items()
            if dataset_id in tag.positions
        }

    def put(self, name: str, positions: Mapping[str, Multihash]) -> Tag:
        """Make a tag, or let it name positions of further datasets; it never names another of the same."""

        def change(now: Documents) -> Documents:
            there = now.get(name)
            if there is None and (twin := same_but_for_case(name, now)) is not None:
                raise InputError(
                    f"the tags {name!r} and {twin!r} differ only by case",
                    remedy="choose another name",
                    code="BadTag",
                )
            before = {} if there is None else dict(there.positions)
            for dataset_id, block in positions.items():
                if before.setdefault(dataset_id, block) != block:
                    raise InputError(
                        f"the tag {name!r} names commit {before[dataset_id].short} of that dataset already",
                        remedy=f"choose another name, or remove it first: ws.untag({name!r}), "
                        f"`trueline tag {name} --delete`",
                        code="TagExists",
                        tag=name,
                    )
            return now | {name: Tag(name, before, Instant.now() if there is None else there.created)}

        return self._change(change)[name]

    def bring(self, dataset_id: str, found: Mapping[str, Multihash]) -> tuple[str, ...]:
        """Take up tags that came with a copy of a dataset; those it has here stay as they are."""
        taken: list[str] = []

        def change(now: Documents) -> Documents:
            taken.clear()
            made = dict(now)
            for name, block in sorted(found.items()):
                there = made.get(name) or Tag(name, {}, Instant.now())
                if dataset_id in there.positions or same_but_for_case(name, made) is not None:
                    continue
                made[name] = replace(there, positions={**there.positions, dataset_id: block})
                taken.append(name)
            return made

        if found:
            self._change(change)
        return tuple(taken)

    def remove(self, name: str) -> None:
        """Remove a tag; the commits stay."""

        def change(now: Documents) -> Documents:
            if name not in now:
                raise not_tagged(name, now)
            return {key: tag for key, tag in now.items() if key != name}

        self._change(change)

    def take_back(self, name: str, dataset_ids: Iterable[str]) -> None:
        """Let a tag name commits of some datasets no longer; one that names none is removed."""
        gone = frozenset(dataset_ids)

        def change(now: Documents) -> Documents:
            if name not in now:
                return now
            left = {key: block for key, block in now[name].positions.items() if key not in gone}
            others = {key: tag for key, tag in now.items() if key != name}
            return others | {name: replace(now[name], positions=left)} if left else others

        self._change(change)

    def _change(self, change: Callable[[Documents], Documents]) -> Documents:
        for _ in range(_ATTEMPTS):
            kept = self._place.read_tags()
            known = self._parsed(kept)
            now = change(known)
            if now == known or self._place.swap_tags(kept, to_bytes(now)):
                return now
        raise RetryError(
            f"{self._place.tags} was changed by others {_ATTEMPTS:,} times in a row",
            remedy="nothing was changed; try again",
            code="TagsBusy",
        )

    def _parsed(self, kept: CatalogueBytes) -> Documents:
        if kept.raw is None:
            return {}
        if self._known is None or self._known[0] != kept.raw:
            self._known = (kept.raw, from_bytes(kept.raw, self._place.tags))
        return self._known[1]


def not_tagged(name: str, known: Mapping[str, object]) -> InputError:
    """The error of a tag that is not there, with the one that may have been meant."""
    close = get_close_matches(name, known, n=1)
    shown = ", ".join(sorted(known)[:10]) or "none yet"
    return InputError(
        f"there is no tag {name!r:.80}",
        remedy=f"did you mean {close[0]!r}?" if close else f"the tags are: {shown}",
        code="TagNotFound",
        tag=name,
    )


# --- the document ------------------------------------------------------------------------


def to_bytes(tags: Documents) -> bytes:
    """Write tags as the canonical document."""
    listed = [
        {
            "name": tag.name,
            "created": str(tag.created),
            "positions": {dataset: str(block) for dataset, block in tag.positions.items()},
        }
        for _, tag in sorted(tags.items())
    ]
    document = {"format": _FORMAT, "version": _VERSION, "tags": listed}
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode() + b"\n"


def from_bytes(raw: bytes, path: str) -> Documents:
    """Read the document; what is not understood is damage, for `gc` keeps what tags name."""
    try:
        tags = [_from_dict(value) for value in _listed(json.loads(raw), path)]
    except UnsupportedVersion:
        raise
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError, InputError) as error:
        raise tags_damaged(path, str(error).splitlines()[0] if str(error) else type(error).__name__) from None
    found = {tag.name: tag for tag in tags}
    if len(found) != len(tags):
        raise tags_damaged(path, "a name occurs twice")
    return found


def _listed(document: Mapping[str, Any], path: str) -> list[Any]:
    form, version, tags = document["format"], document["version"], document["tags"]
    if form != _FORMAT or type(version) is not int or not isinstance(tags, list):
        raise ValueError(f"its format is {form!r:.80}, version {version!r:.80}")
    if version != _VERSION:
        raise UnsupportedVersion(
            f"{path} has version {version}, this Trueline knows {_VERSION}",
            remedy="use the newer Trueline that wrote it",
            path=path,
            version=version,
        )
    return tags


def _from_dict(value: Mapping[str, Any]) -> Tag:
    name, positions = value["name"], value["positions"]
    if not is_tag_name(name):
        raise ValueError(f"{name!r:.80} cannot be a tag")
    for dataset in positions:
        if not _ID.fullmatch(dataset):
            raise ValueError(f"{dataset!r:.80} is not the id of a dataset")
    blocks = {dataset: Multihash.parse(block) for dataset, block in positions.items()}
    return Tag(name, blocks, Instant.parse(value["created"]))


# --- what a workspace does with them ------------------------------------------------------


def tag(workspace: Workspace, name: str, what: Commit | Dataset | WorkspaceSnapshot | str) -> Tag:
    """Give a name to a commit, a dataset's newest commit, what `name@at` says, or a snapshot.

    Of a snapshot it names the commits of its datasets and of the roots they rest on; `CutGone` if one of them
    is not there any more.
    """
    check_tag_name(name)
    if isinstance(what, WorkspaceSnapshot):
        return _named(workspace, _of_snapshot(workspace, name, what))
    dataset, at = _meant(workspace, what)
    block = resolve(dataset._present, at).block
    return _named(workspace, workspace._tags.put(name, {str(dataset.id): block}))


def _of_snapshot(workspace: Workspace, name: str, snap: WorkspaceSnapshot) -> Tag:
    """Put the tag of a snapshot, then look whether what it names is there: `gc` may have come before it."""
    positions = {**snap.origin, **snap.positions}
    blocks = {str(snap.ids[each]): at.block for each, at in positions.items()}
    there = workspace._tags.read().get(name)
    made = workspace._tags.put(name, blocks)
    try:
        known = _names(workspace)
        for each, at in positions.items():
            _check_there(workspace, each, known.get(str(snap.ids[each]), []), at.block)
    except TruelineError:
        workspace._tags.take_back(name, blocks.keys() - (there.positions.keys() if there else ()))
        raise
    return made


def _check_there(workspace: Workspace, name: str, copies: list[str], block: Multihash) -> None:
    """Refuse a commit that no copy of a dataset has; it is called so in a snapshot, here maybe otherwise."""
    missing: TruelineError = not_found(name, workspace, workspace.location)
    for each in copies:
        dataset = workspace[each]
        if dataset.chain.entry(block) is not None:
            return
        try:
            cut_off(dataset, block)
        except CutGone as error:
            missing = error
        else:
            return
    raise missing


def _meant(workspace: Workspace, what: object) -> tuple[Dataset, object]:
    if isinstance(what, Dataset):
        return workspace[what.name], None
    if isinstance(what, str):
        called, sign, at = what.partition("@")
        return workspace[called], at if sign else None
    if not isinstance(what, Commit):
        raise InputError(
            f"{what!r:.80} cannot be tagged",
            remedy='give a commit, a dataset, a snapshot, or text as in "sales@2026-11-13"',
            code="NotACommit",
        )
    tail = what.chain.tail() if what.chain is not None else None
    # A dataset may have been renamed since the commit was made.
    called = (
        what.dataset if tail is None else workspace._names_by_id().get(str(tail.dataset_id), what.dataset)
    )
    return workspace[called], what.block


def tags(workspace: Workspace) -> dict[str, Tag]:
    """Return the tags by name, with what they name."""
    found = workspace._tags.read()
    known = _names(workspace) if found else {}
    return {name: _named(workspace, each, known) for name, each in sorted(found.items())}


def _named(workspace: Workspace, found: Tag, known: Mapping[str, list[str]] | None = None) -> Tag:
    names = _names(workspace) if known is None else known
    return replace(
        found,
        at={
            name: block
            for dataset, block in found.positions.items()
            for name in names.get(dataset, [dataset])
        },
    )


def _names(workspace: Workspace) -> dict[str, list[str]]:
    """Return the names of the datasets by their ids; copies of one dataset have one id."""
    found: dict[str, list[str]] = {}
    for entry in workspace._catalogue.entries():
        if entry.id is not None:
            found.setdefault(entry.id, []).append(entry.name)
    for dataset, name in workspace._names_by_id().items():
        found.setdefault(dataset, [name])
    return found
