"""Manner of asking: the file that statements come from, and their largest error."""

from __future__ import annotations

from collections.abc import Collection

from dpsql.engine.planner import Planner
from dpsql.engine.terms import Terms
from dpsql.errors import DataError, ProgrammingError, printable
from dpsql.settings.table import SETTINGS
from dpsql.sql.text.lexemes import split_statements

LONGEST_NAME = 200
"""Characters of the name of a file that an entry of the ledger keeps."""


def ask_from(planner: Planner, source: str) -> str:
    """Have the ledger note the name of the file that statements are from; return the last one."""
    charges = planner.charges
    before, charges.source = charges.source, printable(source)[:LONGEST_NAME]
    return before


def demand(planner: Planner, max_stddev: str | None, within: str | None = None) -> None:
    """Have every statement that does not say otherwise keep to an error (max_stddev, within).

    Args:
        planner: its statements are held to it from now on.
        max_stddev: text of the largest standard error, in units of the answer; None demands
            nothing.
        within: text of the largest error beside public counts of rows, such as "5%"; None demands
            nothing.

    Raises: DataError (E_SETTING).
    """
    given = {"max_stddev": max_stddev, "within": within}
    planner.demanded = {
        name: SETTINGS[name].read(text, error=DataError)
        for name, text in given.items()
        if text is not None
    }


def refuse_other_terms(planner: Planner, text: str, terms: Terms, given: Collection[str]) -> None:
    """Refuse a script that sets what was given beside it to something else.

    Args:
        planner: it reads the script in the light of its catalog.
        text: whole script.
        terms: in force, of which SET in the script may repeat but not change what was given.
        given: names of the settings that were given beside the script.

    Raises: ProgrammingError (E_SETTING), and whatever reading the script raises.
    """
    for statement in map(planner.read, split_statements(text)):
        if statement.kind != "set" or statement.words[0] not in given:
            continue
        name = statement.words[0]
        if terms.with_text(*statement.words).values != terms.values:
            shown = terms.display()[name]
            what = f"the file sets {name}, which is given beside it as {shown}"
            hint = "leave one of them out: what is charged is not to be a surprise"
            raise ProgrammingError("E_SETTING", what, hint=hint, span=statement.fragment.whole())
