"""Combinations of codes of several columns: one number for each, and the cell that it is."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from dpsql.catalog.catalog import Column
from dpsql.catalog.discovery import SEPARATOR
from dpsql.privacy.vault.codes.encode import code_type
from dpsql.privacy.vault.data_engine import Codes, Counts, Flags


def join_codes(codes: Sequence[Counts | Codes], sizes: Sequence[int]) -> tuple[Counts, Flags]:
    """Return one number for codes of several columns, (rows,) each, and where all are in range."""
    places = np.zeros(len(codes[0]), dtype=np.int64)
    known = np.ones(len(codes[0]), dtype=np.bool_)
    for part, size in zip(codes, sizes, strict=True):
        signed = part.astype(np.int64)
        known &= (signed >= 0) & (signed < size)
        places = places * size + signed
    return places, known


def split_codes(numbers: Counts, sizes: Sequence[int]) -> list[Counts]:
    """Return the codes that numbers, (keys,), were made of, column by column."""
    found = []
    for size in reversed(sizes):
        found.append(numbers % size if size else numbers)
        numbers = numbers // size if size else numbers
    return found[::-1]


def encode_joint(column: Column, parts: Sequence[Codes]) -> Codes:
    """Return the cells of rows, (rows,), in a column of several, from their cells in each."""
    listed: tuple[object, ...] = () if column.domain is None else column.domain.representatives
    values = [str(value).split(SEPARATOR) for value in listed]
    numbered = [_numbered(value) for value in zip(*values, strict=True)]
    sizes = [size for _, size in numbered] or [0] * len(parts)
    cells = np.array([codes for codes, _ in numbered], dtype=np.int64).reshape(len(parts), -1)
    wanted, _ = join_codes(list(cells), sizes)
    places, known = join_codes(parts, sizes)
    order = np.argsort(wanted)
    where = np.searchsorted(wanted[order], places).clip(max=max(0, len(order) - 1))
    found = np.full(len(places), len(order), dtype=np.int64)  # the cell of all others
    if len(order):
        known &= wanted[order][where] == places
        np.copyto(found, order[where], where=known)
    return found.astype(code_type(column.size + 1))


def _numbered(values: Sequence[str]) -> tuple[list[int], int]:
    """Places of values among the different ones, in the order in which they come, and how many."""
    known: dict[str, int] = {}
    codes = [known.setdefault(value, len(known)) for value in values]
    return codes, len(known)
