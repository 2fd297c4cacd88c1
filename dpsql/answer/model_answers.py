"""Answers and rows of a model instead of an estimate: biased, consistent, free."""

from __future__ import annotations

import csv
import datetime as dt
import io
import itertools
import math
from collections.abc import Iterable, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import simplify
from dpsql.algebra.operator import Floats, Operator
from dpsql.catalog import Column, Table
from dpsql.catalog.domain import Bins, Periods, Spans
from dpsql.errors import NotSupportedError, OperationalError, ProgrammingError, printable
from dpsql.files import FileTrouble, file_trouble, new_file
from dpsql.pgm.linear import whole_marginal
from dpsql.pgm.measurements import Candidate, Model, Query
from dpsql.pgm.tree import DEFAULT_CAP
from dpsql.sql.compiled import Answer, Select
from dpsql.workload.polynomial import Polynomial
from dpsql.workload.term import Pattern, Term
from dpsql.workload.workload import Product

MOST_GROUPS = 4096
"""Most groups by columns of a pattern; each is a pattern of its own."""


def read_candidates(table: Table, asked: Iterable[tuple[Select, Answer]]) -> list[Query]:
    """The queries of a workload as candidates over the declared cells of a table.

    Sums of values become the counts of the cells they are sums over, where those are few.
    Raises: ProgrammingError (E_WORKLOAD); NotSupportedError (E_AGGREGATE, E_EXPR_IN_AGG).
    """
    found: list[Query] = []
    for select, answer in asked:
        if select.query.table != table.name.casefold():
            raise ProgrammingError(
                "E_WORKLOAD",
                f"the workload asks about {select.table.name}, the table is {table.name}",
                hint=f"SELECT ... FROM {table.name}",
            )
        if answer.units:
            raise NotSupportedError(
                "E_AGGREGATE", "COUNT(DISTINCT ...) cannot be learned", hint="COUNT(*) can"
            )
        if answer.whole:
            found += _candidates_of(table, answer)
    return found


def _candidates_of(table: Table, answer: Answer) -> list[Query]:
    products = [candidate_of(table, term)[0] for term in answer.whole]
    patterns = [term.pattern for term in answer.whole if term.pattern is not None]
    names = {n for p in products for n in p.factors} | {n for p in patterns for n in p.labels}
    are_sums = any(t.polynomials or t.largest > 1 for t in answer.whole)
    if are_sums and math.prod(table.columns[name].size for name in names) <= DEFAULT_CAP:
        # counts are learned with less noise than sums, and determine them
        sizes = {name: each.size for name, each in table.columns.items() if each.size}
        return [whole_marginal(sizes, tuple(names))]
    if patterns and not are_sums:
        return [query for term in answer.whole for query in _patterns_of(table, term)]
    if patterns:
        products = [candidate_of(table, term)[0] for term in answer.terms]
    if len({product.rows for product in products}) == 1:
        return [tuple(products)]
    return [(product,) for product in products]


def _patterns_of(table: Table, term: Term) -> list[Query]:
    """A count under conditions that couple columns, group by group."""
    candidate = candidate_of(table, term)
    if term.pattern is None:
        return [candidate]
    (product,) = candidate
    check_groups(product, term.pattern)
    rows = [np.asarray(factor.dense(), dtype=np.bool_) for factor in product.factors.values()]
    if math.prod(map(len, rows)) > MOST_GROUPS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"{math.prod(map(len, rows)):,} groups under a condition that couples columns",
            hint=f"at most {MOST_GROUPS:,} can be learned: group by fewer columns",
            span=term.pattern.span,
        )
    groups = itertools.product(*rows)
    return [term.pattern.within(dict(zip(product.factors, g, strict=True))) for g in groups]


def candidate_of(table: Table, term: Term) -> Candidate:
    """A term as one product over the cells of the table's columns, its scale included.

    Values within a bin are spread evenly. Raises: NotSupportedError (E_EXPR_IN_AGG).
    """
    factors = dict(term.factors)
    for name, polynomial in term.polynomials.items():
        row = _mean_row(table.columns[name], polynomial)
        known = factors.get(name)
        factors[name] = simplify(row[np.newaxis] if known is None else known.dense() * row)
    if term.scale != 1:
        whole_table = (name for name in table.columns if table.columns[name].size)
        name = next(iter(factors), None) or next(whole_table)
        known = factors.get(name)
        ones = np.ones((1, table.columns[name].size), dtype=np.int64)
        rows = (ones if known is None else known.dense()) * term.scale
        whole = np.rint(rows)
        factors[name] = simplify(whole.astype(np.int64) if (whole == rows).all() else rows)
    ordered: dict[str, Operator] = {n: factors[n] for n in table.columns if n in factors}
    return (Product(ordered),)


def _mean_row(column: Column, polynomial: Polynomial) -> Floats:
    """The mean of a polynomial over every bin."""
    if not isinstance(column.domain, Bins):
        raise NotSupportedError(
            "E_EXPR_IN_AGG",
            f"{column.name} is a measure with bounds: models are of columns with domains",
            hint="declare bins for it in the catalog",
        )
    edges = np.array([float(edge) for edge in column.domain.edges])
    middle, width = (edges[1:] + edges[:-1]) / 2, np.diff(edges)
    a, b, c = map(float, polynomial.coefficients)
    # The mean of v^2 for v uniform in a bin is the square of its middle and its variance.
    means = a + b * middle + c * (middle**2 + width**2 / 12)
    rest = [0.0] * (column.other is not None) + [polynomial.null] * column.null
    return np.concatenate([means, rest])


