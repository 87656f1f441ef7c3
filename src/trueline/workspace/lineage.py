"""Lineage: which datasets are computed from which, for people and for other tools."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from trueline.chain.instant import Instant

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
    Of one that was defined anew `on_change` says how, and `replaces` which dataset had its name before.
    """

    name: str
    kind: str
    id: str = ""
    source: str | None = None
    strategy: str | None = None
    reason: str | None = None
    query: str | None = None
    columns: Mapping[str, str] = field(default_factory=dict)
    on_change: str | None = None
    replaces: str | None = None

    @property
    def label(self) -> str:
        """How it is called in a picture."""
        return self.name if self.on_change is None else f"{self.name} ({self.on_change})"

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
            "on_change": self.on_change,
            "replaces": self.replaces,
        }


@dataclass(frozen=True, slots=True)
class LineageEdge:
    """That a dataset reads another, under a name; `own_cut` says why not at the cut of its other inputs.

    With `checks` it is not made from it: its checks refer to it.
    """

    input: str
    dataset: str
    alias: str = ""
    own_cut: str | None = None
    checks: bool = False

    @property
    def label(self) -> str | None:
        """What is written at the edge in a picture, which is then broken."""
        return "checks" if self.checks else self.own_cut

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain values."""
        said = {"input": self.input, "dataset": self.dataset, "alias": self.alias, "own_cut": self.own_cut}
        return {**said, "checks": True} if self.checks else said


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
            lines.append(f'    {ids[node.name]}{before}"{_escaped(node.label)}"{after}')
        for edge in self.edges:
            arrow = "-->" if edge.label is None else f'-. "{_escaped(edge.label)}" .->'
            lines.append(f"    {ids[edge.input]} {arrow} {ids[edge.dataset]}")
        return "\n".join(lines)

    def dot(self) -> str:
        """Return the picture as Graphviz text."""
        lines = ["digraph lineage {", "    rankdir=LR;"]
        for node in self.nodes:
            shape = "box" if node.kind == "derived" else "ellipse"
            label = "" if node.on_change is None else f", label={_quoted(node.label)}"
            lines.append(f"    {_quoted(node.name)} [shape={shape}{label}];")
        for edge in self.edges:
            style = "" if edge.label is None else f" [style=dashed, label={_quoted(edge.label)}]"
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
                    _dataset(space, by_name[edge.input])
                    for edge in self.edges
                    if edge.dataset == node.name and not edge.checks
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
            if edge.checks:
                continue
            why = f" (at a cut of its own: {edge.own_cut})" if edge.own_cut is not None else ""
            read.setdefault(edge.dataset, []).append(edge.input + why)
        rows = [
            (node.label, node.kind, ", ".join(read.get(node.name, ())) or node.source, node.strategy)
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
