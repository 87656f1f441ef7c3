"""Which functions of SQL give the same answer for the same rows, and which do not (derive:V5)."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from trueline.errors import IrreproducibleQuery
from trueline.view.expressions.faults import placed, pointed, spot_at
from trueline.workspace.derive.aggregates import AGGREGATES
from trueline.workspace.derive.spark_sql import names
from trueline.workspace.query_guard import SqlToken, tokens

if TYPE_CHECKING:
    from trueline.workspace.derive.plan_part import PlanPart

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

_OUTSIDE: Final = "reads what is not an input", "use a dataset as an input"

_REASONS: Final[dict[tuple[str, str], str]] = {
    _CLOCK: "current_timestamp current_date current_time curdate now localtime localtimestamp",
    _CHANCE: "rand randn random randstr uniform uuid shuffle aes_encrypt",
    _PLACE: """monotonically_increasing_id spark_partition_id input_file_name input_file_block_start
        input_file_block_length""",
    _SESSION: """current_user user session_user current_catalog current_database current_schema
        current_path current_timezone version""",
    _SKETCH: """approx_count_distinct approx_percentile percentile_approx approx_top_k
        approx_top_k_accumulate approx_top_k_combine count_min_sketch histogram_numeric
        hll_sketch_agg hll_union_agg kll_sketch_agg_bigint kll_sketch_agg_double
        kll_sketch_agg_float kll_merge_agg_bigint kll_merge_agg_double kll_merge_agg_float
        kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float
        theta_sketch_agg theta_union_agg theta_intersection_agg tuple_sketch_agg_double
        tuple_sketch_agg_integer tuple_union_agg_double tuple_union_agg_integer
        tuple_intersection_agg_double tuple_intersection_agg_integer""",
    _ORDER: "collect_union counter_diff schema_of_variant_agg",
    _MOMENT: """kurtosis skewness regr_slope regr_intercept regr_r2 regr_sxx regr_syy regr_sxy regr_avgx
        regr_avgy vector_avg vector_sum""",
    _OUTSIDE: """java_method reflect try_reflect collations sql_keywords python_worker_logs measure
        from_avro schema_of_avro to_avro from_protobuf to_protobuf identifier""",
}
# Functions that are refused, with the reason and what to write instead.
REFUSED: Final = {name: why for why, names in _REASONS.items() for name in names.split()}
# Functions that take one of several rows: they need a window, where an order is given to them.
NEED_WINDOW: Final = frozenset(("first", "last", "any_value", "first_value", "last_value"))
# Of rows that have an order without ties, the offset, they are a function of the rows.
BY_OFFSET: Final = NEED_WINDOW - {"any_value"}
# Without an argument it is the clock.
_CLOCK_IF_EMPTY: Final = frozenset({"unix_timestamp"})
# Some need no brackets.
_BARE: Final = frozenset(
    {"current_timestamp", "current_date", "current_time", "current_user", "localtime", "localtimestamp"}
)
# Texts that Spark takes for a time when they are written as one.
_SPECIAL: Final = re.compile(r"\s*(now|today|tomorrow|yesterday)\b", re.IGNORECASE)
_TIMES: Final = frozenset({"date", "timestamp", "timestamp_ltz", "timestamp_ntz"})
# Functions of one row (or that make several rows of one) whose result depends on their arguments alone.
ALLOWED: Final = names(
    """abs acos acosh add_months aes_decrypt aggregate and approx_top_k_estimate array array_append
    array_compact array_contains array_distinct array_except array_insert array_intersect array_join
    array_max array_min array_position array_prepend array_remove array_repeat array_size array_sort
    array_union arrays_overlap arrays_zip ascii asin asinh assert_true atan atan2 atanh base64 between
    bigint bin binary bit_count bit_get bit_length bitmap_bit_position bitmap_bucket_number bitmap_count
    boolean bround btrim cardinality case cast cbrt ceil ceiling char char_length character_length chr
    coalesce collate collation concat concat_ws contains conv convert_timezone cos cosh cot crc32 csc
    date date_add date_diff date_format date_from_unix_date date_part date_sub date_trunc dateadd
    datediff datepart day dayname dayofmonth dayofweek dayofyear decimal decode degrees div double e
    element_at elt encode endswith equal_null exists exp explode explode_outer expm1 extract factorial
    filter find_in_set flatten float floor forall format_number format_string from_base32 from_csv
    from_json from_unixtime from_utc_timestamp from_xml get get_json_object getbit greatest hash hex
    hll_sketch_estimate hll_union hmac hour hypot if ifnull ilike in initcap inline inline_outer instr
    int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull jaro_winkler_similarity
    json_array_length json_object_keys json_tuple kll_sketch_get_n_bigint kll_sketch_get_n_double
    kll_sketch_get_n_float kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double
    kll_sketch_get_quantile_float kll_sketch_get_rank_bigint kll_sketch_get_rank_double
    kll_sketch_get_rank_float kll_sketch_to_string_bigint kll_sketch_to_string_double
    kll_sketch_to_string_float last_day lcase least left len length levenshtein like ln locate log log10
    log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
    map_zip_with mask md5 minute mod month monthname months_between named_struct nanvl negative next_day
    not nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url pi pmod posexplode
    posexplode_outer position positive pow power printf quarter quote radians raise_error range reduce
    regexp regexp_count regexp_extract regexp_extract_all regexp_instr regexp_like regexp_replace
    regexp_substr repeat replace reverse right rint rlike round rpad rtrim schema_of_csv schema_of_json
    schema_of_variant schema_of_xml sec second sentences sequence session_window sha sha1 sha2 shiftleft
    shiftright shiftrightunsigned sign signum sin sinh size slice smallint sort_array soundex space
    split split_part sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid stack startswith
    str_to_map string struct substr substring substring_index tan tanh theta_difference
    theta_intersection theta_sketch_estimate theta_union time time_bucket time_diff time_from_micros
    time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds time_trunc
    timestamp timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint to_base32
    to_binary to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz
    to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform
    transform_keys transform_values translate trim trunc try_add try_aes_decrypt try_divide
    try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
    try_mod try_multiply try_parse_json try_parse_url try_subtract try_to_binary try_to_date
    try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_array_append
    try_variant_get try_variant_insert try_variant_set tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_double
    tuple_intersection_integer tuple_intersection_theta_double tuple_intersection_theta_integer
    tuple_sketch_estimate_double tuple_sketch_estimate_integer tuple_sketch_summary_double
    tuple_sketch_summary_integer tuple_sketch_theta_double tuple_sketch_theta_integer tuple_union_double
    tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof ucase unbase64 unhex
    unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper url_decode url_encode
    validate_utf8 variant_array_append variant_delete variant_explode variant_explode_outer variant_get
    variant_insert variant_set variant_strip_nulls vector_cosine_similarity vector_inner_product
    vector_l2_distance vector_norm vector_normalize weekday weekofyear when width_bucket window
    window_time xpath xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number
    xpath_short xpath_string xxhash64 year zeroifnull zip_with"""
)
# Operators that Spark lists as functions.
OPERATORS: Final = names("! != % & * + - / < << <= <=> <> = == > >= >> >>> ^ | || ~")
# Classes of Spark's plans that are refused whatever the name they were called by.
_CLASSES: Final = {
    **dict.fromkeys(
        names("""CurrentTimestamp CurrentDate CurrentTime Now LocalTimestamp CurDate CurrentTimestampLike"""),
        _CLOCK,
    ),
    **dict.fromkeys(names("""Rand Randn Uuid Shuffle RandStr Uniform AesEncrypt"""), _CHANCE),
    **dict.fromkeys(
        names(
            """MonotonicallyIncreasingID SparkPartitionID InputFileName InputFileBlockStart
            InputFileBlockLength"""
        ),
        _PLACE,
    ),
    **dict.fromkeys(
        names("""CurrentUser CurrentCatalog CurrentDatabase CurrentTimeZone SparkVersion"""), _SESSION
    ),
    **dict.fromkeys(
        names("""HyperLogLogPlusPlus ApproximatePercentile ApproxTopK CountMinSketchAgg HistogramNumeric"""),
        _SKETCH,
    ),
    **dict.fromkeys(names("""CallMethodViaReflection PythonUDF PythonUDAF ScalaUDF ScalaUDAF"""), _OUTSIDE),
}
_UNKNOWN: Final = "is a function that is not known here", "upgrade trueline, or write it with other functions"
_SAMPLE: Final = "takes rows by chance", "filter by a hash of the key: where xxhash64(key) % 100 = 0"


def classes() -> dict[str, str]:
    """Return every function that is known here, as "allowed", "refused", "aggregate" or "window only"."""
    found = dict.fromkeys(ALLOWED | OPERATORS, "allowed")
    found |= dict.fromkeys(AGGREGATES, "aggregate")
    found |= dict.fromkeys(NEED_WINDOW, "window only")
    return found | dict.fromkeys(REFUSED, "refused")


def check_reproducible(text: str, *, ordered: bool = False) -> None:
    """Refuse what makes the result of a query depend on anything but its inputs, with its place.

    >>> check_reproducible("select sum(amount) from sales")
    >>> check_reproducible("select now() from sales")
    Traceback (most recent call last):
    trueline.errors.IrreproducibleQuery: now() depends on when it runs (line 1, column 8)
        select now() from sales
               ^^^
      → use the event time of the rows
    """
    check_calls(text, frozenset(), ordered=ordered)


def check_calls(text: str, there: frozenset[str], *, ordered: bool = False) -> None:
    """Refuse calls that are not reproducible, and those of functions of Spark that are not known here.

    With `ordered` the rows of some table have an order: whoever rewrites `first` and `last` says of which.
    """
    found = [*tokens(text), *[SqlToken("other", "", len(text))] * 3]
    known = classes()
    for at, token in enumerate(found[:-3]):
        follower, third = found[at + 1 : at + 3]
        if token.kind not in ("word", "quoted"):
            continue
        called = follower.name == "(" and follower.kind == "other"
        name = token.name
        if token.kind == "word" and name == "tablesample":
            raise refused(text, "TABLESAMPLE", _SAMPLE, token)
        if (
            token.kind == "word"
            and name in _TIMES
            and follower.kind == "string"
            and _SPECIAL.match(follower.name)
        ):
            raise refused(text, f"{name} '{follower.name}'", _CLOCK, token)
        if name in REFUSED and (called or (name in _BARE and token.kind == "word")):
            raise refused(text, f"{name}()", REFUSED[name], token)
        if called and name in _CLOCK_IF_EMPTY and third.name == ")":
            raise refused(text, f"{name}()", _CLOCK, token)
        by_offset = ordered and name in BY_OFFSET
        if called and name in NEED_WINDOW and not by_offset and not _is_over_window(found, at + 1):
            raise refused(text, f"{name}()", _ORDER, token)
        if called and name in there and name not in known:
            raise refused(text, f"{name}()", _UNKNOWN, token)


def _is_over_window(found: list[SqlToken], at: int) -> bool:
    """Say whether OVER follows the brackets that begin at a place, and what may be between."""
    while True:
        depth = 0
        while at < len(found):
            depth += (found[at].name == "(") - (found[at].name == ")") if found[at].kind == "other" else 0
            at += 1
            if not depth:
                break
        while at < len(found) and found[at].name in ("ignore", "respect", "nulls"):
            at += 1
        if at >= len(found) or found[at].name != "filter":
            return at < len(found) and found[at].name == "over"
        at += 1


def check_plan(text: str, plan: PlanPart) -> None:
    """Refuse what Spark found in a query that its words do not show: other names, times made of texts."""
    for part in plan.walk():
        if part.name in _CLASSES:
            raise refused(text, part.name, _CLASSES[part.name], SqlToken("other", "", 0))
        if part.name != "Cast" or part.type not in _TIMES:
            continue
        inner = list(part.parts[0].walk())
        if any(each.name == "AttributeReference" for each in inner):
            continue
        if any(_SPECIAL.match(each.value) for each in inner):
            raise refused(text, f"a {part.type} of a text", _CLOCK, SqlToken("other", "", 0))


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
