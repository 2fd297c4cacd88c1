"""Rows of one unit brought together: lookups, pairs, and rows that belong to units by reference.

Guarantee: whether two rows meet, and which ones stay where there are too many, depends on the salt
and on rows of their own unit alone. Numbers of groups are compared for equality and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.catalog.header import joined_column, partner_column
from dpsql.catalog.unit_local import MOST_OF_UNIT, JoinRows, MeetRows, columns_of_test
from dpsql.privacy.vault.data_engine import Counts, Flags
from dpsql.privacy.vault.frame import Frame, Key, Lane, absent, holds
from dpsql.privacy.vault.people import NOBODY, People, together


def join_rows(join: JoinRows, left: Frame, right: Frame, people: People) -> Frame:
    """Return the pairs of rows of one unit that agree in their keys, in the order of the left."""
    (own, other), count = _groups(join.on, left, right, people)
    if join.one:
        partner = np.append(_choose(other, count, right, people), -1)[own]
        rows = np.arange(left.count) if join.outer else np.flatnonzero(partner >= 0)
        partner = partner[rows]
    else:
        rows, partner = _pairs(own, other, count, left, right, join.outer, people)
    kept = left.take(rows)
    lanes, keys = dict(kept.lanes), dict(kept.keys)
    for lane in right.lanes.values():
        column = joined_column(join, lane.column)
        lanes[column.name.casefold()] = _beside(lane, column, partner)
    if join.outer:
        found = (partner >= 0).astype(np.uint8)
        lanes[join.partner_of.casefold()] = Lane(partner_column(join), found)
    for name, key in right.keys.items():
        keys[f"{join.name.casefold()}.{name}"] = _key_beside(key, partner)
    return Frame(kept.units, lanes, keys)


def meet_rows(meet: MeetRows, left: Frame, right: Frame, people: People) -> Frame:
    """Return all rows on the left with a column that says whether a row on the right meets them.

    Of a unit with more than MOST_OF_UNIT pairs those are looked at that a join would make.
    """
    (own, other), count = _groups(meet.on, left, right, people)
    rows, partner = _pairs(own, other, count, left, right, False, people)
    wanted = columns_of_test(meet.where)
    lanes = {name: lane.take(rows) for name, lane in left.lanes.items() if name in wanted}
    for name, lane in right.lanes.items():
        beside = f"{meet.name.casefold()}.{name}"
        if beside in wanted:
            lanes[beside] = lane.take(partner)
    found = np.zeros(left.count, dtype=np.uint8)
    found[rows[holds(meet.where, Frame(left.units[rows], lanes, {}))]] = 1
    column = Lane(partner_column(meet), found)
    return Frame(left.units, {**left.lanes, meet.partner_of.casefold(): column}, left.keys)


def _beside(lane: Lane, column: Column, partner: Counts) -> Lane:
    """Return a lane of the right beside rows of the left; -1 is no partner."""
    lone = partner < 0
    taken = (
        absent(lane.column, len(partner)) if lone.all() else lane.take(np.where(lone, 0, partner))
    )
    if not lone.any() and column.null == lane.column.null:
        return Lane(column, taken.codes, taken.places, taken.numbers)
    return taken.nullable(column, lone)


def _key_beside(key: Key, partner: Counts) -> Key:
    numbers, known = np.append(key[0], 0), np.append(key[1], False)
    return numbers[partner], known[partner]


def _groups(
    on: Sequence[tuple[str, str]], left: Frame, right: Frame, people: People
) -> tuple[list[Counts], int]:
    """Number the rows of both sides by unit and keys; -1 where a key is missing.

    Where no two rows on the right have the same keys, those on the left that meet one of another
    unit have -1, too.
    """
    if not on:
        return [left.units, right.units], people.count
    keys = [left.keys[one] for one, _ in on], [right.keys[other] for _, other in on]
    (own, other), count = together(*keys)
    only = only_rows(other, count)
    if only is not None:  # as with units, in a third of the time
        units = np.append(right.units, NOBODY)[only[own]]
        return [np.where(units == left.units, own, -1), other], count
    sides = [
        [(side.units, np.ones(side.count, dtype=np.bool_)), *found]
        for side, found in zip((left, right), keys, strict=True)
    ]
    return together(*sides)


def only_rows(groups: Counts, count: int) -> Counts | None:
    """Return the row of every group, -1 without one and at the end; None where one has several.

    Rows of group -1 are in none.

    >>> only_rows(np.array([2, -1, 0]), 3).tolist()
    [2, -1, 0, -1]
    """
    rows = np.arange(len(groups))
    found = np.full(count + 1, -1)
    found[groups] = rows
    is_single = bool(((found[groups] == rows) | (groups < 0)).all())
    found[-1] = -1
    return found if is_single else None


def _choose(groups: Counts, count: int, rows: Frame, people: People) -> Counts:
    """Return one row for every group, drawn by lot where there are several; -1 without any."""
    only = only_rows(groups, count)
    if only is not None:
        return only[:-1]
    found = np.full(count, -1)
    known = np.flatnonzero(groups >= 0)
    found[groups[known]] = known
    times = np.bincount(groups[known], minlength=count)
    crowd = known[times[groups[known]] > 1]
    if len(crowd):
        order = people.line_up(rows, crowd, groups[crowd])
        first = order[np.diff(groups[order], prepend=-1) != 0]
        found[groups[first]] = first
    return found


def _pairs(
    own: Counts,
    other: Counts,
    count: int,
    left: Frame,
    right: Frame,
    outer: bool,
    people: People,
) -> tuple[Counts, Counts]:
    """Return the rows on the left, each once for every partner, and the partners; -1 for none.

    A unit keeps MOST_OF_UNIT pairs, drawn by lot.
    """
    known = np.flatnonzero(other >= 0)
    times = np.append(np.bincount(other[known], minlength=count), 0)
    fan = np.maximum(times[own], 1) if outer else times[own]
    totals = np.zeros(people.count, dtype=np.int64)
    np.add.at(totals, left.units, fan)
    crowded = totals > MOST_OF_UNIT
    queue = _line_up_crowded(known, other, right, crowded, people)
    rows = _line_up_crowded(np.arange(left.count), left.units, left, crowded, people)
    fan = cut_short(fan[rows], left.units[rows], MOST_OF_UNIT)
    starts = np.append(np.cumsum(times) - times, 0)
    turn = np.arange(int(fan.sum())) - np.repeat(np.cumsum(fan) - fan, fan)
    rows = np.repeat(rows, fan)
    place = starts[own[rows]] + turn
    lone = times[own[rows]] == 0
    partner = np.append(queue, -1)[np.where(lone, -1, place)]
    order = np.argsort(rows, kind="stable")
    return rows[order], partner[order]


def _line_up_crowded(
    rows: Counts, groups: Counts, frame: Frame, crowded: Flags, people: People
) -> Counts:
    """Return rows sorted by group; those of crowded units in an order that is drawn by lot."""
    is_crowd = crowded[frame.units[rows]]
    if is_crowd.any():
        crowd = rows[is_crowd]
        rows = np.concatenate([people.line_up(frame, crowd, groups[crowd]), rows[~is_crowd]])
    return rows[np.argsort(groups[rows], kind="stable")]


def cut_short(amounts: Counts, units: Counts, most: int) -> Counts:
    """Return amounts, lessened so that no unit has more than ``most``: its first ones stay.

    Rows are sorted by unit.

    >>> cut_short(np.array([2, 2, 2, 9]), np.array([0, 0, 0, 4]), 3).tolist()
    [2, 1, 0, 3]
    """
    before = np.cumsum(amounts) - amounts
    is_first = np.diff(units, prepend=-1) != 0
    before -= np.maximum.accumulate(np.where(is_first, before, 0))
    return np.asarray(np.clip(most - before, 0, amounts))


def label(rows: Frame, own: Sequence[Key], owners: Frame, their: Sequence[Key]) -> Frame:
    """Return rows once for every unit with a row that they refer to, with that unit.

    A unit has MOST_OF_UNIT of them, those of its first keys by a fixed order of keys.

    Guarantee: which rows a unit has depends on its own ``owners`` rows and on the rows that refer
    to them.
    """
    (groups, theirs), count = together(list(own), list(their))
    only = only_rows(theirs, count)
    if only is not None:
        units = np.append(owners.units, NOBODY)[only[groups]]
        owned = units != NOBODY
        of_units = units if owned.all() else units[owned]
        if int(np.bincount(of_units).max(initial=0)) <= MOST_OF_UNIT:
            found = rows if owned.all() else rows.take(np.flatnonzero(owned))
            return Frame(of_units, found.lanes, found.keys)
    first = known = np.flatnonzero(theirs >= 0)
    if only is None:
        pairs = owners.units[known] * count + theirs[known]
        first = known[np.sort(np.unique(pairs, return_index=True)[1])]
    referring = np.flatnonzero(groups >= 0)
    times = np.bincount(groups[referring], minlength=count)
    totals = np.bincount(owners.units[first], weights=times[theirs[first]])
    is_crowded = bool((totals > MOST_OF_UNIT).any())
    if is_crowded:  # only then it matters which keys, and which rows of a key, come first
        names = np.bitwise_xor.reduce([numbers for numbers, _ in their])
        first = first[np.lexsort((theirs[first], _mixed(names[first]), owners.units[first]))]
        referring = referring[np.lexsort(rows.content(referring))]
    units, keys = owners.units[first], theirs[first]
    fan = cut_short(times[keys], units, MOST_OF_UNIT) if is_crowded else times[keys]
    queue = referring[np.argsort(groups[referring], kind="stable")]
    starts = np.cumsum(times) - times
    turn = np.arange(int(fan.sum())) - np.repeat(np.cumsum(fan) - fan, fan)
    found = rows.take(queue[np.repeat(starts[keys], fan) + turn])
    return Frame(np.repeat(units, fan), found.lanes, found.keys)


def _mixed(numbers: Counts) -> Counts:
    """Return numbers in an order of no meaning: a bijection of 64 bits."""
    x = numbers.view(np.uint64).copy()
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return (x ^ (x >> np.uint64(31))).view(np.int64)
