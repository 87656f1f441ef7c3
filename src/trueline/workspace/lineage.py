"""Lineage: which datasets are computed from which, for people and for other tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from trueline.chain.instant import Instant
from trueline.dataset.declared_source import shown
from trueline.errors import TruelineError
from trueline.workspace.dependencies import DatasetNode, Dependencies
from trueline.workspace.transfer.origin import origin_of

if TYPE_CHECKING:
    from trueline.workspace.workspace import Workspace

_PRODUCER: Final = "https://openlineage.io/trueline"
_EVENT: Final = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/JobEvent"
_SQL: Final = "https://openlineage.io/spec/facets/1-0-1/SQLJobFacet.json#/$defs/SQLJobFacet"
_SCHEMA: Final = "https://openlineage.io/spec/facets/1-1-1/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet"
# In the pictures: roots are round, copies too; what is computed has corners.
_SHAPES: Final = {"root": ("([", "])"), "clone": ("([", "])"), "derived": ("[", "]"), "missing": ("{{", "}}")}


@dataclass(frozen=True, slots=True)
class LineageNode:
    """A dataset: a root, a clone, derived, or missing (an input that is not in the workspace).

    `source` is where its records come from, `strategy` how it follows its inputs and `reason` why so.
    """

    name: str
    kind: str
    id: str = ""
    source: str | None = None
    strategy: str | None = None
    reason: str | None = None
    query: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {
            "name": self.name,
            "kind": self.kind,
            "id": self.id,
            "source": self.source,
            "strategy": self.strategy,
            "reason": self.reason,
            "query": self.query,
            "columns": dict(self.columns),
        }


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """That a dataset reads another, under a name; `own_cut` says why not at the cut of its other inputs."""

    input: str
    dataset: str
    alias: str = ""
    own_cut: str | None = None

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        return {"input": self.input, "dataset": self.dataset, "alias": self.alias, "own_cut": self.own_cut}


@dataclass(frozen=True, slots=True)
class LineageGraph:
    """Datasets and what they read, inputs first.

    >>> nodes = LineageNode("sales", "root"), LineageNode("daily", "derived", strategy="keyed")
    >>> graph = LineageGraph(nodes, (LineageEdge("sales", "daily", "sales"),))
    >>> print(graph.mermaid())
    graph LR
        n0(["sales"])
        n1["daily"]
        n0 --> n1
    >>> print(graph.dot())
    digraph lineage {
        rankdir=LR;
        "sales" [shape=ellipse];
        "daily" [shape=box];
        "sales" -> "daily";
    }
    >>> [event["job"]["name"] for event in graph.openlineage("shop")]
    ['daily']
    >>> graph.to_dict()["edges"][0]["input"]
    'sales'
    """

    nodes: tuple[LineageNode, ...] = ()
    edges: tuple[LineageEdge, ...] = ()
    location: str = ""

    def mermaid(self) -> str:
        """Return the picture as Mermaid text."""
        ids = {node.name: f"n{place}" for place, node in enumerate(self.nodes)}
        lines = ["graph LR"]
        for node in self.nodes:
            before, after = _SHAPES[node.kind]
            lines.append(f'    {ids[node.name]}{before}"{_escaped(node.name)}"{after}')
        for edge in self.edges:
            arrow = "-->" if edge.own_cut is None else f'-. "{_escaped(edge.own_cut)}" .->'
            lines.append(f"    {ids[edge.input]} {arrow} {ids[edge.dataset]}")
        return "\n".join(lines)

    def dot(self) -> str:
        """Return the picture as Graphviz text."""
        shapes = {node.name: "box" if node.kind == "derived" else "ellipse" for node in self.nodes}
        lines = ["digraph lineage {", "    rankdir=LR;"]
        lines += [f"    {_quoted(name)} [shape={shape}];" for name, shape in shapes.items()]
        for edge in self.edges:
            style = "" if edge.own_cut is None else f" [style=dashed, label={_quoted(edge.own_cut)}]"
            lines.append(f"    {_quoted(edge.input)} -> {_quoted(edge.dataset)}{style};")
        return "\n".join([*lines, "}"])

    def openlineage(self, namespace: str | None = None, time: Instant | None = None) -> list[dict[str, Any]]:
        """Return an OpenLineage job event for each derived dataset: its query, its inputs, its columns.

        The namespace is by default where the workspace is; the time of the events, now.
        """
        space = namespace if namespace is not None else self.location
        by_name = {node.name: node for node in self.nodes}
        moment = str(time if time is not None else Instant.now())
        return [
            {
                "eventTime": moment,
                "producer": _PRODUCER,
                "schemaURL": _EVENT,
                "job": {"namespace": space, "name": node.name, "facets": _query(node)},
                "inputs": [
                    _dataset(space, by_name[edge.input]) for edge in self.edges if edge.dataset == node.name
                ],
                "outputs": [_dataset(space, node)],
            }
            for node in self.nodes
            if node.kind == "derived"
        ]

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values, for programs."""
        return {
            "nodes": [node.to_dict() for node in self.nodes],
            "edges": [edge.to_dict() for edge in self.edges],
        }

    def __str__(self) -> str:
        return self.mermaid()

    def _repr_html_(self) -> str:
        from trueline.console.notebook import html_table

        read: dict[str, list[str]] = {}
        for edge in self.edges:
            why = f" (at a cut of its own: {edge.own_cut})" if edge.own_cut is not None else ""
            read.setdefault(edge.dataset, []).append(edge.input + why)
        rows = [
            (node.name, node.kind, ", ".join(read.get(node.name, ())) or node.source, node.strategy)
            for node in self.nodes
        ]
        return html_table("Lineage", ("dataset", "kind", "made from", "strategy"), rows)


