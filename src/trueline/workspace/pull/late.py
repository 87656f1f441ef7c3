"""Snapshots that come too late: a file that sorts before one that was taken would undo what came after it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from trueline.chain.chain import Chain
from trueline.chain.sources import FetchFilesGlob
from trueline.dataset.append.files import TakenFile, identify
from trueline.dataset.declared_source import folder_of_pattern, natural
from trueline.errors import InputError
from trueline.readers import Source

if TYPE_CHECKING:
    from trueline.workspace.dataset import Dataset


def late_snapshots(
    chain: Chain, step: FetchFilesGlob, files: Sequence[Source], member: str | None = None
) -> list[Source]:
    """Return the files that sort before one that was taken, in natural order; known bytes do nothing."""
    newest = _newest(chain, step)
    if newest is None:
        return []
    late = [taken for file in files if natural((taken := TakenFile(file, member)).name) < natural(newest)]
    # A known name with other bytes is refused as such.
    late = [taken for taken in late if taken.before(chain) is None]
    return [taken.source for taken in late if identify(taken).entry(chain) is None]


def too_late(dataset: Dataset, step: FetchFilesGlob, late: Sequence[Source]) -> InputError:
    """The error of snapshots that came too late; the files after them were taken."""
    names = ", ".join(file.path for file in late[:3]) + ("…" if len(late) > 3 else "")
    newest = _newest(dataset.chain, step)
    return InputError(
        f"{names} sort{'s' * (len(late) == 1)} before {newest}, which was taken already: as a snapshot "
        f"{'it' if len(late) == 1 else 'they'} would undo what came after",
        remedy=f"remove {'it' if len(late) == 1 else 'them'} from the source, or take the rows as the newest "
        f"with ws.pull({dataset.name!r}, resend=True), `trueline pull {dataset.name} --resend`",
        code="LateSnapshot",
        paths=tuple(file.path for file in late),
        newest=newest,
    )


def _newest(chain: Chain, step: FetchFilesGlob) -> str | None:
    """Return the last name, in natural order, that was taken from the folder of a pattern."""
    folder = folder_of_pattern(step)
    names: list[str] = chain._guarded(lambda: chain._index.file_names())  # noqa: PLW0108 (it may be another)
    here = [name for name in names if folder == "." or name.startswith(f"{folder.rstrip('/')}/")]
    return max(here, key=natural, default=None)
