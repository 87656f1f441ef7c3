"""The oracle: is there a cut, the same for all reads of an execution, never going back, that explains them?

Every place where data is handed to a region has its possible cuts: prefixes of an ordered stream, prefixes
per key, any part of an unordered one; of a live value, what it is made of. For every joint cut the meaning of
each read is worked out from the whole collections. An execution is right if some cut explains all its reads
and includes the one before and all that was acknowledged.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import product
from typing import Any

from tests.flow.oracle.meanings import chance_above, meaning, normal
from tests.flow.oracle.programs import Program
from tests.flow.oracle.structure import Shared
from trueline.flow.graph import FlowNode
from trueline.flow.markers import ABSENT

MOST = 600
"""Joint cuts of a program that is looked at: more take long and show nothing else."""


class TooMany(Exception):
    """There are too many cuts to try."""


class Disagreement(AssertionError):
    """No cut explains what was read or released."""


class Cuts:
    """The cuts of one group of points on one member, and which of them still explain what was seen."""

    def __init__(self, program: Program, group: Shared, member: int) -> None:
        self.graph = program.flow.graph
        self.member = member
        ids = {n.id for n in group.instances}
        self.reads = {sink: node for sink, node in program.reads.items() if node.id in ids}
        self.acks = {sink: node for sink, node in program.acks.items() if node.id in ids}
        self.all = _everything(program, member)
        self.masks: list[int] = []
        self.held: dict[str, list[Any]] = {sink: [] for sink in self.reads}
        """Read → what it means at every cut."""
        self.out: dict[str, list[Counter[Any]]] = {sink: [] for sink in self.acks}
        self._lay_out(group.handed)
        self.taken: dict[str, tuple[Any, ...]] = dict.fromkeys(self.reads, ())
        self.open = {self.masks.index(0)}

    # --- what could be ------------------------------------------------------------------

    def _lay_out(self, handed: list[FlowNode]) -> None:
        places = [list(self._cuts_of(node)) for node in handed]
        count = 1
        for cuts in places:
            count *= len(cuts)
        if count > MOST:
            raise TooMany(count)
        for cut in product(*places):
            mask, shift = 0, 0
            for (bits, size, _), _ in zip(cut, handed, strict=True):
                mask |= bits << shift
                shift += size
            world = {node.id: value for (_, _, value), node in zip(cut, handed, strict=True)}
            self.masks.append(mask)
            for sink, node in self.reads.items():
                source = node.inputs[0]
                self.held[sink].append(normal(source, meaning(self.graph, source, world, self.member)))
            for sink, node in self.acks.items():
                self.out[sink].append(Counter(meaning(self.graph, node.inputs[0], world, self.member)))

    def _cuts_of(self, node: FlowNode) -> Iterator[tuple[int, int, Any]]:
        """The cuts of one place: which elements, out of how many, and what the node holds then."""
        streams = _streams(node)
        for parts in product(*[list(self._parts(each)) for each in streams]):
            mask, shift = 0, 0
            for bits, size, _ in parts:
                mask |= bits << shift
                shift += size
            world = {each.id: value for each, (_, _, value) in zip(streams, parts, strict=True)}
            yield mask, shift, meaning(self.graph, node, world, self.member)

    def _parts(self, stream: FlowNode) -> Iterator[tuple[int, int, list[Any]]]:
        items = meaning(self.graph, stream, self.all, self.member)
        fixed = stream.ordered and not chance_above(stream)
        if len(items) > 9 and not fixed:
            raise TooMany(len(items))
        groups: dict[Any, list[int]] = {}
        for i, item in enumerate(items):
            key = "all" if stream.shape == "stream" else item[0]
            groups.setdefault(key if fixed else i, []).append(i)
        for counts in product(*[range(len(each) + 1) for each in groups.values()]):
            taken = sorted(i for each, n in zip(groups.values(), counts, strict=True) for i in each[:n])
            yield sum(1 << i for i in taken), len(items), [items[i] for i in taken]

    # --- what was -----------------------------------------------------------------------

    def see(self, new: dict[str, tuple[Any, ...]], released: dict[str, tuple[Any, ...]]) -> None:
        """Look at one event: what every read gave in it, and what has been released in all."""
        seen = {sink: new[sink] for sink in self.reads if new[sink]}
        if seen:
            self._executed(seen)
        late = self.open
        for sink in self.acks:
            got = Counter(released[sink])
            late = {i for i in late if got <= self.out[sink][i]}
        if not late:
            raise Disagreement(f"released before every read includes it: {released}; reads gave {self.taken}")
        self.open = late

    def _executed(self, seen: dict[str, tuple[Any, ...]]) -> None:
        """One execution: every read gives one value, all from one cut (A8)."""
        if len(seen) < len(self.reads) or any(len(values) != 1 for values in seen.values()):
            raise Disagreement(f"the reads of one point ran apart: {seen} of {sorted(self.reads)}")
        now: set[int] = set(range(len(self.masks)))
        before = self.open
        for sink, node in self.reads.items():
            (value,) = seen[sink]
            if "stream" in node.shape:
                ordered = node.shape == "stream" and node.ordered and not chance_above(node)
                whole = self.taken[sink] + value
                value = self.taken[sink] = whole if ordered else tuple(sorted(whole, key=repr))
                now = {i for i in now if self.held[sink][i] == value}
                continue
            self.taken[sink] = value
            right = {i for i in range(len(self.masks)) if told(node, self.held[sink][i]) == value}
            if node.args["side"] == "before":
                before = before & right
            else:
                now &= right
        self.open = {i for i in now if any(self.masks[j] & ~self.masks[i] == 0 for j in before)}
        if not self.open:
            raise Disagreement(f"no cut explains {seen} after what was seen before")

    def end(self, released: dict[str, tuple[Any, ...]]) -> None:
        """All that was sent has been read and released (A39)."""
        whole = self.masks.index(max(self.masks))
        if whole not in self.open:
            raise Disagreement(f"at rest, reads do not include everything: {self.taken}")
        for sink in self.acks:
            if Counter(released[sink]) != self.out[sink][whole]:
                raise Disagreement(f"at rest, {sink} has {released[sink]}, not {self.out[sink][whole]}")


def _everything(program: Program, member: int) -> dict[int, list[Any]]:
    found: dict[int, list[Any]] = {}
    for node in program.flow.graph.named("source"):
        at = member if node.location.is_cluster else 0
        found[node.id] = [e for name, m, e in program.plan.sent if (name, m) == (node.name, at)]
    return found


def _streams(node: FlowNode) -> list[FlowNode]:
    """The streams that a live value is made of; of a stream, itself."""
    if "stream" in node.shape:
        return [node]
    found = {each.id: each for source in node.inputs if not source.constant for each in _streams(source)}
    return [found[i] for i in sorted(found)]


def told(node: FlowNode, value: Any) -> Any:
    """A version as `shown` tells it."""
    if node.shape == "keyed singleton":
        return value
    return ("absent",) if value is ABSENT else ("is", value)
