"""Derived datasets without Spark: functions of this process compute their rows, pulls record them as ever."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import pyarrow as pa

from tests.workspace.derive.computed_here import computing
from trueline.chain.checkpoint import DerivedCheckpoint, DerivedOrigin, derived_checkpoint
from trueline.chain.events import ExecuteTransform, SetTransform, TransformInput
from trueline.chain.head_state import next_block
from trueline.chain.sources import ENGINE, SqlQueryStep
from trueline.dataset.advance import Advance, commit_result
from trueline.dataset.append.incoming import from_table
from trueline.dataset.append.intake import whole_schema
from trueline.dataset.definition import vocabulary
from trueline.dataset.derivation import Derivation, KeyKind, derivation_at
from trueline.errors import ChainError
from trueline.kernel.tasks import InlineTasks
from trueline.workspace.creation import CreationPlan, make
from trueline.workspace.cuts.cut import Cut
from trueline.workspace.cuts.log import CutLog
from trueline.workspace.cuts.roots import Roots

Rows = list[dict[str, Any]]
Function = Callable[..., Rows]


class Local:
    """Derives datasets by functions of the rows of their inputs, and pulls them."""

    def __init__(self, workspace: Any) -> None:
        self.workspace = workspace
        self.functions: dict[str, Function] = {}
        self.schemas: dict[str, pa.Schema] = {}

    def derive(
        self, name: str, inputs: tuple[str, ...], function: Function, schema: Mapping[str, Any]
    ) -> Any:
        """Define a dataset whose key is its first column; one that is there already is taken up."""
        self.functions[name], self.schemas[name] = function, pa.schema(dict(schema))
        if name in self.workspace:
            return self.workspace[name]
        key = next(iter(schema))
        refs = tuple(TransformInput(dataset_ref=str(self.workspace[each].id), alias=each) for each in inputs)
        derivation = Derivation(
            (SqlQueryStep(query="select 1"),),
            refs,
            (key,),
            KeyKind.DECLARED,
            "select 1",
            canonical=("select 1",),
        )
        whole = whole_schema(self.schemas[name], vocabulary(None))
        plan = CreationPlan(lambda dataset_id, now: derivation.blocks(dataset_id, whole, now), lambda _: [])
        return make(self.workspace, name, plan)

    def redefine(self, name: str, function: Function) -> None:
        """Define a dataset anew, over the same inputs; its next pull computes it again."""
        self.functions[name] = function
        chain = self.workspace[name].chain
        chain.append(next_block(chain.tail(), chain.tail().transform))

    @contextmanager
    def computing(self) -> Iterator[None]:
        """Let the functions compute what real pulls record, with all their stops."""

        def result(name: str, inputs: Mapping[str, pa.Table]) -> pa.Table:
            rows = {alias: table.to_pylist() for alias, table in inputs.items()}
            return pa.Table.from_pylist(self.functions[name](**rows), schema=self.schemas[name])

        with computing(result):
            yield

    def record(self, *names: str) -> Cut:
        """Record a cut of the roots of datasets."""
        return CutLog.of(self.workspace).record(Roots(self.workspace).under(*names))

    def pull(self, *names: str, cut: Cut | None = None) -> Cut:
        """Bring datasets to one cut, in the given order: inputs come first."""
        cut = self.record(*names) if cut is None else cut
        for name in names:
            self.follow(name, cut)
        return cut

    def tell(self, cut: Cut, *names: str) -> None:
        """Bring datasets to a cut and say so, as a pull does."""
        log = CutLog.of(self.workspace)
        for name in names:
            self.follow(name, cut)
            log.put_reached(cut.number, self.workspace[name].id)

    def follow(self, name: str, cut: Cut, *, at_rest: bool = True, made: Rows | None = None) -> None:
        """Bring a dataset to a cut; what was `made` is its rows, if nothing is to be read for that."""
        dataset = self.workspace[name]
        tail = dataset.chain.tail()
        derivation = derivation_at(tail)
        known = self.workspace._names_by_id()
        inputs = {each.alias: self.workspace[known[each.dataset_ref]] for each in derivation.inputs}
        positions, roots = {}, {}
        definitions = {dataset.id: dataset.chain.newest(SetTransform).hash}
        for each in inputs.values():
            if each.id in cut:
                positions[each.id] = roots[each.id] = cut[each.id]
            elif isinstance(data := each.chain.tail().data, ExecuteTransform):
                left = derived_checkpoint(each.chain.store, data)
                if is_beyond(left.origin.roots, cut):
                    return  # somebody else has brought the input further, and will bring this one
                positions[each.id] = each.chain.tail().position
                roots |= left.origin.roots
                definitions |= left.origin.definitions
        origin = DerivedOrigin(roots, definitions)
        last = derived_checkpoint(dataset.chain.store, tail.data) if tail.data is not None else None
        if last is not None and last.at_rest and last.origin == origin:
            return
        if last is not None and is_beyond(last.origin.roots, roots):
            return  # somebody else has brought it further
        if made is None:
            read = {alias: (each, positions.get(each.id)) for alias, each in inputs.items()}
            made = self.functions[name](**{alias: _rows(*of) for alias, of in read.items()})
        table = pa.Table.from_pylist(made, schema=self.schemas[name])
        left = DerivedCheckpoint(origin, at_rest, definitions[dataset.id], ENGINE)
        advance = Advance(positions, left, tail.watermark, self.workspace.clock)
        with dataset.chain.store.scratch() as scratch:
            result = from_table(table, tail, with_op=False)
            try:
                commit_result(
                    name, dataset.chain, derivation, result, advance, scratch=scratch, tasks=InlineTasks()
                )
            except ChainError:
                if dataset.chain.tail().head == tail.head:
                    raise
                # Somebody else has brought it further meanwhile: real pulls take turns.


def _rows(dataset: Any, at: Any) -> Rows:
    return [] if at is None else dataset.view(at.block).to_arrow().to_pylist()


def is_beyond(there: Mapping[Any, Any], cut: Any) -> bool:
    """Say whether a dataset has read more of a root than a cut has."""
    return any(root in cut and (at.offset or 0) > (cut[root].offset or 0) for root, at in there.items())
