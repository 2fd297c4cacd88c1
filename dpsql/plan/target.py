"""Targets: the answers about one table that are measured together, as read off its cells.

All statements that are answered together see the same rows of a table: those with declared values
in the columns that any of them mentions.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.algebra.blocks import Total
from dpsql.algebra.operator import Operator
from dpsql.catalog import Table
from dpsql.plan.baselines import plain_sensitivity
from dpsql.records import cached_property, dataclass
from dpsql.relation.lineage import named, origins_of, released_of
from dpsql.relation.row_view import RowView, left_out, view_of
from dpsql.relation.unit_local import DerivedTable
from dpsql.strategy.base import Forecast
from dpsql.strategy.noise_law import Noise
from dpsql.workload.cells import Cells, Nodes, resolution_bytes
from dpsql.workload.facets import is_splittable, split
from dpsql.workload.layout import Layout, Place, WeightedAnswer, lay_out_together, make_layout
from dpsql.workload.term import Term
from dpsql.workload.workload import Product

if TYPE_CHECKING:
    from dpsql.sql.compiled import Compiled

MANY_TERMS = 8
"""Terms of an answer above which joint attributes, where they fit, are not compared with others."""

Reading: TypeAlias = "tuple[tuple[float, Product], ...]"
"""An answer as a weighted sum of products over the cells of a part."""

Readings: TypeAlias = "Mapping[Place, tuple[int, Reading, tuple[str, ...]]]"
"""Every answer: the part it is read off, how, and the order of the columns in its rows."""

Views: TypeAlias = "Mapping[str, RowView]"
"""By case-folded name of a private table, its rows that count."""


@dataclass(frozen=True)
class Target:
    """The answers that one part of a plan is about: all about a table, or the same units.

    ``view`` are the rows that count; None for those with declared values in all columns.
    ``limits`` are the largest mean variances of answers, at a unit budget for one row, where plain
    noise does not say; ``alone`` what answers that are known by themselves come to with a unit
    budget, and which part of it keeps their limits.
    """

    table: Table
    asked: Mapping[Place, WeightedAnswer]
    units: bool = False
    view: RowView | None = None
    limits: Mapping[Place, float] | None = None
    alone: Mapping[frozenset[Place], tuple[float, float]] | None = None

    @cached_property
    def layouts(self) -> tuple[Layout, ...]:
        """The workload on single columns and, if columns are coupled, with joint attributes.

        Raises: ProgrammingError (E_TOO_LARGE).
        """
        if self.units:
            from dpsql.workload.unions import lay_out_units  # few count units

            return (lay_out_units(self.table, self.asked),)
        apart = self.apart
        if all(len(products) == 1 for products in apart.products.values()):
            return (apart,)
        joint = self._lay_out(joint=True)
        if joint.workload.domain == apart.workload.domain:
            return (apart,)
        most = max(len(products) for products in apart.products.values())
        return (joint,) if most > MANY_TERMS else (apart, joint)

    @cached_property
    def apart(self) -> Layout:
        """The workload of counts and sums of rows with an attribute of its own per column."""
        return self._lay_out(joint=False)

    def _lay_out(self, *, joint: bool) -> Layout:
        """A layout with the facets of its columns; cells that no answer counts are kept for those.

        Facets of dropped cells could not be summed over.
        """
        own = partial(make_layout, self.table, self.asked, joint=joint)
        layout = own()
        if is_splittable(layout, layout.workload.pinned):
            whole = own(drop=False)
            found = split(whole)
            return layout if found is whole else found
        return split(layout)

    @property
    def is_joinable(self) -> bool:
        """True if there is more than one column to make one attribute of."""
        return len(self.counted_by) > 1

    @cached_property
    def together(self) -> Layout | None:
        """The workload on one attribute of all columns, None where it is too large or the same."""
        if not self.is_joinable:
            return None
        found = lay_out_together(self.table, self.asked)
        same = found is not None and any(
            found.workload.domain == each.workload.domain for each in self.layouts
        )
        return None if same else found

    def plain(self, noise: Noise) -> float:
        """The largest column norm of all answers, weighted: what plain noise on each costs."""
        if noise not in self._plain:
            together = [] if self.together is None else [self.together]
            self._plain[noise], _ = plain_sensitivity([*self.layouts, *together], noise)
        return self._plain[noise]

    @cached_property
    def _plain(self) -> dict[Noise, float]:
        return {}

    @property
    def occupied(self) -> bool:
        """True if cells and unions that have a row are counted, not units."""
        return any(each.distinct is not None for each in self.asked.values())

    @cached_property
    def rows_per_unit(self) -> int:
        """The rows that one privacy unit can contribute."""
        return self.table.unit.max_rows

    @cached_property
    def planned(self) -> tuple[tuple[Layout, frozenset[str]], ...]:
        """Every layout that a plan may be on, and its attributes by which rows differ."""
        found = list(self.layouts)
        if not self.units:
            others = [each for each in (self.apart, self.together) if each is not None]
            found += [each for each in others if not any(each is known for known in found)]
        return tuple((each, _telling(each)) for each in found)

    @cached_property
    def columns(self) -> frozenset[str]:
        """The columns by which rows differ: what answers this has cells or nodes of all of them."""
        layout = self.layouts[0] if self.units else self.apart
        names = _telling(layout)
        return frozenset(c for name in names for c in layout.resolutions[name].columns)

    @cached_property
    def mentioned(self) -> frozenset[str]:
        """The columns that may narrow down what is counted."""
        return self.columns | self.counted_by

    @cached_property
    def has_sums(self) -> bool:
        """True if some term adds up values."""
        return any(term.polynomials for asked in self.asked.values() for term in asked.terms)

    @cached_property
    def has_nodes(self) -> bool:
        """True if values of measures, bins or ranges are added up."""
        return not self.units and any(
            isinstance(each, Nodes) for each in self.apart.resolutions.values()
        )

    @cached_property
    def counted_by(self) -> frozenset[str]:
        """The columns that are not summed over in some term."""
        terms = [term for asked in self.asked.values() for term in asked.terms]
        pairs = [pair for term in terms for pair in term.factors.items()]
        return frozenset(name for name, factor in pairs if not isinstance(factor, Total))

    @cached_property
    def known(self) -> dict[tuple[object, ...], Operator | None]:
        """Factors that were mapped onto cells of releases, None where that cannot be."""
        return {}

    @cached_property
    def seen(self) -> tuple[str, ...]:
        """The columns that leave out rows, where all declared ones do as well."""
        return view_of(self.table, None if self.view is None else self.view.columns)

    def fingerprint(self) -> str:
        """A digest of what is asked."""
        layout = self.layouts[0]
        digest = hashlib.sha256()
        view = None if self.view is None else self.view.facts
        digest.update(repr((self.table.name, self.units, view)).encode())
        digest.update(b"occupied" if self.occupied else b"")
        digest.update(layout.workload.fingerprint().encode())
        for content in resolution_bytes(layout.resolutions):
            digest.update(content)
        for place, reading in layout.products.items():
            if len(reading) > 1 or reading[0][0] != 1:
                terms = [(scale, p.weight, _keys(p)) for scale, p in reading]
                digest.update(repr((place, terms)).encode())
        return digest.hexdigest()


def _telling(layout: Layout) -> frozenset[str]:
    """The attributes of a layout, but those of one cell that all rows are in."""
    sizes = layout.workload.domain
    pairs = layout.resolutions.items()
    return frozenset(
        name
        for name, each in pairs
        if sizes[name] > 1 or not isinstance(each, Cells) or each.leaves_out
    )


def _keys(product: Product) -> list[tuple[str, str]]:
    return [
        (name, hashlib.sha256(repr(factor.key).encode()).hexdigest())
        for name, factor in product.factors.items()
    ]


def find_targets(statements: Sequence[Compiled], views: Views) -> tuple[Target, ...]:
    """Collect the answers that have to be measured, table by table, in these views of them.

    Counts of privacy units and of different values are measured one by one, since they do not add
    up; the same ones once.
    """
    rows: dict[str, tuple[Table, dict[Place, WeightedAnswer]]] = {}
    units: dict[object, tuple[Table, dict[Place, WeightedAnswer]]] = {}
    for i, statement in enumerate(statements):
        for j, (select, answer) in enumerate(statement.answers()):
            terms = answer.terms
            if select.table.synthetic or not terms:
                continue
            largest = max(term.largest for term in terms)
            sums = any(term.polynomials or term.largest != 1 for term in terms)
            if answer.distinct is not None:
                largest = max(map(abs, answer.distinct[1]), default=1.0)
                sums = largest != 1
            weight = statement.weight * select.query.aggregates[answer.aggregate].part
            weight /= largest if sums and largest else 1.0
            asked = WeightedAnswer(terms, weight, answer.distinct)
            if answer.units:
                key = (select.query.table, answer.distinct, *map(_content, terms))
                units.setdefault(key, (select.table, {}))[1][i, j] = asked
            else:
                rows.setdefault(select.query.table, (select.table, {}))[1][i, j] = asked
    found = [Target(table, asked, False, views[key]) for key, (table, asked) in rows.items()]
    counted = units.values()
    return (*found, *(Target(t, asked, True, views[t.name.casefold()]) for t, asked in counted))


def _content(term: Term) -> tuple[object, ...]:
    """Identity of a term: its scale and factors, without the order in which it is arranged."""
    return (term.scale, *((name, factor.key) for name, factor in term.factors.items()))


def fingerprint_learned(statements: Sequence[Compiled]) -> str:
    """A digest of what is asked of a model, conditions over several columns in one piece."""
    views = sorted((key, view.facts) for key, view in find_views(statements).items())
    digest = hashlib.sha256(repr(views).encode())
    for i, statement in enumerate(statements):
        for j, (select, answer) in enumerate(statement.answers()):
            if answer.whole and not select.table.synthetic:
                counted = answer.distinct or answer.units
                digest.update(repr((i, j, select.query.table, counted)).encode())
            for term in () if select.table.synthetic else answer.whole:
                factors = [(name, factor.key) for name, factor in term.factors.items()]
                pattern = None if term.pattern is None else term.pattern.key
                digest.update(repr((factors, term.polynomials, term.scale, pattern)).encode())
    return digest.hexdigest()


def reading_variance(forecast: Forecast, reading: Reading) -> NDArray[np.float64]:
    """The variance of every row of an answer, covariances of its terms included.

    Terms may cancel, and leave a variance of zero as -1e-14: it is taken for zero.
    """
    if len(reading) == 1:
        ((scale, product),) = reading
        return scale * scale * forecast.variance(product)
    return np.maximum(reading_covariance(forecast, reading, reading), 0.0)


def reading_covariance(forecast: Forecast, left: Reading, right: Reading) -> NDArray[np.float64]:
    """The covariance of paired rows of two answers.

    Args:
        left, right: factors and products of each answer; row r of one goes with row r of the other.
    """
    total: Any = 0.0
    for i, (s, one) in enumerate(left):
        for j, (t, two) in enumerate(right):
            if left is right and j < i:
                continue
            twice = 2 if left is right and j > i else 1
            total = total + twice * s * t * forecast.covariance(one, two)
    return np.asarray(total)


def reading_beside(forecast: Forecast, reading: Reading) -> NDArray[np.float64]:
    """``Forecast.beside`` of every row of an answer, shape (rows, numbers)."""
    found: Any = sum(scale * forecast.beside(product) for scale, product in reading)
    return np.asarray(found)


def reading_variances(forecast: Forecast, readings: Sequence[Reading]) -> list[NDArray[np.float64]]:
    """``reading_variance`` of many answers; those of one product are handled together."""
    out: list[NDArray[np.float64]] = [np.empty(0)] * len(readings)
    single = [k for k, reading in enumerate(readings) if len(reading) == 1]
    found = forecast.variances([readings[k][0][1] for k in single])
    for k, variance in zip(single, found, strict=True):
        scale = readings[k][0][0]
        out[k] = variance if scale == 1 else scale * scale * variance
    for k, reading in enumerate(readings):
        if len(reading) > 1:
            out[k] = reading_variance(forecast, reading)
    return out


def mean_variances(forecast: Forecast, readings: Mapping[Place, Reading]) -> dict[Place, float]:
    """The mean variance of the rows of every answer; many rows are not formed."""
    out: dict[Place, float] = {}
    single = [p for p, reading in readings.items() if len(reading) == 1 == reading[0][1].rows]
    found = forecast.variances([readings[place][0][1] for place in single]) if single else []
    for place, variance in zip(single, found, strict=True):
        out[place] = readings[place][0][0] ** 2 * float(variance[0])
    summed = [p for p, reading in readings.items() if p not in out and len(reading) == 1]
    totals = dict(
        zip(summed, forecast.totals(readings[place][0][1] for place in summed), strict=True)
    )
    for place, reading in readings.items():
        if place in totals:
            ((scale, product),) = reading
            out[place] = scale**2 * totals[place] / product.rows
        elif place not in out:
            out[place] = float(reading_variance(forecast, reading).mean())
    return out


def find_views(statements: Sequence[Compiled]) -> Views:
    """The view of every private table that statements which are answered together ask about.

    Where privacy units may have several rows, a row that no term counts takes nobody's place.
    """
    tables = {
        select.query.table: select.table
        for item in statements
        for select in item.selects
        if not select.table.synthetic
    }
    mentioned: dict[str, set[str]] = {key: set() for key in tables}
    for item in statements:
        for select in item.selects:
            if not select.table.synthetic:
                mentioned[select.query.table] |= select.query.mentioned
    terms: dict[str, list[Term]] = {key: [] for key in tables}
    for item in statements:
        for select, answer in item.answers():
            if select.query.table in terms and select.table.unit.column is not None:
                terms[select.query.table] += answer.whole
    return {
        key: RowView.of(view_of(table, mentioned[key]), hull_of(terms[key]))
        for key, table in tables.items()
    }


def hull_of(terms: Sequence[Term]) -> dict[str, NDArray[np.bool_]]:
    """The cells, column by column, of all rows that any of some terms counts.

    A mask has shape (cells of the column,); a column of which some term counts all has none.

    >>> from dpsql.algebra.blocks import Dense
    >>> ages = [Term({"age": Dense(np.array([row]))}) for row in ([1, 0, 0], [0, 2, 0])]
    >>> hull_of(ages), hull_of([*ages, Term({})])
    ({'age': array([ True,  True, False])}, {})
    """
    found: dict[str, NDArray[np.bool_]] | None = None
    known: dict[int, NDArray[np.bool_]] = {}
    for term in terms:
        found = _grown(found, term, known)
        if not found:
            break
    return found or {}


def _grown(
    found: dict[str, NDArray[np.bool_]] | None, term: Term, known: dict[int, NDArray[np.bool_]]
) -> dict[str, NDArray[np.bool_]]:
    """The hull of some terms and of one more; ``known`` are cells of factors, by their ids."""
    names = term.factors.keys() | (set() if term.pattern is None else term.pattern.labels.keys())
    out = {}
    for name in names if found is None else names & found.keys():
        mask = _counted(term, name, known)
        if found is not None:
            mask = mask | found[name]
        if not mask.all():
            out[name] = mask
    return out


def _counted(term: Term, name: str, known: dict[int, NDArray[np.bool_]]) -> NDArray[np.bool_]:
    """The cells of a column that a term counts, (cells,)."""
    factor, pattern = term.factors.get(name), term.pattern
    found = []
    if factor is not None:
        if id(factor) not in known:
            known[id(factor)] = np.asarray(factor.column_l1() != 0)
        found.append(known[id(factor)])
    if pattern is not None and name in pattern.labels:
        axis = list(pattern.labels).index(name)
        others = tuple(i for i in range(pattern.truth.ndim) if i != axis)
        found.append(np.asarray(pattern.truth.any(axis=others))[pattern.labels[name]])
    return np.asarray(np.logical_and.reduce(found), dtype=np.bool_)


def find_released(statements: Sequence[Compiled]) -> tuple[str, ...]:
    """The domains and bounds of mentioned columns that had to be found, each with its release.

    Those that decide on the rows of a derived table are mentioned by every statement about it.
    """
    found: set[str] = set()
    for select in (select for item in statements for select in item.selects):
        table = select.table
        if not table.synthetic:
            tables = named(table.bases if isinstance(table, DerivedTable) else (table,))
            found.update(released_of(origins_of(table, select.query.mentioned), tables))
    return tuple(sorted(found))


def notes_of(item: Compiled, views: Views, read: Views | None = None) -> tuple[str, ...]:
    """Return sentences on what views leave out of the tables of a statement.

    Args:
        views: the rows of each table that count, by name.
        read: the same of the release that answers it, where that is an earlier one.
    """
    found: dict[str | None, None] = {}
    for select in item.selects:
        key = select.query.table
        if key in views:
            cells = views[key].cells if read is None or key not in read else read[key].cells
            seen = RowView(views[key].columns, cells)
            found[left_out(select.table, seen)] = None
            found[seen.chosen_before(views[key], select.table)] = None
    return tuple(note for note in found if note is not None)


def view_rows(
    statements: Sequence[Compiled], read: Views | None = None
) -> tuple[tuple[str, str], ...]:
    """Notes of a forecast: rows that are left out, and answers that the domains decide."""
    views = find_views(statements)
    standing = dict.fromkeys(note for item in statements for note in notes_of(item, views, read))
    decided = dict.fromkeys(note for item in statements for note in item.decided)
    return (
        *(("left out", note) for note in standing),
        *(("declared", note) for note in decided),
    )
