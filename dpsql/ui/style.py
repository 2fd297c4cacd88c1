"""Style: abilities of the target of a text."""

from __future__ import annotations

import shutil
import sys

from dpsql.records import dataclass
from dpsql.ui.narration import colour_wanted, speaks_unicode


@dataclass(frozen=True, slots=True)
class Style:
    """The abilities of the target of a text; the default suits files and pipes.

    ``width`` is in terminal cells, ``rows`` the most that a box shows; None is no limit.
    ``formulas`` leaves text as it is that spreadsheets take for a formula, or that is not seen.
    """

    stddev: bool = False
    width: int | None = None
    colour: bool = False
    unicode: bool = True
    terminal: bool = False
    rows: int | None = None
    formulas: bool = False


def screen_width() -> int:
    """Return the cells of a line of the terminal; 80 where there is none."""
    return max(1, shutil.get_terminal_size().columns)


def stdout_style(
    stddev: bool, rows: int | None = None, width: int | None = None, formulas: bool = False
) -> Style:
    """Return what stdout can show: colour only on a terminal and without ``NO_COLOR``.

    The limits hold on a terminal alone, so that pipes and files get everything.

    Args:
        stddev: True to write columns of standard errors.
        rows, width: most rows, and cells of a line; None for all rows and the terminal's own width.
        formulas: True to leave texts as they are that a spreadsheet would take for formulas.
    """
    terminal = sys.stdout.isatty()
    return Style(
        stddev=stddev,
        width=(width or screen_width()) if terminal else None,
        colour=terminal and colour_wanted(),
        unicode=speaks_unicode(sys.stdout),
        terminal=terminal,
        rows=rows if terminal else None,
        formulas=formulas,
    )
