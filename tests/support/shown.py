"""Answers as pages show them, beside what is printed: the same but for the noise."""

from __future__ import annotations

import re

WIDE = 16
"""Standard errors that two answers to one question may be apart: a Laplace draw is further off once
in 1e9 times."""
NEAR = 0.1
"""Part by which an error may differ that depends on a noisy number itself."""


def assert_shown(page: str, printed: str) -> None:
    """Fail unless each line of a page is printed, and its table is, but for the noise."""
    ours, theirs = _table(page), _table(printed)
    assert len(ours) in (0, len(theirs)), printed
    for cells, others in zip(ours, theirs, strict=bool(ours)):
        assert len(cells) == len(others), printed
        for place, (cell, other) in enumerate(zip(cells, others, strict=True)):
            is_error = bool(place) and ours[0][place] == "±"
            has_error = place + 1 < len(cells) and ours[0][place + 1] == "±"
            if cells is ours[0] or not (is_error or has_error):
                assert cell == other, printed
            else:
                error = float(cells[place] if is_error else cells[place + 1])
                allowed = NEAR * error if is_error else WIDE * error
                assert abs(float(cell) - float(other)) <= allowed, printed
                assert len(cell.partition(".")[2]) == len(other.partition(".")[2]), printed
    for line in page.splitlines():
        if not re.match("[┌│├└]", line):
            assert line in printed, (line, printed)


def _table(text: str) -> list[list[str]]:
    """The rows of the tables that are drawn in a text, the heads first."""
    return [
        [cell.strip() for cell in line.strip("│").split("│")]
        for line in text.splitlines()
        if line.startswith("│")
    ]