def _escaped(text: str) -> str:
    """Write text so that Mermaid shows it: what it has a meaning for is written as a number."""
    return re.sub(r"[^\w .,:;/@+-]", lambda found: f"#{ord(found.group())};", text)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"').replace("\n", " ")
    return f'"{escaped}"'


def _query(node: LineageNode) -> dict[str, Any]:
    if node.query is None:
        return {}
    return {"sql": {"_producer": _PRODUCER, "_schemaURL": _SQL, "query": node.query, "dialect": "spark"}}


def _dataset(space: str, node: LineageNode) -> dict[str, Any]:
    facets: dict[str, Any] = {}
    if node.columns:
        fields = [{"name": name, "type": kind} for name, kind in node.columns.items()]
        facets["schema"] = {"_producer": _PRODUCER, "_schemaURL": _SCHEMA, "fields": fields}
    return {"namespace": space, "name": node.name, "facets": facets}


def lineage(workspace: Workspace, name: str | None = None) -> LineageGraph:
    """Return the graph of a workspace, or of what a dataset rests on and what rests on it."""
    known = Dependencies.of(workspace)
    chosen = list(known.nodes) if name is None else known.named([f"+{name}+"])
    ordered = known.in_order(chosen)
    nodes = [_node(workspace, known[each]) for each in ordered]
    edges = [
        LineageEdge(source, each, alias, known[each].own_cuts.get(source))
        for each in ordered
        for alias, source in known[each].inputs.items()
        if source in chosen
    ]
    elsewhere = {missing for each in ordered for missing in known[each].missing}
    nodes += [LineageNode(missing, "missing", missing) for missing in sorted(elsewhere)]
    edges += [LineageEdge(missing, each) for each in ordered for missing in known[each].missing]
    return LineageGraph(tuple(nodes), tuple(edges), workspace.location)


def _node(workspace: Workspace, node: DatasetNode) -> LineageNode:
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
        )
    polled = None if tail is None or tail.polling is None else shown(tail.polling.fetch)
    kind = "root" if origin is None else "clone"
    return LineageNode(
        node.name, kind, str(node.id or ""), origin.url if origin is not None else polled, columns=columns
    )
