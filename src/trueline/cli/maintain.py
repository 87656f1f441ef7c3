"""Maintenance commands: verify, gc, doctor."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from trueline.cli.pull import Selected
from trueline.cli.session import MISSING, NO, Directory, ExpectedHead, Json, examples, session
from trueline.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from trueline.console import Console


@examples(
    "trueline verify",
    "trueline verify sales --json",
    "trueline verify sales --after 9c1f03aa",
    "trueline verify +balances --replay",
    "trueline verify sales --accept-head",
)
def verify(
    context: typer.Context,
    names: Selected = None,
    *,
    after: Annotated[
        str | None,
        typer.Option("--after", metavar="COMMIT", help="Treat what is before this commit as verified."),
    ] = None,
    upto: Annotated[
        str | None,
        typer.Option("--upto", metavar="COMMIT", help="Stop at this commit (default: the newest)."),
    ] = None,
    replay: Annotated[
        bool, typer.Option("--replay/--no-replay", help="Compute every commit of derived datasets again.")
    ] = False,
    replay_head: Annotated[
        bool, typer.Option("--replay-head", help="Compute the current rows of derived datasets again.")
    ] = False,
    workers: Annotated[
        int, typer.Option("--workers", min=1, help="How many commits are computed again side by side.")
    ] = 2,
    expected_head: ExpectedHead = None,
    accept_head: Annotated[
        bool, typer.Option("--accept-head", help="Accept a head that is reported as rolled back.")
    ] = False,
    restore_head: Annotated[
        str | None,
        typer.Option("--restore-head", metavar="HASH", help="First restore the head to this block."),
    ] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Verify datasets.

    Every block, every rule, every file, every row. Exit code 1 if something
    is wrong; records removed on purpose are reported, and are not wrong.
    With --replay what is derived is computed again from its recorded inputs.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        of_one = (after, upto, expected_head, restore_head, accept_head or None)
        if any(each is not None for each in of_one) and len(names or ()) != 1:
            raise InputError("--after, --upto and heads apply to one dataset", remedy="name one dataset")
        if restore_head is not None:
            workspace[(names or [""])[0]].restore_head(restore_head)
        if accept_head:
            workspace[(names or [""])[0]].accept_head()
        again: bool | Literal["head"] = "head" if replay_head and not replay else replay
        if any(each is not None for each in of_one):
            dataset = workspace[(names or [""])[0]]
            report = _proof(
                here.console,
                lambda bar: dataset.verify(
                    after=after, upto=upto, replay=again, expected_head=expected_head, progress=bar
                ),
            )
            found = [_told(dataset.name, report)]
        else:
            report = _proof(
                here.console,
                lambda bar: workspace.verify(*(names or ()), replay=again, progress=bar, workers=workers),
            )
            found = [_told(name, each, report.not_checked) for name, each in report.datasets.items()]
        ok = all(each["ok"] for each in found)
        here.console.answer({"ok": ok, "datasets": found}, lambda shown: _show_proofs(shown, found))
        if not ok:
            raise typer.Exit(NO)


def _show_proofs(shown: Console, found: list[dict[str, Any]]) -> None:
    """Show what was found of each dataset."""
    for each in found:
        counts = f"{each['blocks']:,} blocks, {each['objects']:,} files, {each['bytes']:,} bytes"
        if each["replayed"]:
            counts += f", {each['replayed']:,} commit{'s' * (each['replayed'] != 1)} replayed"
        shown.say(
            f"{each['name']}: {'ok' if each['ok'] else 'WRONG'}, {counts}",
            "good" if each["ok"] else "bad",
        )
        for problem in each["problems"]:
            if problem["kind"] == "removed":
                shown.say(problem["text"])
            else:
                shown.error(problem["text"], remedy=problem["remedy"])
        for finding in each["findings"]:
            what = f"block {finding['block']} breaks {finding['rule']}: {finding['problem']}"
            shown.warn(f"{each['name']}: {what}", remedy="it was cloned like this; ask its owner")
        for why in each["not_replayed"]:
            shown.say(f"not replayed: {why.removeprefix('replay of ')}")
    if not found:
        shown.say("no datasets yet, so nothing is wrong")


def _proof(console: Console, verify: Callable[[Callable[[int], None]], Any]) -> Any:
    """Verify with a bar that shows how far it is; return the report."""
    with console.progress("verifying") as bar:
        done = 0

        def advance(count: int) -> None:
            nonlocal done
            # The count starts again when the blocks are done and the files begin.
            bar.advance(count - done if count >= done else count)
            done = count

        return verify(advance)


def _told(name: str, report: Any, not_checked: Sequence[str] | None = None) -> dict[str, Any]:
    """Return what was found of a dataset as plain values."""
    problems = [
        {
            "kind": str(problem.kind),
            "message": problem.message,
            "remedy": problem.remedy,
            "block": problem.block,
            "sequence_number": problem.sequence_number,
            "rule": problem.rule,
            "file": getattr(problem, "file", None),
            "expected": getattr(problem, "expected", None),
            "actual": getattr(problem, "actual", None),
            "text": str(problem),
        }
        for problem in report.problems
    ]
    counts: dict[str, Any] = {"blocks": report.blocks, "objects": report.objects, "bytes": report.bytes}
    counts["replayed"] = report.replayed
    # What could not be replayed is said of all of them together.
    said = report.not_checked if not_checked is None else not_checked
    counts["not_replayed"] = [each for each in said if each.startswith(f"replay of {name}: ")]
    well = all(problem["kind"] == "removed" for problem in problems)
    findings = [
        {"block": block, "rule": found.rule, "problem": found.problem} for block, found in report.findings
    ]
    return {"name": name, "ok": well, **counts, "problems": problems, "findings": findings}


@examples(
    "trueline gc --dry-run",
    "trueline gc --older-than 1d",
)
def gc(
    context: typer.Context,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only report what would be removed.")] = False,
    older_than: Annotated[
        str | None, typer.Option("--older-than", metavar="TIME", help="Keep what is newer: 90s, 1h, 7d.")
    ] = None,
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Remove files that nothing refers to.

    Crashes and lost races leave such files. Commits in flight are kept.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        swept = workspace.gc(older_than=older_than, dry_run=dry_run)
        verb = "would remove" if dry_run else "removed"

        def render(shown: Console) -> None:
            shown.say(f"{verb} {swept.objects:,} objects, {swept.bytes:,} bytes")
            rows = [
                (name, len(c.removed), c.bytes, c.kept_in_flight)
                for name, c in swept.datasets.items()
                if c.removed
            ]
            if rows:
                shown.table(["dataset", "objects", "bytes", "too new"], rows)
            for what, items in (
                ("deleted datasets", swept.deleted),
                ("unfinished datasets", swept.unfinished),
                ("stale indexes", swept.indexes),
                ("files read", swept.seen),
            ):
                if items:
                    shown.say(f"{verb} {what}: {', '.join(items)}")
            for name, reason in swept.skipped.items():
                if name in workspace:
                    shown.warn(f"{name} was skipped: {reason}", remedy=f"`trueline status {name}` says more")
                else:
                    shown.warn(f"{name} was skipped: {reason}", remedy="its files stay as long as that is so")

        removed = {name: [str(stored.hash) for stored in c.removed] for name, c in swept.datasets.items()}
        here.console.answer(
            {
                "dry_run": dry_run,
                "objects": swept.objects,
                "bytes": swept.bytes,
                "kept_in_flight": swept.kept_in_flight,
                "removed": removed,
                "deleted": swept.deleted,
                "unfinished": swept.unfinished,
                "indexes": swept.indexes,
                "seen": swept.seen,
                "skipped": swept.skipped,
            },
            render,
        )


@examples(
    "trueline revert stock --to 2026-11-13",
    "trueline revert stock --to ab12cd34 --json",
)
def revert(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="The dataset.")],
    to: Annotated[
        str,
        typer.Option("--to", metavar="AT", help="The commit whose rows are restored: a hash, a day, a tag."),
    ],
    directory: Directory = None,
    json: Json = False,
) -> None:
    """Restore the current rows of an earlier commit, by a new commit.

    What happened since stays in the log. For datasets merged by snapshot, upsert or changelog.
    """
    with session(context, directory, json) as here, here.workspace() as workspace:
        commit = workspace[name].revert(to=to)
        here.console.answer(
            commit.to_dict(),
            lambda shown: shown.say(f"{name}  {commit.told}", "good" if commit.rows else "plain"),
        )


@examples(
    "trueline doctor",
    "trueline doctor --json",
)
def doctor(context: typer.Context, directory: Directory = None, json: Json = False) -> None:
    """Check this machine.

    Says how to fix what is wrong. Exit code 3 if something needed is missing.
    """
    with session(context, directory, json) as here:
        from trueline.workspace.doctor import Verdict, examine

        folder = "." if "://" in here.place else here.place
        checks = examine(folder)
        well = all(check.verdict is not Verdict.FAIL for check in checks)
        styles: dict[Verdict, Any] = {Verdict.OK: "good", Verdict.WARN: "plain", Verdict.FAIL: "bad"}

        def render(shown: Console) -> None:
            for check in checks:
                shown.say(f"{check.verdict:<4}  {check.name}: {check.detail}", styles[check.verdict])
                if check.remedy:
                    shown.say(f"      → {check.remedy}")

        here.console.answer({"ok": well, "checks": checks}, render)
        if not well:
            raise typer.Exit(MISSING)
