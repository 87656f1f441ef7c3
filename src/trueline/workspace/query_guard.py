"""What a query may not do: run programs, call Java, read paths, reach tables that are not datasets.

The lists are for queries of `ws.sql` and for whatever else is written in Spark's SQL. A function that is not
known here is refused like a dangerous one: it may be anything that somebody has registered.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator
from itertools import pairwise
from typing import Any, Final, NamedTuple

from trueline.errors import UnsafeQuery
from trueline.view.expressions.faults import placed, pointed, spot_at

# --- the lists --------------------------------------------------------------------------------

# Functions of Spark that call Java, read files by a path they are given, or read logs; in the remedy's words.
REFUSED_FUNCTIONS: Final = {
    "reflect": "calls Java",
    "try_reflect": "calls Java",
    "java_method": "calls Java",
    "from_protobuf": "reads files by their path",
    "to_protobuf": "reads files by their path",
    "from_avro": "reads files by their path",
    "to_avro": "reads files by their path",
    "schema_of_avro": "reads files by their path",
    "from_xml": "reads files by their path",
    "schema_of_xml": "reads files by their path",
    "read_files": "reads files by their path",
    "python_worker_logs": "reads logs",
    "identifier": "makes a name of text",
}

# All others that Spark 4 has built in. They compute values of what they are given.
_BUILT_IN: Final = """
    abs acos acosh add_months aes_decrypt aes_encrypt aggregate and any any_value approx_count_distinct
    approx_percentile approx_top_k approx_top_k_accumulate approx_top_k_combine approx_top_k_estimate
    array array_agg array_append array_compact array_contains array_distinct array_except array_insert
    array_intersect array_join array_max array_min array_position array_prepend array_remove
    array_repeat array_size array_sort array_union arrays_overlap arrays_zip ascii asin asinh
    assert_true atan atan2 atanh avg base64 between bigint bin binary bit_and bit_count bit_get
    bit_length bit_or bit_xor bitmap_and_agg bitmap_bit_position bitmap_bucket_number
    bitmap_construct_agg bitmap_count bitmap_or_agg bool_and bool_or boolean bround btrim cardinality
    case cast cbrt ceil ceiling char char_length character_length chr coalesce collate collation
    collations collect_list collect_set collect_union concat concat_ws contains conv convert_timezone
    corr cos cosh cot count count_if count_min_sketch counter_diff covar_pop covar_samp crc32 csc
    cume_dist curdate current_catalog current_database current_date current_path current_schema
    current_time current_timestamp current_timezone current_user date date_add date_diff date_format
    date_from_unix_date date_part date_sub date_trunc dateadd datediff datepart day dayname dayofmonth
    dayofweek dayofyear decimal decode degrees dense_rank div double e element_at elt encode endswith
    equal_null every exists exp explode explode_outer expm1 extract factorial filter find_in_set first
    first_value flatten float floor forall format_number format_string from_base32 from_csv from_json
    from_unixtime from_utc_timestamp get get_json_object getbit greatest grouping grouping_id hash hex
    histogram_numeric hll_sketch_agg hll_sketch_estimate hll_union hll_union_agg hmac hour hypot if
    ifnull ilike in initcap inline inline_outer input_file_block_length input_file_block_start
    input_file_name instr int is_valid_utf8 is_valid_variant is_variant_null isnan isnotnull isnull
    jaro_winkler_similarity json_array_length json_object_keys json_tuple kll_merge_agg_bigint
    kll_merge_agg_double kll_merge_agg_float kll_sketch_agg_bigint kll_sketch_agg_double
    kll_sketch_agg_float kll_sketch_get_n_bigint kll_sketch_get_n_double kll_sketch_get_n_float
    kll_sketch_get_quantile_bigint kll_sketch_get_quantile_double kll_sketch_get_quantile_float
    kll_sketch_get_rank_bigint kll_sketch_get_rank_double kll_sketch_get_rank_float
    kll_sketch_merge_bigint kll_sketch_merge_double kll_sketch_merge_float kll_sketch_to_string_bigint
    kll_sketch_to_string_double kll_sketch_to_string_float kurtosis lag last last_day last_value lcase
    lead least left len length levenshtein like listagg ln localtime localtimestamp locate log log10
    log1p log2 lower lpad ltrim luhn_check make_date make_dt_interval make_interval make_time
    make_timestamp make_timestamp_ltz make_timestamp_ntz make_valid_utf8 make_ym_interval map map_concat
    map_contains_key map_entries map_filter map_from_arrays map_from_entries map_keys map_values
    map_zip_with mask max max_by md5 mean measure median min min_by minute mod mode
    monotonically_increasing_id month monthname months_between named_struct nanvl negative next_day not
    now nth_value ntile nullif nullifzero nvl nvl2 octet_length or overlay parse_json parse_url
    percent_rank percentile percentile_approx percentile_cont percentile_disc pi pmod posexplode
    posexplode_outer position positive pow power printf quarter quote radians raise_error rand randn
    random randstr range rank reduce regexp regexp_count regexp_extract regexp_extract_all regexp_instr
    regexp_like regexp_replace regexp_substr regr_avgx regr_avgy regr_count regr_intercept regr_r2
    regr_slope regr_sxx regr_sxy regr_syy repeat replace reverse right rint rlike round row_number rpad
    rtrim schema_of_csv schema_of_json schema_of_variant schema_of_variant_agg sec second sentences
    sequence session_user session_window sha sha1 sha2 shiftleft shiftright shiftrightunsigned shuffle
    sign signum sin sinh size skewness slice smallint some sort_array soundex space spark_partition_id
    split split_part sql_keywords sqrt st_asbinary st_geogfromwkb st_geomfromwkb st_setsrid st_srid
    stack startswith std stddev stddev_pop stddev_samp str_to_map string string_agg struct substr
    substring substring_index sum tan tanh theta_difference theta_intersection theta_intersection_agg
    theta_sketch_agg theta_sketch_estimate theta_union theta_union_agg time time_bucket time_diff
    time_from_micros time_from_millis time_from_seconds time_to_micros time_to_millis time_to_seconds
    time_trunc timestamp timestamp_micros timestamp_millis timestamp_nanos timestamp_seconds tinyint
    to_base32 to_binary to_char to_csv to_date to_json to_number to_time to_timestamp to_timestamp_ltz
    to_timestamp_ntz to_unix_timestamp to_utc_timestamp to_varchar to_variant_object to_xml transform
    transform_keys transform_values translate trim trunc try_add try_aes_decrypt try_avg try_divide
    try_element_at try_make_interval try_make_timestamp try_make_timestamp_ltz try_make_timestamp_ntz
    try_mod try_multiply try_parse_json try_parse_url try_subtract try_sum try_to_binary try_to_date
    try_to_number try_to_time try_to_timestamp try_url_decode try_validate_utf8 try_variant_array_append
    try_variant_get try_variant_insert try_variant_set tuple_difference_double tuple_difference_integer
    tuple_difference_theta_double tuple_difference_theta_integer tuple_intersection_agg_double
    tuple_intersection_agg_integer tuple_intersection_double tuple_intersection_integer
    tuple_intersection_theta_double tuple_intersection_theta_integer tuple_sketch_agg_double
    tuple_sketch_agg_integer tuple_sketch_estimate_double tuple_sketch_estimate_integer
    tuple_sketch_summary_double tuple_sketch_summary_integer tuple_sketch_theta_double
    tuple_sketch_theta_integer tuple_union_agg_double tuple_union_agg_integer tuple_union_double
    tuple_union_integer tuple_union_theta_double tuple_union_theta_integer typeof ucase unbase64 unhex
    uniform unix_date unix_micros unix_millis unix_nanos unix_seconds unix_timestamp upper url_decode
    url_encode user uuid validate_utf8 var_pop var_samp variance variant_array_append variant_delete
    variant_explode variant_explode_outer variant_get variant_insert variant_set variant_strip_nulls
    vector_avg vector_cosine_similarity vector_inner_product vector_l2_distance vector_norm
    vector_normalize vector_sum version weekday weekofyear when width_bucket window window_time xpath
    xpath_boolean xpath_double xpath_float xpath_int xpath_long xpath_number xpath_short xpath_string
    xxhash64 year zeroifnull zip_with