def answer_from(model: Model, table: Table, answer: Answer) -> Floats:
    """The answers of a model, in counts, flat in column order.

    Raises: ProgrammingError (E_PREDICATE, E_TOO_LARGE) for a condition over many columns that the
    model cannot answer in one piece, and that takes too many products.
    """
    within = getattr(model, "answer_within", None)
    found: list[Floats] = []
    for term in answer.terms if within is None else answer.whole:
        (product,) = candidate = candidate_of(table, term)
        if term.pattern is None:
            found.append(model.answer(candidate))
        elif within is not None:
            check_groups(product, term.pattern)
            found.append(within(product, term.pattern))
    return np.asarray(sum(found[1:], found[0]), dtype=np.float64)


def check_groups(product: Product, pattern: Pattern) -> None:
    """Refuse groups by columns of a pattern that are too many to be taken one by one.

    Raises: ProgrammingError (E_TOO_LARGE).
    """
    groups = math.prod(f.rows for name, f in product.factors.items() if name in pattern.labels)
    if groups > MOST_GROUPS:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"{groups:,} groups by columns that a condition couples with others",
            hint=f"at most {MOST_GROUPS:,}: group by fewer of {', '.join(pattern.labels)}",
            span=pattern.span,
        )


def draw_rows(
    model: Model, table: Table, count: int | None, rng: np.random.Generator
) -> dict[str, list[Any]]:
    """Synthetic rows, column by column: declared values, numbers spread evenly within bins.

    Args:
        count: of the rows; as many as the model has where None.
    """
    k = max(1, round(model.total)) if count is None else count
    cells = model.rows(k, rng)
    return {
        table.columns[name].name: _values(table.columns[name], cells[name], rng)
        for name in table.columns
        if name in cells
    }


def _values(column: Column, cells: NDArray[np.int64], rng: np.random.Generator) -> list[Any]:
    domain, known = column.domain, np.array([*column.cells, None], dtype=object)
    values: list[Any] = known[cells].tolist()
    if isinstance(domain, Bins):
        edges = np.array([float(edge) for edge in domain.edges])
        inside = cells < domain.size
        bins = np.minimum(cells, domain.size - 1)
        numbers = edges[bins] + rng.random(len(cells)) * np.diff(edges)[bins]
        if column.type == "integer":
            numbers = np.floor(numbers)
        drawn = numbers.astype(np.int64) if column.type == "integer" else numbers
        values = [d if i else v for d, i, v in zip(drawn.tolist(), inside, values, strict=True)]
    if isinstance(domain, Periods) and (domain.unit != "day" or isinstance(domain, Spans)):
        of_clock = column.type in ("timestamp", "time")
        tick = dt.timedelta(seconds=1) if of_clock else dt.timedelta(days=1)
        begins = [domain.begin(k) for k in range(domain.count + 1)]
        ticks = [(two - one) // tick for one, two in pairwise(begins)]
        values = [
            v if c >= domain.count else begins[c] + int(rng.random() * ticks[c]) * tick
            for v, c in zip(values, cells.tolist(), strict=True)
        ]
    if column.type == "time":
        values = [v.time() if isinstance(v, dt.datetime) else v for v in values]
    return values


def check_target(path: Path) -> None:
    """Refuse a file that rows cannot be written to.

    Raises: OperationalError (E_OUTPUT).
    """
    if path.suffix.lower() not in (".csv", ".parquet"):
        raise OperationalError(
            "E_OUTPUT",
            f"rows cannot be written to {printable(path.name)!r}",
            hint="INTO 's.csv' or INTO 's.parquet'",
        )
    try:
        taken, there = path.exists(), path.parent.is_dir()
    except (OSError, ValueError):
        taken, there = False, False
    if taken or not there:
        raise _unwritable(path, taken)


def write_rows(columns: Mapping[str, list[Any]], path: Path) -> None:
    """Write rows to a CSV or Parquet file that does not exist yet; nothing is left half written.

    Raises: OperationalError (E_OUTPUT).
    """
    check_target(path)
    write = _write_csv if path.suffix.lower() == ".csv" else _write_parquet
    try:
        with new_file(path) as file:
            write(columns, file)
    except OSError as error:
        taken = isinstance(error, FileExistsError)
        raise _unwritable(path, taken, file_trouble(error)) from None


def _unwritable(path: Path, taken: bool, trouble: FileTrouble | None = None) -> OperationalError:
    why = "exists already" if taken else "cannot be written"
    hint = "choose another name" if taken else "check the folder"
    if trouble is not None and not taken:
        why, hint = f"{why}: {trouble.what}", trouble.hint
    return OperationalError("E_OUTPUT", f"{printable(path.name)} {why}", hint=hint)


def _write_csv(columns: Mapping[str, list[Any]], file: BinaryIO) -> None:
    text = io.TextIOWrapper(file, encoding="utf-8", newline="")
    writer = csv.writer(text)
    writer.writerow(columns)
    writer.writerows(zip(*columns.values(), strict=True))
    text.flush()
    text.detach()


def _write_parquet(columns: Mapping[str, list[Any]], file: BinaryIO) -> None:
    try:
        import pyarrow  # pyarrow is optional
        import pyarrow.parquet
    except ImportError:
        raise OperationalError(
            "E_OUTPUT", "Parquet needs pyarrow", hint="pip install 'dpsql[arrow]', or write x.csv"
        ) from None
    pyarrow.parquet.write_table(pyarrow.table(dict(columns)), file)
