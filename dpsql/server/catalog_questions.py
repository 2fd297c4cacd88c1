"""Questions that the twin is asked: SELECTs whose functions are listed, whoever has written them.

A function that is not listed may wait, read files, end the sessions of others or fill a memory. The
text is not parsed, since the twin would parse it otherwise: a name of one of its functions before
a parenthesis is a call, in a string or a comment too, so that nothing can be hidden from this.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from dpsql.sql.text.lexemes import MAX_STATEMENT, lex

FIRST_WORDS = frozenset({"select", "with", "values", "table", "show", "explain", "(", "from"})
"""First words of what is answered; ``from`` is told by the twin that it is no SQL of its own."""
TYPES = """
    bool box bpchar char cidr circle date daterange float4 float8 int2 int4 int8 int4range
    int8range interval line lseg macaddr money name numeric numrange oid path point
    polygon regclass text time timestamp timestamptz timetz tsrange tstzrange varbit varchar xml bit
"""
"""Types, whose names are those of casts."""
VALUES = """
    abs ceil ceiling div exp floor ln log mod power round scale sign sqrt trunc
    ascii bit_length btrim char_length character_length chr concat concat_ws decode encode
    initcap left length lower ltrim md5 octet_length overlay parse_ident position quote_ident
    quote_literal quote_nullable replace reverse right rtrim split_part starts_with string_to_array
    strpos substr substring translate upper to_hex to_char to_date to_number to_timestamp
    regexp_match regexp_matches regexp_replace regexp_split_to_array regexp_split_to_table
    regexp_count regexp_instr regexp_like regexp_substr
    age clock_timestamp format date_bin date_part date_trunc extract justify_days justify_hours
    justify_interval isfinite make_date make_interval make_time make_timestamp make_timestamptz
    now statement_timestamp timeofday timezone transaction_timestamp overlaps
    array_append array_cat array_dims array_length array_lower array_ndims array_position
    array_positions array_prepend array_remove array_replace array_to_json array_to_string
    array_upper cardinality unnest generate_series generate_subscripts
    json_agg json_array_elements json_array_elements_text json_array_length json_build_array
    json_build_object json_each json_each_text json_extract_path json_extract_path_text
    json_object json_object_agg json_object_keys json_typeof jsonb_agg jsonb_array_elements
    jsonb_array_elements_text jsonb_array_length jsonb_build_array jsonb_build_object jsonb_each
    jsonb_each_text jsonb_object jsonb_object_agg jsonb_object_keys jsonb_typeof row_to_json
    to_json to_jsonb
    any_value array_agg avg bit_and bit_or bool_and bool_or count every max min mode
    percentile_cont percentile_disc string_agg stddev stddev_pop stddev_samp sum var_pop var_samp
    variance
    cume_dist dense_rank first_value lag last_value lead nth_value ntile percent_rank rank
    row_number
    hashtext num_nonnulls num_nulls
