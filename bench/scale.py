"""How much is measured: a look, a run, or everything the goals speak of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Scale:
    """Sizes and time budgets of one run."""

    name: str
    commits: tuple[int, ...]  # append is measured around each of these
    window: int  # commits measured around each
    peer_seconds: float  # how long each peer may append
    blocks: tuple[int, int]  # planning at the second is held against the first
    rounds: int  # samples per planning measurement
    verify: tuple[int, ...]  # lengths that are verified
    ids: int
    hashed_rows: int
    cold_starts: int
    codec_blocks: int
    ingested: int  # rows taken in from each source
    ingest_rounds: int
    verified: int  # rows whose slices are verified
    runs: tuple[int, ...]  # keys of the runs whose overhead is measured
    run_peers: int  # feedforward is measured up to so many keys
    sleepers: int  # keys of the runs that only wait
    clustered: int  # rows of the views on a Spark cluster


TINY = Scale(
    "tiny",
    (5, 20),
    6,
    0.5,
    (60, 240),
    5,
    (60, 240),
    10_000,
    10_000,
    2,
    200,
    3_000,
    1,
    3_000,
    (500,),
    500,
    24,
    3_000,
)
QUICK = Scale(
    "quick",
    (10, 1_000, 10_000),
    50,
    8,
    (1_000, 10_000),
    60,
    (1_000, 10_000),
    1_000_000,
    500_000,
    10,
    2_000,
    1_000_000,
    1,
    1_000_000,
    (1_000, 100_000),
    10_000,
    200,
    5_000_000,
)
NORMAL = Scale(
    "normal",
    (10, 1_000, 10_000, 100_000),
    50,
    60,
    (1_000, 100_000),
    200,
    (10_000, 100_000),
    4_000_000,
    2_000_000,
    20,
    10_000,
    4_000_000,
    2,
    4_000_000,
    (1_000, 10_000, 100_000, 1_000_000),
    100_000,
    200,
    10_000_000,
)
FULL = Scale(
    "full",
    (10, 1_000, 10_000, 100_000),
    50,
    600,
    (1_000, 1_000_000),
    300,
    (10_000, 100_000, 1_000_000),
    10_000_000,
    5_000_000,
    20,
    20_000,
    10_000_000,
    3,
    10_000_000,
    (1_000, 10_000, 100_000, 1_000_000),
    1_000_000,
    200,
    50_000_000,
)
SCALES = {scale.name: scale for scale in (TINY, QUICK, NORMAL, FULL)}
