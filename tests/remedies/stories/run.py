"""Remedies of runs."""

from __future__ import annotations

from typing import Any

from tests.remedies.story import Scene, done, keywords, piece, story
from trueline.run import Journal, Run, Step


class Other:
    """A value that JSON does not have."""


def fails_on_two(key: object, value: Any) -> Any:
    if value == 2:
        raise ValueError("two")
    return value


@story("run.run", "give Step(map=…), or a subclass of Step")
def a_run_of_what_is_not_a_step(scene: Scene) -> None:
    remedy = scene.refused(lambda: Run([fails_on_two]))
    step = done(piece(remedy, r"Step\(map=…\)").replace("…", "f"), Step=Step, f=fails_on_two)
    assert Run([step]).execute({"a": 1}) == {"a": 1}


@story("run.run", "see run.failures, and make another Run")
@story("run.failure", "fix the step or the value; on_error='skip_key' or 'skip_step' continues without it")
def a_step_that_fails(scene: Scene) -> None:
    run = Run([Step(map=fails_on_two)])

    def feed() -> None:
        run.feed("a", 2, final=True)
        run.close()

    remedy = scene.refused(feed)
    for text in (r"(on_error='skip_key')", r"or '(skip_step)'"):
        policy = piece(remedy, text)
        given = keywords(remedy, text) if "=" in policy else {"on_error": policy}
        found = Run([Step(map=fails_on_two, **given)]).execute({"a": 2, "b": 1})
        assert found["b"] == 1
    remedy = scene.refused(lambda: run.feed("b", 1))
    (failure,) = done(piece(remedy, r"run\.failures"), run=run)
    assert failure.key == "a"
    assert Run([Step(map=fails_on_two)]).execute({"b": 1}) == {"b": 1}


@story("run.run", "feed a key without final=True while it may still change")
def a_final_key_that_is_fed_again(scene: Scene) -> None:
    run = Run([Step(map=lambda key, value: value)])
    run.feed("a", 1, final=True)
    remedy = scene.refused(lambda: run.feed("a", 2))
    wrong = keywords(remedy, r"without (final=True)")
    run.feed("b", 1, **{name: not value for name, value in wrong.items()})
    run.feed("b", 2)
    assert run.close()["b"] == 2


@story("run.run", "yield other keys from flat_map or process instead")
def a_step_that_feeds_its_own_run(scene: Scene) -> None:
    met: list[str] = []

    def feed(key: Any, value: Any) -> Any:
        met.append(scene.refused(lambda: run.feed("b", 1)))
        return value

    run = Run([Step(map=feed)], workers=1)
    run.execute({"a": 1})
    kind = piece(met[0], r"from (flat_map)")
    found = Run([Step(**{kind: lambda key, value: [(key, value), ("b", 1)]})]).execute({"a": 1})
    assert found == {"a": 1, "b": 1}


@story(
    "run.attempt",
    "yield one of the keys of the batch as the source; None for "
    "all of them needs eager=False and no batch_size",
)
def a_write_from_a_key_that_was_not_given(scene: Scene) -> None:
    def everything(items: Any) -> Any:
        yield None, "sum", sum(value for _, value in items)

    def refuse() -> None:
        try:
            Run([Step(process=everything)]).execute({"a": 1, "b": 2})
        except Exception as error:  # noqa: BLE001 (its cause is what is looked at)
            raise (error.__cause__ or error) from None

    remedy = scene.refused(refuse)
    found = Run([Step(process=everything, **keywords(remedy, r"(eager=False)"))]).execute({"a": 1, "b": 2})
    assert found["sum"] == 3


@story(
    "run.json_values",
    "use plain values (numbers, text, bytes, times, lists, dicts), or give the journal encode= and decode=",
)
def a_value_that_a_journal_cannot_keep(scene: Scene) -> None:
    def make(key: Any, value: Any) -> Any:
        return Other()

    def run(**how: Any) -> Any:
        journal = Journal(scene.folder / f"j{len(how)}", **how)
        try:
            return Run([Step(map=make)], journal=journal).execute({"a": 1})
        except Exception as error:  # noqa: BLE001 (its cause is what is looked at)
            cause: BaseException = error
            while cause.__cause__ is not None:
                cause = cause.__cause__
            raise cause from None

    remedy = scene.refused(run)
    names = [piece(remedy, r"(encode)="), piece(remedy, r"(decode)=")]
    assert run(**dict(zip(names, (lambda value: b"x", lambda raw: Other()), strict=True)))


@story("run.step", "define exactly one of map, flat_map, process", "give fail_run, skip_step or skip_key")
def steps_that_are_not_whole(scene: Scene) -> None:
    remedy = scene.refused(Step)
    for kind in piece(remedy, "one of (.*)").split(", "):
        assert Step(**{kind: lambda *given: given}).kind == kind
    remedy = scene.refused(lambda: Step(map=fails_on_two, on_error="ignore"))
    for policy in piece(remedy, "give (.*)").replace(" or ", ", ").split(", "):
        Step(map=fails_on_two, on_error=policy)
