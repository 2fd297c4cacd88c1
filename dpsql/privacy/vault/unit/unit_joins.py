"""Rows of one unit brought together: lookups, pairs, and rows that belong to units by reference.

Guarantee: whether two rows meet, and which ones stay where there are too many, depends on the salt
and on rows of their own unit alone. Numbers of groups are compared for equality and nothing else.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.privacy.vault.codes.distinct_integers import find_distinct, in_groups
from dpsql.privacy.vault.data_engine import Counts, Flags
from dpsql.privacy.vault.unit.relation_frame import EncodedColumn, Frame, Key, holds
from dpsql.privacy.vault.unit.shared_units import SharedUnits, together
from dpsql.relation.header import joined_column, partner_column
from dpsql.relation.unit_local import MOST_OF_UNIT, JoinRows, MeetRows, columns_of_test


def join_rows(join: JoinRows, left: Frame, right: Frame, people: SharedUnits) -> Frame:
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
        lanes[column.name.casefold()] = _beside(lane, column, partner, join.outer)
    if join.outer:
        found = (partner >= 0).astype(np.uint8)
        lanes[join.partner_of.casefold()] = EncodedColumn(partner_column(join), found)
    for name, key in right.keys.items():
        keys[f"{join.name.casefold()}.{name}"] = _key_beside(key, partner)
    return Frame(kept.units, lanes, keys)


def meet_rows(meet: MeetRows, left: Frame, right: Frame, people: SharedUnits) -> Frame:
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
    column = EncodedColumn(partner_column(meet), found)
    return Frame(left.units, {**left.lanes, meet.partner_of.casefold(): column}, left.keys)


def _beside(lane: EncodedColumn, column: Column, partner: Counts, outer: bool) -> EncodedColumn:
    """Return a lane of the right beside rows of the left; -1 is no partner, of outer joins."""
    taken = lane.take_any(partner)
    if not outer:
        return EncodedColumn(column, taken.codes, taken.places, taken.numbers)
    return taken.nullable(column, partner < 0)


def _key_beside(key: Key, partner: Counts) -> Key:
    numbers, known = np.append(key[0], 0), np.append(key[1], False)
    return numbers[partner], known[partner]


def _groups(
    on: Sequence[tuple[str, str]], left: Frame, right: Frame, people: SharedUnits
) -> tuple[list[Counts], int]:
    """Number the rows of both sides by unit and keys; -1 where a key is missing."""
    if not on:
        return [left.units, right.units], people.count
    sides = (left, [one for one, _ in on]), (right, [other for _, other in on])
    return together(
        *(
            [(side.units, np.ones(side.count, dtype=np.bool_)), *(side.keys[each] for each in keys)]
            for side, keys in sides
        )
    )


def _choose(groups: Counts, count: int, rows: Frame, people: SharedUnits) -> Counts:
    """Return one row for every group, drawn by lot where there are several; -1 without any."""
    found = np.full(count, -1)
    known = np.flatnonzero(groups >= 0)
    found[groups[known]] = known
    times = np.bincount(groups[known], minlength=count)
    crowd = known[times[groups[known]] > 1]
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
    people: SharedUnits,
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
    fan = limit_amounts(fan[rows], left.units[rows], MOST_OF_UNIT)
    starts = np.append(np.cumsum(times) - times, 0)
    turn = np.arange(int(fan.sum())) - np.repeat(np.cumsum(fan) - fan, fan)
    rows = np.repeat(rows, fan)
    place = starts[own[rows]] + turn
    lone = times[own[rows]] == 0
    partner = np.append(queue, -1)[np.where(lone, -1, place)]
    order = in_groups(rows)
    return rows[order], partner[order]


def _line_up_crowded(
    rows: Counts, groups: Counts, frame: Frame, crowded: Flags, people: SharedUnits
) -> Counts:
    """Return rows sorted by group; those of crowded units in an order that is drawn by lot."""
    is_crowd = crowded[frame.units[rows]]
    crowd = rows[is_crowd]
    rows = np.concatenate([people.line_up(frame, crowd, groups[crowd]), rows[~is_crowd]])
    return rows[in_groups(groups[rows])]


def limit_amounts(amounts: Counts, units: Counts, most: int) -> Counts:
    """Return amounts, lessened so that no unit has more than ``most``: its first ones stay.

    Rows of each unit with more are next to each other.

    >>> limit_amounts(np.array([2, 2, 2, 9]), np.array([0, 0, 0, 4]), 3).tolist()
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
    known = np.flatnonzero((theirs >= 0) & (owners.units >= 0))
    first = known[find_distinct(owners.units[known], theirs[known])[0]]
    referring = np.flatnonzero(groups >= 0)
    times = np.bincount(groups[referring], minlength=count)
    totals = np.zeros(int(owners.units.max(initial=-1)) + 1, dtype=np.int64)
    np.add.at(totals, owners.units[first], times[theirs[first]])
    is_crowded = totals[owners.units[first]] > MOST_OF_UNIT
    crowd, is_cut = first[is_crowded], np.zeros(count, dtype=np.bool_)
    is_cut[theirs[crowd]] = True  # of others it does not matter what comes first
    names = np.bitwise_xor.reduce([numbers[crowd] for numbers, _ in their])
    crowd = crowd[np.lexsort((theirs[crowd], _mixed(names), owners.units[crowd]))]
    first = np.concatenate([crowd, first[~is_crowded]])
    may_be_cut = is_cut[groups[referring]]
    queue = referring[may_be_cut]
    queue = queue[np.lexsort(rows.content(queue))]
    queue = np.concatenate([queue, referring[~may_be_cut]])
    queue = queue[in_groups(groups[queue])]
    units, keys = owners.units[first], theirs[first]
    fan = limit_amounts(times[keys], units, MOST_OF_UNIT)
    starts = np.cumsum(times) - times
    turn = np.arange(int(fan.sum())) - np.repeat(np.cumsum(fan) - fan, fan)
    found = rows.take(queue[np.repeat(starts[keys], fan) + turn])
    return Frame(np.repeat(units, fan), found.lanes, found.keys)


def _mixed(numbers: Counts) -> Counts:
    """Return numbers in an order of no meaning: a bijection of 64 bits."""
    x = numbers.view(np.uint64).copy()
    # The last steps of SplitMix64 (Steele, Lea and Flood 2014).
    for shift, factor in ((30, 0xBF58476D1CE4E5B9), (27, 0x94D049BB133111EB)):
        x = (x ^ (x >> np.uint64(shift))) * np.uint64(factor)
    return (x ^ (x >> np.uint64(31))).view(np.int64)
