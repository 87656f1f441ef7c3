"""An executor around another: what the journal knows is not worked on again, the rest is written down."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from trueline.run.attempt import Attempt, Outcome
from trueline.run.executors import Executor, Post
from trueline.run.journal import Journal
from trueline.run.json_values import digest_of, text_of
from trueline.run.step import Step


@dataclass(slots=True)
class _Begun:
    """A batch under way: what was handed on, and what the journal knew of it."""

    step: Step
    items: list[tuple[Any, Any]]
    known: Outcome = field(default_factory=lambda: Outcome([], [], []))
    texts: dict[Any, tuple[str, str]] = field(default_factory=dict)  # key → its text, the value's digest


class JournalExecutor:
    """Looks every value up before it is worked on, and writes down what was made of it.

    What is written does not depend on whether the work was still wanted when it ended: a step is a
    function, so the same value gives the same again.
    """

    def __init__(self, inner: Executor, journal: Journal) -> None:
        self.inner = inner
        self.journal = journal
        self._begun: dict[int, _Begun] = {}
        self._post: Post | None = None

    @property
    def notes(self) -> tuple[str, ...]:
        """What the journal holds for these steps and cannot be used, and why."""
        return self.journal.notes

    @property
    def workers(self) -> int:
        """As many as the one inside."""
        return self.inner.workers

    def start(self, steps: Sequence[Step], post: Post) -> None:
        """Open the journal, then begin."""
        self._post = post
        self.journal.open(steps)
        try:
            self.inner.start(steps, self._ended)
        except BaseException:
            self.journal.close()
            raise

    def submit(self, step: Step, attempt: Attempt, items: list[tuple[Any, Any]]) -> None:
        """Hand on what the journal does not know; if it knows all of it, that is what came of it."""
        begun = _Begun(step, items)
        if self.journal.knows(attempt.index):
            if _is_whole(step):
                self._find_whole(begun, attempt)
            else:
                self._find(begun, attempt)
        if begun.items:
            self._begun[attempt.number] = begun
            self.inner.submit(step, attempt, begun.items)
        else:
            assert self._post is not None
            self._post(attempt, begun.known)

    def superseded(self, attempt: Attempt) -> None:
        """Tell the one inside."""
        self.inner.superseded(attempt)

    def pump(self) -> bool:
        """Let the one inside work."""
        return self.inner.pump()

    def stop(self) -> None:
        """End, then close the journal."""
        try:
            self.inner.stop()
        finally:
            self.journal.close()

    # --- looking up -------------------------------------------------------------------

    def _find(self, begun: _Begun, attempt: Attempt) -> None:
        unknown = []
        for key, value in begun.items:
            texts = self._texts(key, value)
            found, made = self.journal.find(attempt.index, *texts)
            if not found:
                begun.texts[key] = texts
                unknown.append((key, value))
                continue
            begun.known.known += 1
            if made is None:
                continue
            if begun.step.kind == "map":
                begun.known.changed.append((key, self.journal.value(made)))
            else:
                begun.known.writes += [(key, dst, value) for _, dst, value in self.journal.writes(made)]
        begun.items = unknown

    def _find_whole(self, begun: _Begun, attempt: Attempt) -> None:
        """A batch that writes as one is known as one."""
        found, made = self.journal.find(attempt.index, *self._whole(begun))
        if found:
            begun.known.known = len(begun.items)
            begun.known.writes = self.journal.writes(made) if made is not None else []
            begun.items = []

    def _texts(self, key: Any, value: Any) -> tuple[str, str]:
        return text_of(key), digest_of(self.journal.text(value))

    def _whole(self, begun: _Begun) -> tuple[str, str]:
        texts = sorted(self._texts(key, value) for key, value in begun.items)
        return "null", digest_of(*(text for pair in texts for text in pair))

    # --- writing down -----------------------------------------------------------------

    def _ended(self, attempt: Attempt, outcome: Outcome | BaseException) -> None:
        """Write down what ended, then post it to the coordinator; called in the worker's thread."""
        assert self._post is not None
        begun = self._begun.pop(attempt.number)
        if not isinstance(outcome, BaseException):
            try:
                self._keep(begun, attempt, outcome)
            except BaseException as error:  # noqa: BLE001 (the coordinator raises it where it is caught)
                self._post(attempt, error)
                return
            outcome.changed = [*begun.known.changed, *outcome.changed]
            outcome.writes = [*begun.known.writes, *outcome.writes]
            outcome.known = begun.known.known
        self._post(attempt, outcome)

    def _keep(self, begun: _Begun, attempt: Attempt, outcome: Outcome) -> None:
        failed = {key for key, _ in outcome.errors}
        if _is_whole(begun.step):
            if not failed and not attempt.token.superseded() and not attempt.stale:
                gens = max((attempt.items[key][0] for key, _ in begun.items), default=())
                made = self._written(outcome.writes) if outcome.writes else None
                key, given = self._whole(begun)
                self.journal.keep(attempt.index, [(key, gens, given, made)])
            return
        texts = self._made(begun, outcome)
        lines = []
        for key, value in begun.items:
            # A key that was superseded may have been passed over, which says nothing about its value.
            if key in failed or attempt.token.superseded(key):
                continue
            name, given = begun.texts.get(key) or self._texts(key, value)
            lines.append((name, attempt.items[key][0], given, texts.get(key)))
        if lines:
            self.journal.keep(attempt.index, lines)

    def _made(self, begun: _Begun, outcome: Outcome) -> dict[Any, str]:
        if begun.step.kind == "map":
            return {key: self.journal.text(value) for key, value in outcome.changed}
        by_source: dict[Any, list[tuple[Any, Any, Any]]] = {}
        for write in outcome.writes:
            by_source.setdefault(write[0], []).append(write)
        return {source: self._written(writes) for source, writes in by_source.items()}

    def _written(self, writes: Sequence[tuple[Any, Any, Any]]) -> str:
        parts = (f"[{text_of(src)},{text_of(dst)},{self.journal.text(value)}]" for src, dst, value in writes)
        return f"[{','.join(parts)}]"


def _is_whole(step: Step) -> bool:
    """Say whether a batch of a step may write as one, with no key as the source."""
    return step.kind == "process" and not step.eager
