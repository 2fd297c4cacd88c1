"""The rows of a table as arrays of numbers, and what can be added up from them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from dpsql.catalog.catalog import Table
from dpsql.catalog.domain import Bins
from dpsql.plan.cells import TOTAL_BITS, AnyResolution, Cells, Nodes, Steps, Unions, block_unit
from dpsql.privacy.vault.base import Codes, Counts
from dpsql.privacy.vault.cells import Axis, axis_of_cells, axis_of_unions, tally_rows, tally_units
from dpsql.privacy.vault.nodes import (
    Floats,
    axis_of_bins,
    axis_of_measure,
    axis_of_range,
    axis_of_steps,
    find_places,
    fits_steps,
)
from dpsql.privacy.vault.nodes import fits as fits_nodes
from dpsql.privacy.vault.vectorize import find_bins


@dataclass(frozen=True, slots=True)
class Rows:
    """The declared view of a table, row by row.

    ``codes`` has the cell of every column with a domain; ``places`` where a value lies in its
    bin; ``numbers`` the clipped value of every measure, NaN for NULL; ``units`` numbers the
    privacy units, when there is a column of them.
    """

    count: int
    codes: Mapping[str, Codes]
    places: Mapping[str, Codes] = field(default_factory=dict)
    numbers: Mapping[str, Floats] = field(default_factory=dict)
    units: Codes | None = None


def read_rows(table: Table, arrays: Mapping[str, Any]) -> Rows:
    """Return the rows of the arrays c0, c1, ... (cells), q0, q1, ... (measures) and u (units).

    The cell of a binned column is still its value.
    """
    codes: dict[str, Codes] = {}
    places: dict[str, Codes] = {}
    for i, key in enumerate(k for k, each in table.columns.items() if each.domain is not None):
        found, domain = arrays[f"c{i}"], table.columns[key].domain
        if isinstance(domain, Bins):
            edges = tuple(map(float, domain.edges))
            codes[key] = find_bins(found, edges[:-1])
            places[key] = find_places(found, codes[key], edges)
        else:
            codes[key] = found
    measures = [key for key, each in table.columns.items() if each.bounds is not None]
    numbers = {key: arrays[f"q{i}"] for i, key in enumerate(measures)}
    count = len(next(iter(arrays.values())))
    return Rows(count, codes, places, numbers, arrays.get("u"))


def fits(resolutions: Sequence[AnyResolution], table: Table, units: bool) -> bool:
    """Say whether a table can be tallied in this way: public facts only."""
    if any(
        not isinstance(each, Cells | Unions) if units else isinstance(each, Unions)
        for each in resolutions
    ):
        return False
    if block_unit(resolutions) > 1 << TOTAL_BITS:
        return False
    return all(_fits(each, table) for each in resolutions)


def _fits(resolution: AnyResolution, table: Table) -> bool:
    if isinstance(resolution, Unions):
        members, cells = resolution.members, resolution.cells
        shape = len(members), cells.size
        return members.dtype == np.bool_ and members.shape == shape and _fits(cells, table)
    keys = [name.casefold() for name in resolution.columns]
    if not keys or not set(keys) <= table.columns.keys():
        return False
    columns = [table.columns[key] for key in keys]
    if isinstance(resolution, Nodes):
        return fits_nodes(resolution, columns[0])
    if isinstance(resolution, Steps):
        return fits_steps(resolution, columns[0])
    if [len(each) for each in resolution.classes] != [column.size for column in columns]:
        return False
    if resolution.labels is None:
        return len(columns) == 1 and columns[0].domain is not None
    needed = tuple(int(each.max(initial=-1)) + 1 for each in resolution.classes)
    return all(column.size for column in columns) and resolution.labels.shape == needed


def tally(rows: Rows, table: Table, resolutions: Sequence[AnyResolution], units: bool) -> Counts:
    """Add up what all rows add to every cell; see :class:`dpsql.privacy.vault.base.Vault`."""
    shape = tuple(each.size for each in resolutions)
    axes = [_axis(rows, table, each) for each in resolutions]
    if units and rows.units is not None:
        return tally_units(axes, shape, rows.units)
    return tally_rows(axes, shape, rows.count)


def _axis(rows: Rows, table: Table, resolution: AnyResolution) -> Axis:
    keys = [name.casefold() for name in resolution.columns]
    if isinstance(resolution, Cells):
        return axis_of_cells([rows.codes[key] for key in keys], resolution)
    if isinstance(resolution, Unions):
        return axis_of_unions([rows.codes[key] for key in keys], resolution)
    (key,), column = keys, table.columns[keys[0]]
    if isinstance(resolution, Steps):
        return axis_of_steps(rows.numbers[key], resolution)
    if column.domain is None:
        return axis_of_measure(rows.numbers[key], resolution, column)
    if isinstance(column.domain, Bins):
        return axis_of_bins(rows.codes[key], rows.places[key], resolution)
    return axis_of_range(rows.codes[key], resolution, column.domain.size)
