"""Which datasets of a workspace are computed from which, and how people name several of them at once."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from graphlib import TopologicalSorter
from typing import TYPE_CHECKING, Final

from trueline.chain.events import DatasetKind, SetTransform
from trueline.dataset.declared_source import shown
from trueline.dataset.derivation import Derivation, checks_at, derivation_at
from trueline.errors import InputError, TruelineError
from trueline.identity.dataset_id import DatasetId
from trueline.identity.multihash import Multihash
from trueline.workspace.lineage import LineageEdge, LineageGraph, LineageNode
from trueline.workspace.names import check_name, not_found
from trueline.workspace.transfer.origin import origin_of

if TYPE_CHECKING:
    from trueline.check import DatasetCheck
    from trueline.workspace.dataset import Dataset
    from trueline.workspace.workspace import Workspace

# dbt's way to name a dataset with what is before and after it: `+name`, `2+name`, `name+`, `name+1`.
_SELECTOR: Final = re.compile(r"(?:(\d*)\+)?([^+]+)(?:\+(\d*))?")


@dataclass(frozen=True, slots=True)
class DatasetNode:
    """A dataset and what it is computed from here; `inputs` are names by the names they have in the query.

    `checks` are the names of what its checks refer to: it has to be there before, and makes no rows.
    A root has none of that: it is appended to, or a clone, or its inputs are not all here (`missing`).
    `problem` says why a dataset cannot be looked at.
    """

    name: str
    dataset: Dataset
    id: DatasetId | None = None
    derivation: Derivation | None = None
    definition: Multihash | None = None
    inputs: Mapping[str, str] = field(default_factory=dict)
    checks: tuple[str, ...] = ()
    is_clone: bool = False
    missing: tuple[str, ...] = ()
    problem: TruelineError | None = None

    @property
    def is_computed(self) -> bool:
        """Whether it is computed here."""
        return self.derivation is not None and not self.is_clone and not self.missing

    @property
    def own_cuts(self) -> Mapping[str, str]:
        """The inputs, by name, that it reads at a cut of their own, with the reason."""
        if self.derivation is None or not self.is_computed:
            return {}
        given = self.derivation.nondet
        return {name: given[alias] for alias, name in self.inputs.items() if alias in given}

    @property
    def is_root(self) -> bool:
        """Whether cuts have a position of it: what reads inputs at other cuts is a root of its own."""
        return not self.is_computed or bool(self.own_cuts)


@dataclass(frozen=True)
class Dependencies:
    """The datasets by name; each knows its inputs.

    >>> import tempfile, trueline as tl
    >>> with tempfile.TemporaryDirectory() as folder, tl.open(folder, create=True) as ws:
    ...     _ = ws.create("sales")
    ...     known = Dependencies.of(ws)
    ...     known.named(["+sales"]), known.roots("sales"), known["sales"].is_root
    (['sales'], frozenset({'sales'}), True)
    """

    nodes: Mapping[str, DatasetNode]
    location: str = ""

    @classmethod
    def of(cls, workspace: Workspace) -> Dependencies:
        """Look at all datasets: the heads of derived ones, and what is in force there.

        A root stays one, so that each is looked at once: 500 roots are not 500 reads (cut:P3).
        """
        datasets = workspace.datasets()
        ids = workspace._names_by_id()
        roots = {name: each for each, name in ids.items() if each in workspace._known_roots}
        nodes = {
            each.name: DatasetNode(each.name, each, DatasetId.parse(roots[each.name]))
            if each.name in roots
            else _node(workspace, each, ids)
            for each in datasets
        }
        return cls(_without_circles(nodes), workspace.location)

    def __getitem__(self, name: str) -> DatasetNode:
        return self.nodes[name]

    def by_id(self, dataset: DatasetId) -> DatasetNode | None:
        """Return a dataset by its id."""
        return next((node for node in self.nodes.values() if node.id == dataset), None)

    # --- around a dataset ---------------------------------------------------------------

    def inputs(self, name: str) -> tuple[str, ...]:
        """Return the names of what a dataset reads, each once."""
        return tuple(dict.fromkeys(self.nodes[name].inputs.values()))

    def needs(self, name: str) -> tuple[str, ...]:
        """Return the names of what a dataset reads, and of what its checks refer to."""
        return tuple(dict.fromkeys((*self.inputs(name), *self.nodes[name].checks)))

    def readers(self, name: str) -> tuple[str, ...]:
        """Return the names of what reads a dataset, or is checked against it."""
        return tuple(each for each in self.nodes if name in self.needs(each))

    def upstream(self, name: str, depth: int | None = None) -> frozenset[str]:
        """Return all that a dataset rests on and is checked against, or so many steps of it."""
        return self._reached(name, depth, self.needs)

    def downstream(self, name: str, depth: int | None = None) -> frozenset[str]:
        """Return all that rests on a dataset or is checked against it, or so many steps of it."""
        return self._reached(name, depth, self.readers)

    def _reached(self, name: str, depth: int | None, step: object) -> frozenset[str]:
        assert callable(step)
        found: set[str] = set()
        edge, steps = {name}, 0
        while edge and (depth is None or steps < depth):
            edge = {other for each in edge for other in step(each)} - found
            found |= edge
            steps += 1
        return frozenset(found - {name})

    def roots(self, name: str) -> frozenset[str]:
        """Return the roots that the rows of a dataset are made of: itself, where it is one."""
        found: set[str] = set()
        waiting, seen = [name], set[str]()
        while waiting:
            each = waiting.pop()
            if each in seen:
                continue
            seen.add(each)
            if self.nodes[each].is_root:
                found.add(each)
            else:
                waiting += self.inputs(each)
        return frozenset(found)

    def in_order(self, names: Iterable[str]) -> list[str]:
        """Return names so that each comes after what it reads; names that wait for the same are sorted."""
        chosen = set(names)
        graph = {name: {each for each in self.upstream(name) if each in chosen} for name in sorted(chosen)}
        sorter = TopologicalSorter(graph)
        sorter.prepare()
        found: list[str] = []
        while sorter.is_active():
            ready = sorted(sorter.get_ready())
            found += ready
            sorter.done(*ready)
        return found

    # --- naming -------------------------------------------------------------------------

    def named(self, selectors: Sequence[str]) -> list[str]:
        """Return what selectors name, sorted: `name`, `+name` with all it rests on, `name+` with its readers.

        A number says how many steps: `1+name`, `name+2`.
        """
        found: set[str] = set()
        for text in selectors:
            match = _SELECTOR.fullmatch(text)
            if match is None:
                raise InputError(
                    f"{text!r} does not name datasets",
                    remedy="write name, +name (with what it rests on), name+ (with what rests on it), 1+name",
                    code="BadSelector",
                    name=text,
                )
            before, name, after = match.groups()
            if name not in self.nodes:
                check_name(name)
                raise not_found(name, self.nodes, self.location)
            found.add(name)
            if before is not None:
                found |= self.upstream(name, int(before) if before else None)
            if after is not None:
                found |= self.downstream(name, int(after) if after else None)
        return sorted(found)


def referred(check: DatasetCheck, names: Mapping[str, str]) -> str | None:
    """Return the name that the dataset of a relation has now: by its id, else as the check calls it."""
    if check.kind != "relation":
        return None
    name: str | None = names.get(str(check.option("id"))) or check.option("dataset")
    return name


def _without_circles(nodes: Mapping[str, DatasetNode]) -> dict[str, DatasetNode]:
    """Leave out what would have to be there before itself because of a check: those look at what is there."""
    found = {name: replace(node, checks=()) for name, node in nodes.items()}
    known = Dependencies(found)
    for name in sorted(nodes):
        for each in nodes[name].checks:
            if each in nodes and each != name and name not in known.upstream(each):
                found[name] = replace(found[name], checks=(*found[name].checks, each))
    return found


def node_of(dataset: Dataset) -> DatasetNode:
    """Look at one dataset alone."""
    return _node(dataset._workspace, dataset, dataset._workspace._names_by_id())


def _node(workspace: Workspace, dataset: Dataset, names: Mapping[str, str]) -> DatasetNode:
    """Look at one dataset; what is wrong with it is kept, so that the others can be looked at."""
    try:
        tail = dataset.chain.tail()
        if tail is None:
            return DatasetNode(dataset.name, dataset)
        if tail.dataset_kind is DatasetKind.Root:
            workspace._known_roots.add(str(tail.dataset_id))
            return DatasetNode(dataset.name, dataset, tail.dataset_id)
        derivation = derivation_at(tail)
        is_clone = derivation is not None and origin_of(workspace._location, dataset._folder) is not None
        if derivation is None or is_clone:
            return DatasetNode(dataset.name, dataset, tail.dataset_id, derivation, is_clone=is_clone)
        defined = dataset.chain.newest(SetTransform)
    except TruelineError as error:
        return DatasetNode(dataset.name, dataset, problem=error)
    missing = tuple(each.dataset_ref for each in derivation.inputs if each.dataset_ref not in names)
    inputs = {
        each.alias or names[each.dataset_ref]: names[each.dataset_ref]
        for each in derivation.inputs
        if each.dataset_ref in names
    }
    block = None if defined is None else defined.hash
    related = (referred(check, names) for check in derivation.checks)
    return DatasetNode(
        dataset.name,
        dataset,
        tail.dataset_id,
        derivation,
        block,
        inputs,
        tuple(dict.fromkeys(filter(None, related))),
        missing=missing,
    )


def lineage(workspace: Workspace, name: str | None = None) -> LineageGraph:
    """Return the graph of a workspace, or of what a dataset rests on and what rests on it."""
    known = Dependencies.of(workspace)
    chosen = list(known.nodes) if name is None else known.named([f"+{name}+"])
    ordered = known.in_order(chosen)
    nodes = [_described(workspace, known[each]) for each in ordered]
    edges = [
        LineageEdge(source, each, alias, known[each].own_cuts.get(source))
        for each in ordered
        for alias, source in known[each].inputs.items()
        if source in chosen
    ]
    edges += _checked_against(known, ordered)
    elsewhere = {missing for each in ordered for missing in known[each].missing}
    nodes += [LineageNode(missing, "missing", missing) for missing in sorted(elsewhere)]
    edges += [LineageEdge(missing, each) for each in ordered for missing in known[each].missing]
    return LineageGraph(tuple(nodes), tuple(edges), workspace.location)


def _checked_against(known: Dependencies, names: Sequence[str]) -> list[LineageEdge]:
    """Return which datasets are referred to by the checks of others, roots included."""
    ids = {str(node.id): name for name, node in known.nodes.items()}
    found: dict[tuple[str, str], None] = {}
    for name in names:
        with suppress(TruelineError):
            for check in checks_at(known[name].dataset._tail):
                if (other := referred(check, ids)) in names:
                    found[str(other), name] = None
    return [LineageEdge(other, name, checks=True) for other, name in found]


def _described(workspace: Workspace, node: DatasetNode) -> LineageNode:
    """Describe a dataset; of one that cannot be looked at only its name is known."""
    derivation, dataset = node.derivation, node.dataset
    try:
        origin = origin_of(workspace._location, dataset._folder)
        tail = dataset.chain.tail()
        schema = dataset.schema
    except TruelineError:
        return LineageNode(node.name, "root")
    columns = {} if schema is None else {column.name: str(column.type) for column in schema}
    if derivation is not None and not node.is_clone:
        return LineageNode(
            node.name,
            "derived",
            str(node.id),
            strategy=derivation.strategy,
            reason=derivation.reason or None,
            query=derivation.written or None,
            columns=columns,
            on_change=derivation.change(is_new=dataset.chain.newest(SetTransform, nth=1) is None),
            replaces=derivation.replaces,
        )
    polled = None if tail is None or tail.polling is None else shown(tail.polling.fetch)
    kind = "root" if origin is None else "clone"
    return LineageNode(
        node.name, kind, str(node.id or ""), origin.url if origin is not None else polled, columns=columns
    )
