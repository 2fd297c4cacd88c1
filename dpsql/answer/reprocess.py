"""Answers of a statement as its ``reconstruct`` option wants them: free post-processing."""

from __future__ import annotations

from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from dpsql.answer.graphical import MODELLED, Models, check_models
from dpsql.answer.nonnegative import PROJECTED, UNTOUCHED, project_answer
from dpsql.plan.layout import Place
from dpsql.plan.plan import Plan
from dpsql.plan.request import Request
from dpsql.plan.target import Readings

Column = NDArray[np.float64]
Columns: TypeAlias = "dict[Place, Column]"


def check_methods(request: Request, plan: Plan, readings: Readings) -> None:
    """Refuse what a plan cannot be reconstructed as, before it is paid for.

    Raises: NotSupportedError (E_SETTING); ProgrammingError (E_TOO_LARGE); OperationalError.
    """
    for index, item in enumerate(request.statements):
        method = request.method_of(item)
        if method in ("pgm", "mbi"):
            here = [
                (at, reading) for place, (at, reading, _) in readings.items() if place[0] == index
            ]
            check_models(plan, here, method)


def reprocess(
    request: Request,
    index: int,
    readings: Readings,
    answers: Columns,
    variances: Columns,
    models: Models | None,
) -> tuple[set[Place], tuple[str, ...]]:
    """Replace the answers of one statement in place; return which, and what to say about them.

    Nothing is known about the errors of what was replaced: their variances become NaN.
    """
    item = request.statements[index]
    method = request.method_of(item)
    if method == "gls":
        return set(), ()
    changed: set[Place] = set()
    left = False
    for j, (select, answer) in enumerate(item.answers()):
        place = (index, j)
        if place not in readings:
            continue
        if method == "nonnegative":
            found = project_answer(select, answer, answers[place], variances[place])
        else:
            assert models is not None
            part, reading, order = readings[place]
            found = answer.arrange(models.answer(part, reading, method), order)
        if found is None:
            left = True
            continue
        answers[place] = found
        variances[place] = np.full(found.shape, np.nan)
        changed.add(place)
    said = PROJECTED if method == "nonnegative" else MODELLED.format(method)
    notes = ((said,) if changed else ()) + ((UNTOUCHED,) if left else ())
    return changed, notes
