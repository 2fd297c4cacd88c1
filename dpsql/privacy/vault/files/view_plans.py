"""Plans of views of database files: which steps hold rows on their way, and would need memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Sequence
from typing import Any

import duckdb

from dpsql.catalog.catalog import Table
from dpsql.privacy.vault.data_engine import unavailable
from dpsql.privacy.vault.files.database import Relation

STREAMED = {
    *("SEQ_SCAN", "TABLE_SCAN", "COLUMN_DATA_SCAN", "EXPRESSION_SCAN", "DUMMY_SCAN"),
    *("RANGE", "GENERATE_SERIES"),
    *("PROJECTION", "FILTER", "UNNEST", "UNION", "EMPTY_RESULT", "STREAMING_LIMIT"),
}
"""Steps of plans that hand rows on and hold as many as they are written with, or fewer."""
SPILLED = STREAMED | {
    *("HASH_GROUP_BY", "PERFECT_HASH_GROUP_BY", "UNGROUPED_AGGREGATE", "PARTITIONED_AGGREGATE"),
    *("HASH_JOIN", "CROSS_PRODUCT", "ORDER_BY", "TOP_N", "LIMIT", "CTE", "CTE_SCAN"),
    *("WINDOW", "STREAMING_WINDOW"),
}
"""Steps that go on in a folder where the memory does not hold their rows."""
CONSTANT = re.compile(
    r"(count|count_star|count_if|sum|sum_no_overflow|fsum|sumkahan|kahan_sum|product|avg|favg|mean"
    r"|min|max|first|last|any_value|arg_min|arg_max|arg_min_null|arg_max_null|min_by|max_by"
    r"|bool_and|bool_or|bit_and|bit_or|bit_xor|stddev\w*|var\w*|sem|corr|covar_\w+|regr_\w+"
    r"|skewness|kurtosis\w*|approx_count_distinct|row_number|rank|dense_rank|rank_dense"
    r"|percent_rank|cume_dist|ntile|lag|lead|first_value|last_value|nth_value)"
)
"""Functions over rows that keep as much of many as of few; others, such as ``list``, keep all."""


def require_streamed(
    connection: duckdb.DuckDBPyConnection, relation: Relation, table: Table, has_folder: bool
) -> None:
    """Refuse a view that holds rows on its way, of which memory would tell how many there are.

    Decided by the steps of its plan, before any row is read. With a folder for rows, steps and
    functions that cannot go on there are refused.

    Args:
        connection: One to which the file is attached.
        relation: The table, or view, of the file.
        table: The table of the catalog that it is.
        has_folder: Say whether rows that the memory does not hold have a folder.

    Raises: DataUnavailable (E_DATA).
    """
    if not relation.is_view:
        return
    plan = f"EXPLAIN (FORMAT json) SELECT * FROM {relation.sql}"
    steps = [*_steps(json.loads(connection.execute(plan).fetchall()[0][1]))]
    held = [
        name for name, called in steps if name not in SPILLED or not all(map(_is_small, called))
    ]
    if has_folder and held:
        problem = f"the view {relation.shown!r} keeps rows in memory, which no folder holds"
        hint = "store its rows as a table: lists, quantiles and joins by < keep all rows at once"
        unavailable(table.name, table.source, problem, hint)
    if not has_folder and not STREAMED.issuperset(name for name, _ in steps):
        problem = f"the view {relation.shown!r} sorts, groups or joins rows, which takes memory"
        hint = "store its rows as a table, or name a folder for them with `spill`"
        unavailable(table.name, table.source, problem, hint)


def _steps(nodes: Sequence[Any]) -> Iterator[tuple[str, Sequence[str]]]:
    """The steps of a plan, each with the functions over rows that it works out."""
    for node in nodes:
        name, told = node["name"].strip(), node.get("extra_info") or {}
        called = told.get("Projections" if "WINDOW" in name else "Aggregates") or ()
        yield name, [called] if isinstance(called, str) else called
        yield from _steps(node["children"])


def _is_small(call: str) -> bool:
    """True if a function over rows, as a plan writes it, keeps as much of many rows as of few."""
    name, _, arguments = call.replace('"', "").partition("(")
    return CONSTANT.fullmatch(name) is not None and not arguments.startswith("DISTINCT")
