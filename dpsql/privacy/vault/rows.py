"""The rows of a table as arrays of numbers, and what can be added up from them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from dpsql.catalog.catalog import Table
from dpsql.catalog.domain import Bins
from dpsql.plan.cells import TOTAL_BITS, AnyResolution, Cells, Nodes, Steps, Unions, block_unit
from dpsql.privacy.vault.base import Codes, Counts
from dpsql.privacy.vault.cells import Axis, axis_of_cells, axis_of_unions, tally_rows, tally_units
from dpsql.privacy.vault.encode import OUTSIDE, Flags, Floats
from dpsql.privacy.vault.nodes import (
    axis_of_bins,
    axis_of_measure,
    axis_of_range,
    axis_of_steps,
    find_steps,
    fits_steps,
)
from dpsql.privacy.vault.nodes import fits as fits_nodes
from dpsql.privacy.vault.units import Digest, Owners, Queue, queue_up


@dataclass(frozen=True, slots=True)
class Rows:
    """Every row of a table, those outside the declared view included.

    ``codes`` has the cell of every column with a domain, and ``size`` for "outside"; ``places``
    where a value lies in its bin; ``numbers`` the clipped value of every measure, NaN for NULL and
    infinity for "outside". ``owners`` are the privacy units, when there is a column of them, and
    ``queue`` those of their rows that may be too many.
    """

    count: int
    codes: Mapping[str, Codes]
    places: Mapping[str, Codes] = field(default_factory=dict)
    numbers: Mapping[str, Floats] = field(default_factory=dict)
    owners: Owners | None = None
    queue: Queue | None = None


def line_up(rows: Rows, table: Table, digest: Digest) -> Queue | None:
    """Return the rows of units with more than they may have, in the order in which they stay.

    All that the view shows of a row decides, in declared order: codes, places, clipped values.
    """
    if rows.owners is None:
        return None
    content = [each.astype(np.int64) for each in (*rows.codes.values(), *rows.places.values())]
    content += [find_steps(each, table.columns[key]) for key, each in rows.numbers.items()]
    return queue_up(digest, rows.owners, table.unit.max_rows, content, list(rows.numbers.values()))


def view(rows: Rows, table: Table, columns: Collection[str]) -> Flags:
    """Say which rows belong to the declared view of some columns, by case-folded name.

    They have a declared value in each of these columns and an owner, and every unit keeps at most
    ``max_rows`` of them.
    """
    inside = np.ones(rows.count, dtype=bool) if rows.owners is None else rows.owners.owned.copy()
    for key in columns:
        if key in rows.codes:
            inside &= rows.codes[key] != table.columns[key].size
        if key in rows.numbers:
            inside &= rows.numbers[key] != OUTSIDE
    return inside if rows.queue is None else rows.queue.bound(inside)


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


def tally(
    rows: Rows, kept: Flags, table: Table, resolutions: Sequence[AnyResolution], units: bool
) -> Counts:
    """Add up what the rows that are kept add to every cell.

    See :class:`dpsql.privacy.vault.base.Vault`.
    """
    shape = tuple(each.size for each in resolutions)
    axes = [_axis(rows, table, each) for each in resolutions]
    if units and rows.owners is not None:
        return tally_units(axes, shape, kept, rows.owners.units)
    return tally_rows(axes, shape, kept)


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
