"""Errors of flows: what cannot run as written, and what a simulation found."""

from __future__ import annotations

from typing import Any

from trueline.errors.tree import InputError, rebuild


class FlowError(InputError):
    """A flow that cannot run as written; the message names the nodes and their source lines."""


class NotPromised(FlowError, TypeError):
    """An operator needs what its collection does not promise: bounded, ordered, delivered once."""


class WrongLocation(FlowError, TypeError):
    """Collections, ticks or align points of different places meet in one operator."""


class Unfinished(FlowError):
    """A forward reference or a cycle that is not completed, or is completed twice."""


class SynchronousCycle(FlowError):
    """A node inside a tick that needs its own result of the same execution."""


class NoSharedUpstream(FlowError):
    """Uses of an align point that rest on nothing in common (rule align:A14)."""

    rule = "align:A14"


class SharedOnlyBehindNetwork(FlowError):
    """Uses of an align point that meet only on another machine (rule align:A15)."""

    rule = "align:A15"


class NotAligned(FlowError):
    """A use of an align point that no `aligned_at` of it reaches (rule align:A21)."""

    rule = "align:A21"


class ReentrantAlignment(FlowError):
    """What leaves a use of an align point comes back to one of the same point (rule align:A25)."""

    rule = "align:A25"


class AsyncEdgeInRegion(FlowError):
    """A step that may lag is between what is shared and a use of the align point (rule align:A26)."""

    rule = "align:A26"


class ElementFailed(FlowError):
    """A function of a flow raised; `node` says which, `value` on what."""


class ClaimBroken(FlowError, AssertionError):
    """A function said to be commutative, or pure, is not: `node` says which, `value` on what."""


class EndlessLoop(FlowError, RuntimeError):
    """A flow that feeds itself without end."""


class SimulationError(FlowError):
    """A test of a flow that cannot be explored soundly; `code` says what is wrong with it."""


class Counterexample(FlowError, AssertionError):
    """A schedule under which a test of a flow fails: `trace` describes it, `choices` replays it."""

    trace: Any
    choices: tuple[int, ...]

    def replay(self) -> None:
        """Run the same schedule again: raises the same counterexample, unless what it shows was fixed."""
        self.fields["again"]()  # type: ignore[operator]

    def _repr_html_(self) -> str:
        return str(self.trace._repr_html_())

    def __reduce__(self) -> tuple[Any, ...]:
        kept = {name: value for name, value in self.fields.items() if name != "again"}
        return (rebuild, (type(self), self.problem, self._texts(), kept))