"""
"""Functions of values, none of which makes a long text of a number."""
FACTS = """
    acldefault aclexplode col_description current_database current_query current_schema
    current_schemas current_setting current_user format_type getdatabaseencoding
    has_any_column_privilege has_column_privilege has_database_privilege
    has_foreign_data_wrapper_privilege has_function_privilege has_language_privilege
    has_parameter_privilege has_schema_privilege has_sequence_privilege has_server_privilege
    has_table_privilege has_tablespace_privilege has_type_privilege inet_client_addr
    inet_client_port inet_server_addr inet_server_port makeaclitem obj_description
    pg_advisory_unlock_all pg_available_extension_versions pg_available_extensions pg_backend_pid
    pg_blocking_pids pg_char_to_encoding pg_client_encoding pg_collation_actual_version
    pg_collation_is_visible pg_column_is_updatable pg_column_size pg_conf_load_time
    pg_conversion_is_visible pg_database_size pg_describe_object pg_encoding_max_length
    pg_encoding_to_char pg_event_trigger_table_rewrite_oid pg_function_is_visible
    pg_get_constraintdef pg_get_expr pg_get_function_arg_default pg_get_function_arguments
    pg_get_function_identity_arguments pg_get_function_result pg_get_function_sqlbody
    pg_get_functiondef pg_get_indexdef pg_get_keywords pg_get_partition_constraintdef
    pg_get_partkeydef pg_get_publication_tables pg_get_ruledef
    pg_get_serial_sequence pg_get_statisticsobjdef pg_get_statisticsobjdef_columns
    pg_get_statisticsobjdef_expressions pg_get_triggerdef pg_get_userbyid pg_get_viewdef
    pg_has_role pg_identify_object pg_index_column_has_property pg_index_has_property
    pg_indexam_has_property pg_indexes_size pg_is_in_recovery pg_is_other_temp_schema
    pg_is_wal_replay_paused pg_jit_available pg_listening_channels pg_lock_status
    pg_my_temp_schema pg_opclass_is_visible pg_operator_is_visible pg_opfamily_is_visible
    pg_options_to_table pg_partition_ancestors pg_partition_root pg_partition_tree
    pg_postmaster_start_time pg_relation_filenode pg_relation_filepath pg_relation_is_publishable
    pg_relation_is_updatable pg_relation_size pg_safe_snapshot_blocking_pids pg_sequence_last_value
    pg_sequence_parameters pg_show_all_settings pg_size_bytes pg_size_pretty pg_stat_get_numscans
    pg_statistics_obj_is_visible pg_table_is_visible pg_table_size pg_tablespace_databases
    pg_tablespace_location pg_tablespace_size pg_timezone_abbrevs pg_timezone_names
    pg_total_relation_size pg_trigger_depth pg_ts_config_is_visible pg_ts_dict_is_visible
    pg_ts_parser_is_visible pg_ts_template_is_visible pg_type_is_visible pg_typeof
    session_user shobj_description to_regclass to_regcollation to_regnamespace to_regoper
    to_regoperator to_regproc to_regprocedure to_regrole to_regtype txid_current
    txid_current_if_assigned txid_current_snapshot txid_snapshot_xmin version set_config
"""
"""Functions that tell what PostgreSQL knows of itself, its catalogs and the session."""
LISTED = frozenset(f"{TYPES} {VALUES} {FACTS}".split())
SCHEMA_PREFIX = "_pg_"
"""Prefix of the functions that the views of ``information_schema`` are made of."""
SET = re.compile(
    r"set_config\s*\(\s*'(?:application_name|bytea_output|client_encoding|client_min_messages"
    r"|datestyle|extra_float_digits|intervalstyle|jit|search_path|timezone)'\s*,",
    re.IGNORECASE,
)
"""Settings that clients set by a function, none of which lifts a limit."""
FORMAT = re.compile(r"format\s*\(\s*'[^'0-9*$\\]*'\s*,", re.IGNORECASE)
"""A format without a width, which would make a long text of a number."""
LITERALS = {
    "set_config": (SET, "set_config() is answered for settings of clients alone"),
    "format": (FORMAT, "format() is answered for a literal without widths alone"),
}
"""Functions that are answered for some literals alone, and what is told of others."""
_CALL = re.compile(r'(?<![\w$])([\w$]++)"?+\s*+(?=\(|--|/\*)')


def unlisted(functions: Iterable[str]) -> frozenset[str]:
    """Return the names among all functions of a PostgreSQL that no question may call."""
    names = (each.lower() for each in functions)
    return frozenset(each for each in names if not each.startswith(SCHEMA_PREFIX)) - LISTED


def refusal(sql: str, refused: frozenset[str]) -> str | None:
    """Say why a text is no question for the twin; None if it is one.

    >>> refusal("SELECT pg_catalog . pg_sleep/**/ (4)", frozenset({"pg_sleep"}))
    'pg_sleep() is not answered here'
    >>> refusal("SELECT count(*) FROM pg_class", frozenset({"pg_sleep"}))
    """
    if len(sql) > MAX_STATEMENT:
        return f"a statement of over {MAX_STATEMENT} characters"
    words = [each for each in lex(sql) if each.kind != "space"]
    comments = [each.text for each in words if each.kind == "comment"]
    first = next((each.text.lower() for each in words if each.kind != "comment"), "select")
    if first not in FIRST_WORDS or any("/*" in each[2:] for each in comments):
        return f"{first.upper()} is not answered here"
    if 'u&"' in sql.lower():
        return "names with Unicode escapes are not answered here"
    for found in _CALL.finditer(sql):
        name = found[1].lower().lstrip("0123456789$")
        if name in refused:
            return f"{name}() is not answered here"
        if name in LITERALS and LITERALS[name][0].match(sql, found.start(1)) is None:
            return LITERALS[name][1]
    return None