"""
FUNCTIONS: Final = frozenset(_BUILT_IN.split())


# Spark's parser takes minutes over a thousand brackets in each other.
MOST_NESTED: Final = 200
NOT_A_DATASET: Final = "is not a dataset of the workspace"


# --- what is refused --------------------------------------------------------------------------


def refused(
    text: str, construct: str, why: str, at: int | None = None, remedy: str = "", **fields: Any
) -> UnsafeQuery:
    """Return the error for something in a query, with its place where that is known."""
    place: dict[str, Any] = {}
    shown = ""
    if at is not None:
        found = _TOKEN.match(text, at)
        spot = spot_at(text, at, found.end() if found else at + 1)
        place = {"line": spot.line, "column": spot.column}
        shown = placed(spot) + pointed(text, spot)
    return UnsafeQuery(
        f"{construct} {why}{shown}",
        remedy=f"{remedy or 'leave it out'}; where every query is your own, open the workspace with "
        "trusted_sql=True (`trueline sql --trusted-sql`)",
        construct=construct,
        condition="",
        **place,
        **fields,
    )


def check_function(text: str, name: str, helpers: Collection[str] = ()) -> None:
    """Refuse a function by its name as the query has it; a name of several parts is not known.

    `helpers` are functions of ours, which queries of users may not call.
    """
    known = name.lower()
    if known not in FUNCTIONS and known not in helpers:
        why = REFUSED_FUNCTIONS.get(known, "is not a built-in function of Spark")
        raise refused(text, f"{name}()", why, place_of_name(text, name))


def check_relation(text: str, name: str, tables: Collection[str]) -> None:
    """Refuse a table that is neither a dataset nor a name of the query itself; both are of one part."""
    if name.lower() not in tables:
        there = ", ".join(sorted(tables)[:5])
        raise refused(
            text,
            f"`{name}`",
            NOT_A_DATASET,
            place_of_name(text, name),
            f"name a dataset{f', such as {there}' if there else ''}",
            relation=name,
        )


def place_of_name(text: str, name: str) -> int | None:
    """Return where a name of one part, or the last of several, is in a query."""
    whole = f".{name.lower()}"
    found = (token for token in tokens(text) if token.kind != "other")
    return next((token.at for token in found if whole.endswith(f".{token.name}")), None)


# --- words ------------------------------------------------------------------------------------

# As Spark's lexer has them. A hint is not a comment, so `/*+` is not skipped.
_TOKEN: Final = re.compile(
    r"""(?P<skip>\s+|--(?:\\\n|[^\r\n])*)
    |(?P<comment>/\*(?!\+))
    |(?P<string>[rR]'[^']*'|[rR]"[^"]*"|'(?:[^'\\]|\\.|'')*'|"(?:[^"\\]|\\.|"")*")
    |(?P<quoted>`(?:[^`]|``)*`)
    |(?P<word>\w+)
    |(?P<other>.)""",
    re.VERBOSE | re.DOTALL,
)
_COMMENT: Final = re.compile(r"/\*|\*/")


class SqlToken(NamedTuple):
    """A word, name, string or character of a query; `name` is what it names, in small letters."""

    kind: str
    name: str
    at: int


def tokens(text: str) -> Iterator[SqlToken]:
    """Yield what Spark's lexer finds in a query, without space and comments."""
    at = 0
    while found := _TOKEN.match(text, at):
        kind = str(found.lastgroup)
        if kind == "comment":
            at = _comment_end(text, found.end())
            continue
        if kind != "skip":
            yield SqlToken(kind, _named(kind, found.group()), at)
        at = found.end()


def _named(kind: str, text: str) -> str:
    if kind == "quoted":
        text = text[1:-1].replace("``", "`")
    elif kind == "string":
        text = text.lstrip("rR")[1:-1]
    return text.lower()


