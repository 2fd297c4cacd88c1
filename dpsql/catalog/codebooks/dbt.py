"""Properties of dbt, ``schema.yml``: types, tests and constraints of columns of models and sources.

Of tests are known those of dbt itself, of dbt_utils and of dbt_expectations.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from dpsql.catalog.codebook import BookColumn
from dpsql.catalog.codebooks.ddl import PermittedValues, checked, narrowed, read_sql_type
from dpsql.catalog.codebooks.values import as_json, items, read_values, section, text
from dpsql.records import replace

NAME = "schema.yml of dbt"
SYNTAX = "tree"
KINDS = ("models", "seeds", "snapshots", "sources")
LISTS = {"accepted_values": "values", "expect_column_values_to_be_in_set": "value_set"}
RANGES = ("accepted_range", "expect_column_values_to_be_between")
NOT_NULL = ("not_null", "expect_column_values_to_not_be_null")


def read(parsed: Any) -> Iterator[tuple[str, str, BookColumn]]:
    """Yield the columns of models, seeds, snapshots and tables of sources."""
    for kind in KINDS:
        for each in items(section(parsed).get(kind)):
            for table in items(each.get("tables")) if kind == "sources" else [each]:
                for column in items(table.get("columns")):
                    found = _column(column)
                    if found is not None and isinstance(column.get("name"), str):
                        yield text(table.get("name")), column["name"], found


def _column(said: Mapping[str, Any]) -> BookColumn | None:
    facts, null = _facts(said)
    found = read_sql_type(text(said.get("data_type")))
    if found is None and said.get("data_type") is None and facts.values:
        kind = {str: "text", int: "integer", bool: "boolean"}.get(type(facts.values[0]))
        found = None if kind is None else BookColumn(kind)
    if found is None:
        return None
    return replace(narrowed(found, facts), null=null, note=text(said.get("description")))


def _facts(said: Mapping[str, Any]) -> tuple[PermittedValues, bool]:
    """The values that tests and constraints permit, and if they say so of NULL."""
    found, name = PermittedValues(), text(said.get("name")).casefold()
    is_known = False
    for named, given in (*_tests(said.get("tests")), *_tests(said.get("data_tests"))):
        test = named.rpartition(".")[2]
        is_known |= test in NOT_NULL
        if test in LISTS:
            values = tuple(v for v in read_values(given.get(LISTS[test])) if v is not None)
            if given.get("quote") is False or test != "accepted_values":
                values = tuple(_number(v) for v in values)
            found = found.both(PermittedValues(values or None))
        if test in RANGES:
            least, most = as_json(given.get("min_value")), as_json(given.get("max_value"))
            is_open = given.get("inclusive") is False or given.get("strictly") is True
            ends = ("above", "below") if is_open else ("least", "most")
            found = found.both(PermittedValues(**dict(zip(ends, (least, most), strict=True))))
    for each in items(said.get("constraints")):
        is_known |= each.get("type") in ("not_null", "primary_key")
        if each.get("type") == "check":
            found = found.both(checked(text(each.get("expression"))).get(name, PermittedValues()))
    return found, not is_known


def _tests(given: Any) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Tests by their names, with what they are given; conditional ones say nothing of all rows."""
    for each in given if isinstance(given, list) else []:
        if isinstance(each, str):
            yield each, {}
        for test, facts in section(each).items():
            said = section(facts)
            said = {**said, **section(said.get("arguments"))}
            if not said.get("where") and not section(said.get("config")).get("where"):
                yield str(test), said


def _number(value: Any) -> Any:
    is_whole = isinstance(value, str) and value.removeprefix("-").isdigit()
    return int(value) if is_whole else value
