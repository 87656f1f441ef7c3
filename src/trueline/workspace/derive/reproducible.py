"""Which functions of SQL give the same answer for the same rows, and which do not (derive:V5)."""

from __future__ import annotations

from itertools import pairwise
from typing import Final

from trueline.errors import IrreproducibleQuery
from trueline.view.expressions.faults import placed, pointed, spot_at
from trueline.workspace.query_guard import SqlToken, tokens

_CLOCK: Final = "depends on when it runs", "use the event time of the rows"
_CHANCE: Final = "depends on chance", "hash a key instead: xxhash64(key)"
_PLACE: Final = "depends on how the work was cut into tasks", "use a column of the input"
_SESSION: Final = "depends on who runs it and where", "write the value as a literal"
_SKETCH: Final = "is an approximation that depends on how rows were cut into tasks", "use the exact function"
_ORDER: Final = (
    "depends on the order in which rows arrive",
    "say which: min_by(value, order), max_by(value, order)",
)
_MOMENT: Final = "adds floating-point numbers in no fixed order", "compute it from sum and count"

_REASONS: Final[dict[tuple[str, str], str]] = {
    _CLOCK: "current_timestamp current_date current_time curdate now localtime localtimestamp",
    _CHANCE: "rand randn random randstr uniform uuid shuffle",
    _PLACE: """monotonically_increasing_id spark_partition_id input_file_name input_file_block_start
        input_file_block_length""",
    _SESSION: """current_user user session_user current_catalog current_database current_schema
        current_path current_timezone version""",
    _SKETCH: """approx_count_distinct approx_percentile percentile_approx approx_top_k
        approx_top_k_accumulate approx_top_k_combine count_min_sketch histogram_numeric
        hll_sketch_agg hll_union_agg kll_sketch_agg_bigint kll_sketch_agg_double
        kll_sketch_agg_float kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
        theta_sketch_agg theta_union_agg theta_intersection_agg tuple_sketch_agg_double
        tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer
        tuple_intersection_agg_double tuple_intersection_agg_integer bitmap_construct_agg""",
    _ORDER: "first last any_value collect_union counter_diff schema_of_variant_agg",
    _MOMENT: """kurtosis skewness regr_slope regr_intercept regr_r2 regr_sxx regr_syy regr_sxy regr_avgx
        regr_avgy vector_avg vector_sum try_avg try_sum""",
}
# Functions that are refused, with the reason and what to write instead.
REFUSED: Final = {name: why for why, names in _REASONS.items() for name in names.split()}
# Some need no brackets.
_BARE: Final = frozenset(
    {"current_timestamp", "current_date", "current_time", "current_user", "localtime", "localtimestamp"}
)
_SAMPLE: Final = "takes rows by chance", "filter by a hash of the key: where xxhash64(key) % 100 = 0"


def check_reproducible(text: str) -> None:
    """Refuse what makes the result of a query depend on anything but its inputs, with its place.

    >>> check_reproducible("select sum(amount) from sales")
    >>> check_reproducible("select now() from sales")
    Traceback (most recent call last):
    trueline.errors.IrreproducibleQuery: now() depends on when it runs (line 1, column 8)
        select now() from sales
               ^^^
      → use the event time of the rows
    """
    end = SqlToken("other", "", len(text))
    for token, follower in pairwise([*tokens(text), end]):
        if token.kind != "word":
            continue
        called = follower.name == "("
        if token.name == "tablesample":
            raise refused(text, "TABLESAMPLE", _SAMPLE, token)
        if token.name in REFUSED and (called or token.name in _BARE):
            raise refused(text, f"{token.name}()", REFUSED[token.name], token)


def refused(text: str, construct: str, why: tuple[str, str], token: SqlToken) -> IrreproducibleQuery:
    """Return the error for something in a query whose result is not a function of its inputs."""
    reason, remedy = why
    spot = spot_at(text, token.at, token.at + len(token.name))
    return IrreproducibleQuery(
        f"{construct} {reason}{placed(spot)}{pointed(text, spot)}",
        remedy=remedy,
        construct=construct,
        line=spot.line,
        column=spot.column,
    )