def _comment_end(text: str, at: int) -> int:
    """Return where a comment ends; comments lie in comments."""
    depth = 1
    for found in _COMMENT.finditer(text, at):
        depth += 1 if found.group() == "/*" else -1
        if not depth:
            return found.end()
    return len(text)


def check_words(text: str, most_nested: int = MOST_NESTED) -> None:
    """Refuse what its words alone give away; whatever Spark makes of the rest."""
    before: SqlToken | None = None
    depth = 0
    for token in tokens(text):
        depth += (token.name in "([") - (token.name in ")]") if token.kind == "other" else 0
        if depth > most_nested:
            raise refused(text, "this query", f"has more than {most_nested} open brackets", token.at)
        if before is not None:
            if token.name == "(" and before.kind != "other" and before.name in REFUSED_FUNCTIONS:
                raise refused(text, f"{before.name}()", REFUSED_FUNCTIONS[before.name], before.at)
            # Of a join the columns follow, in brackets; anything else is the program of a transformation.
            if before == SqlToken("word", "using", before.at) and token.name != "(":
                raise refused(text, "TRANSFORM … USING", "runs a program", before.at)
            if before.name == token.name == "$":
                raise refused(text, "$$", "quotes text in a way that is not needed in a query", before.at)
        before = token


# --- without Spark ----------------------------------------------------------------------------


