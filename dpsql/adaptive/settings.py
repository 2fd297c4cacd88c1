"""The declared constants of an MWEM run, and what they refuse."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, Literal

from dpsql.adaptive.factored import Factored
from dpsql.adaptive.handle import Candidate
from dpsql.adaptive.query import attributes_of
from dpsql.adaptive.replay import Step
from dpsql.errors import ProgrammingError

CROWDED = 4
"""Single queries outnumber cells over this: some noisy answers will contradict the others."""


@dataclass(frozen=True, slots=True)
class Settings:
    """Declared constants of a run; none may be chosen by looking at private data.

    ``rounds`` "auto" is the default number of the paper's bound for single queries and annealing
    for whole marginals. ``total`` is a number of rows that is public or was released before;
    ``hint`` a public guess at it. ``cap`` limits the cells of one part of the model.
    """

    rounds: int | Literal["auto", "doubling", "annealing"] = "auto"
    total: float | None = None
    hint: float | None = None
    share: Fraction | None = None
    slack: float | None = None
    sweeps: int | None = None
    step: Step | None = None
    average: bool = False
    histogram: bool | None = None
    cap: int = 1_000_000

    def facts(self) -> dict[str, Any]:
        """Return the settings as plain values."""
        names = ("rounds", "total", "hint", "slack", "sweeps", "step", "average", "histogram")
        found = {name: getattr(self, name) for name in names}
        return {**found, "cap": self.cap, "share": None if self.share is None else str(self.share)}


def check(domain: Mapping[str, int], candidates: Sequence[Candidate], settings: Settings) -> None:
    """Refuse what cannot run, before anything is spent.

    Raises ProgrammingError E_WORKLOAD or E_TOO_LARGE.
    """
    if not candidates:
        raise ProgrammingError("E_WORKLOAD", "the workload is empty", hint="ask for something")
    if not isinstance(settings.rounds, str) and settings.rounds < 1:
        raise ProgrammingError(
            "E_SETTING", f"a run has at least one round, not {settings.rounds}", hint="use 'auto'"
        )
    model = Factored.uniform(domain, 1.0)
    sizes = [model.merged_cells(attributes_of(c)) for c in candidates]
    if min(sizes) > settings.cap:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"the smallest query needs {min(sizes)} cells at once, the cap is {settings.cap}",
            hint="ask for marginals of fewer or smaller columns, or raise the cap",
        )
    every = math.prod(domain[a] for a in touched(domain, candidates))
    if (settings.average or settings.histogram) and every > settings.cap:
        raise ProgrammingError(
            "E_TOO_LARGE",
            f"an explicit table of {every} cells is above the cap of {settings.cap}",
            hint="use the last iterate and a uniform start, or raise the cap",
        )


def default_slack(settings: Settings, best: int, cells: int, candidates: int, whole: bool) -> float:
    """Return the dead zone in noise scales: wider when answers are too many to be all feasible."""
    if whole or (isinstance(settings.rounds, str) and settings.rounds != "auto"):
        return 1.0
    planned = best if settings.rounds == "auto" else min(int(settings.rounds), candidates)
    return 2.0 if planned > 2 * best or CROWDED * planned > cells else 1.0


def touched(domain: Mapping[str, int], candidates: Sequence[Candidate]) -> tuple[str, ...]:
    """Return the attributes that any candidate depends on, in domain order."""
    used = {a for c in candidates for a in attributes_of(c)}
    return tuple(a for a in domain if a in used)
