"""33 GROUP BY statements ask exactly what the 4,151 statements of the census file ask."""

from __future__ import annotations

import importlib.util
import itertools
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from dpsql.algebra.operator import Operator
from dpsql.catalog.read import read_catalog
from dpsql.sql.bind import no_public_rows
from dpsql.sql.compose import compile_statement
from dpsql.sql.products import Compiler
from dpsql.sql.text.lexemes import Fragment, split_statements
from dpsql.sql.text.parse import parse
from dpsql.workload.term import Term
from tests.support.effort import one_in

pytestmark = pytest.mark.slow

DEMO = Path(__file__).parents[2] / "demo_data"
SIZES = {"sex": 2, "hispanic": 2, "race": 64, "age": 115}


def fragments(name: str) -> list[Fragment]:
    """The statements of a file."""
    return list(split_statements((DEMO / name).read_text(encoding="utf-8")))


def terms(statements: list[Fragment]) -> Iterator[Term]:
    """The products of statements: one each."""
    compiler = Compiler(read_catalog(DEMO / "census.toml"))
    for fragment in statements:
        (select,) = compile_statement(parse(fragment), compiler, no_public_rows).selects
        (answer,) = select.answers
        (term,) = answer.terms
        yield term


def queries(products: Iterator[Term]) -> Counter[tuple[bytes, ...]]:
    """Every query as one row per column, with how often it is asked."""
    found: Counter[tuple[bytes, ...]] = Counter()
    whole = {name: [bytes([1] * size)] for name, size in SIZES.items()}
    for term in products:
        known = {name: rows_of(factor) for name, factor in term.factors.items()}
        found.update(itertools.product(*(known.get(name, whole[name]) for name in SIZES)))
    return found


def rows_of(factor: Operator) -> list[bytes]:
    return [row.tobytes() for row in factor.dense().astype(np.int8)]


def test_the_compact_file_is_the_same_workload_in_33_products() -> None:
    compact = list(terms(fragments("census_sf1_compact.sql")))
    assert len(compact) == 33
    asked = queries(iter(compact))
    assert asked.total() == 4151
    every = fragments("census_sf1.sql")
    assert len(every) == 4151
    share = one_in(8)
    found = queries(terms(every[::share]))
    assert found <= asked
    assert len(every) == found.total() or share > 1


def test_the_compact_file_is_up_to_date() -> None:
    spec = importlib.util.spec_from_file_location("compact", DEMO / "make_sf1_compact.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    text = (DEMO / "census_sf1.sql").read_text(encoding="utf-8")
    assert (DEMO / "census_sf1_compact.sql").read_text(encoding="utf-8") == module.render(text)