def check_query(
    text: str, tables: Collection[str], helpers: Collection[str] = (), most_nested: int = MOST_NESTED
) -> None:
    """Refuse a query that may run programs, call Java, read paths, or reach other tables than `tables`.

    It is for where Spark's own parser is not available; what cannot be parsed here is refused. Functions of
    ours may be called if they are among `helpers`.

    >>> check_query("select max(price) from sales", ["sales"])
    >>> check_query("select * from text.`/etc/passwd`", ["sales"])
    Traceback (most recent call last):
    trueline.errors.UnsafeQuery: `text./etc/passwd` is not a dataset of the workspace (line 1, column 20)
        select * from text.`/etc/passwd`
                           ^^^^^^^^^^^^^
      → name a dataset; where every query is your own, open the workspace with \
trusted_sql=True (`trueline sql --trusted-sql`)
    """
    from sqlglot import exp, parse
    from sqlglot.errors import SqlglotError

    check_words(text, most_nested)
    _check_table_words(text)
    known = {name.lower() for name in tables}
    try:
        found = parse(text, read="spark")
    except (SqlglotError, RecursionError):
        found = []
    if len(found) != 1 or not isinstance(found[0], exp.Query | exp.Values):
        raise refused(text, "this query", "cannot be parsed without Spark's own parser")
    for node in found[0].walk():
        if isinstance(node, exp.QueryTransform | exp.Command | exp.DDL | exp.DML | exp.Version):
            raise refused(text, "what this does", "is not part of a query")
        if isinstance(node, exp.Dot) and isinstance(node.expression, exp.Func):
            check_function(text, f"{node.this.name}.{node.expression.name}")
        elif isinstance(node, exp.Anonymous):
            check_function(text, node.name, helpers)
        elif isinstance(node, exp.Table):
            names = [part.name for part in (*node.parts[:-1], node.this)]
            if len(names) > 1:
                check_relation(text, ".".join(names), ())
            elif not isinstance(node.this, exp.Func):
                check_relation(text, names[0], known | own_names(node))


def unknown_tables(text: str, tables: Collection[str]) -> list[str]:
    """Return the tables of a query that are neither `tables` nor its own parts, as far as can be said.

    >>> unknown_tables("with t as (select 1) select * from t join sals", ["sales"])
    ['sals']
    """
    known = {name.lower() for name in tables}
    return [name for name in _parsed_tables(text) or () if name.lower() not in known]


def tables_named(text: str) -> frozenset[str] | None:
    """Return the tables of a query in lower case, without its own parts; None if that cannot be said here.

    >>> tables_named("with t as (select 1) select total from t join sales"), tables_named("table sales")
    (frozenset({'sales'}), None)
    """
    # `TABLE name` is a query of its own that sqlglot takes for a column.
    if any(token.kind == "word" and token.name == "table" for token in tokens(text)):
        return None
    found = _parsed_tables(text)
    return None if found is None else frozenset(map(str.lower, found))


def _parsed_tables(text: str) -> list[str] | None:
    from sqlglot import exp, parse

    try:
        parsed = [each for each in parse(text, read="spark") if each is not None]
    except Exception:  # noqa: BLE001 (the parser that counts says what is wrong)
        return None
    found = (node for each in parsed for node in each.find_all(exp.Table))
    plain = (node for node in found if len(node.parts) == 1 and isinstance(node.this, exp.Identifier))
    return [node.name for node in plain if node.name.lower() not in own_names(node)]


def _check_table_words(text: str) -> None:
    """Refuse `TABLE name`, which is a query of its own that other parsers take for a column."""
    for one, next_one in pairwise(tokens(text)):
        if one.kind == "word" and one.name == "table" and next_one.kind in ("word", "quoted"):
            raise refused(text, "TABLE …", "cannot be checked here", one.at, "write select * from …")


def own_names(table: Any) -> set[str]:
    """Return the names that the query gives to its own parts, in the place of tables."""
    from sqlglot import exp

    names: set[str] = set()
    node = table
    while node.parent is not None:
        outer = node.parent
        if isinstance(outer, exp.With):
            # In a WITH one sees what comes before, and oneself if it is recursive.
            for part in outer.expressions:
                if part is node and not outer.recursive:
                    break
                names.add(part.alias.lower())
                if part is node:
                    break
            node = outer.parent
            continue
        inner = outer.args.get("with_") or outer.args.get("with")
        if inner is not None and inner is not node:
            names.update(part.alias.lower() for part in inner.expressions)
        node = outer
    return names
