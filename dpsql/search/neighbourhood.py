"""Strategies near those that are known: for other weights of what is asked, or within limits."""

from __future__ import annotations

import numpy as np

from dpsql.errors import ProgrammingError
from dpsql.records import dataclass
from dpsql.search.one_attribute.low_rank import Answer, few_near
from dpsql.search.problem import Problem
from dpsql.search.select import LEAST, Selection, choose
from dpsql.search.work_limit import SELECTION, metered
from dpsql.strategy.base import Strategy
from dpsql.workload.workload import Workload


@dataclass(frozen=True, slots=True)
class Neighbourhood:
    """A strategy of few queries, and the limits of mean variances of answers that there may be."""

    strategy: Strategy
    answers: tuple[Answer, ...] = ()
    limits: tuple[float, ...] = ()

    def fingerprint(self) -> str:
        """Return the key that identifies a neighbourhood."""
        answers = [(scale, operator.key) for scale, operator in self.answers]
        return repr((self.strategy.fingerprint(), answers, self.limits))


def choose_near(
    workload: Workload, near: Neighbourhood, mechanism: str, effort: float
) -> Selection:
    """Return a strategy near one that is known, else what is chosen without.

    Args:
        near: the strategy, and limits if there are any.
        mechanism, effort: as of ``choose``, without limits alone.

    Raises ProgrammingError E_TOO_LARGE where there are limits, and none is looked for within these.
    """
    known = near.strategy
    with metered(SELECTION * max(effort, LEAST)) as meter:
        problem, limits = Problem(workload, known.noise), np.array(near.limits)
        found = few_near(problem, known, near.answers, limits)
    if found is None and near.answers:
        raise ProgrammingError("E_TOO_LARGE", "queries are too many to be combined within limits")
    if found is None:
        return choose(workload, known.noise, mechanism, effort)
    return Selection(found, work=meter.done, is_cut=meter.is_cut)
