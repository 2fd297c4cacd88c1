"""On what terms requests are made: epsilon, delta, noise, and what may be answered again."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from dpsql.errors import DataError, InterfaceError, ProgrammingError, decimal_text, printable
from dpsql.plan.goal import least_epsilon
from dpsql.plan.request import FIXED, LEARNED, METRICS, Request
from dpsql.plan.rounds import AUTO, Rounds
from dpsql.privacy.accounting import (
    parse_delta,
    parse_delta_text,
    parse_epsilon,
    parse_epsilon_text,
)
from dpsql.sql.compiled import Compiled
from dpsql.strategy.noise_law import read_noise

MAX_EFFORT = 100

_SWITCH = {"on": True, "true": True, "off": False, "false": False}

REUSE = ("auto", "always", "never")
"""When a published release answers again: where it is as accurate as a new one, always, never."""


@dataclass(frozen=True, slots=True)
class Terms:
    """The settings of a session; ``epsilon`` is None until it is set.

    ``limit`` is the largest epsilon of one request that the catalog allows.
    """

    limit: Fraction
    epsilon: Fraction | None = None
    delta: Fraction = Fraction(0)
    noise: str = "auto"
    mechanism: str = "auto"
    metric: str = "mean"
    rounds: Rounds = AUTO
    effort: Fraction = Fraction(1)
    reuse: str = "auto"
    nonnegative: bool = False

    def with_values(self, values: Mapping[str, object]) -> Terms:
        """The terms with Python values for epsilon, delta and noise.

        Raises: DataError (E_EPSILON, E_DELTA, E_SETTING).
        """
        terms = self
        if "epsilon" in values:
            terms = replace(terms, epsilon=parse_epsilon(values["epsilon"], self.limit))
        if "delta" in values:
            terms = replace(terms, delta=parse_delta(values["delta"]))
        if "noise" in values:
            terms = replace(terms, noise=read_noise(values["noise"]))
        return terms

    def with_text(self, name: str, text: str) -> Terms:
        """The terms after SET name = text.

        Raises: DataError (E_EPSILON, E_DELTA, E_SETTING); ProgrammingError (E_SETTING).
        """
        if not isinstance(text, str):
            raise InterfaceError("E_SETTING", f"{name} is set by text", hint="SET epsilon = 0.5")
        match name:
            case "epsilon":
                return replace(self, epsilon=parse_epsilon_text(text, self.limit))
            case "delta":
                return replace(self, delta=parse_delta_text(text))
            case "noise":
                return replace(self, noise=read_noise(text.lower()))
            case "mechanism":
                return replace(self, mechanism=_parse_mechanism(text.lower()))
            case "metric":
                return replace(self, metric=_parse_metric(text.lower()))
            case "rounds" | "per_round":
                return replace(self, rounds=self.rounds.with_text(name, text))
            case "effort":
                return replace(self, effort=_parse_effort(text))
            case "reuse":
                return replace(self, reuse=_parse_reuse(text.lower()))
            case "fresh" if text.lower() in _SWITCH:
                kept = self.reuse if self.reuse != "never" else "auto"
                return replace(self, reuse="never" if _SWITCH[text.lower()] else kept)
            case "nonnegative" if text.lower() in _SWITCH:
                return replace(self, nonnegative=_SWITCH[text.lower()])
        raise ProgrammingError(
            "E_SETTING", f"{name} = {printable(text)}", hint=f"SET {name} = on, or off"
        )

    @property
    def fresh(self) -> bool:
        """Whether everything is measured anew."""
        return self.reuse == "never"

    @property
    def reconstruct(self) -> str:
        """How answers follow from what was measured, where a statement does not say so."""
        return "nonnegative" if self.nonnegative else "gls"

    def display(self) -> dict[str, str]:
        """The settings as SHOW prints them."""
        return {
            "epsilon": "not set" if self.epsilon is None else decimal_text(self.epsilon),
            "delta": f"{float(self.delta):g}",
            "noise": self.noise,
            "mechanism": self.mechanism,
            "metric": self.metric,
            **self.rounds.display(),
            "effort": decimal_text(self.effort),
            "reuse": self.reuse,
            "fresh": "on" if self.fresh else "off",
            "nonnegative": "on" if self.nonnegative else "off",
        }


def _parse_mechanism(text: str) -> str:
    from dpsql.search.select import MECHANISMS

    known = (*(name for name in MECHANISMS if name not in LEARNED), *FIXED, *LEARNED)
    if text not in known:
        raise DataError(
            "E_SETTING", f"mechanism = {printable(text)}", hint=f"one of {', '.join(known)}"
        )
    return text


def _parse_metric(text: str) -> str:
    if text not in METRICS:
        raise DataError(
            "E_SETTING", f"metric = {printable(text)}", hint=f"one of {', '.join(METRICS)}"
        )
    return text


def _parse_reuse(text: str) -> str:
    if text not in REUSE:
        raise DataError(
            "E_SETTING", f"reuse = {printable(text)}", hint=f"one of {', '.join(REUSE)}"
        )
    return text


def _parse_effort(text: str) -> Fraction:
    """How much to search, relative to the default; it changes planning time, not the cost."""
    if re.fullmatch(r"\d{1,4}(\.\d{1,4})?", text, re.ASCII) and 0 < Fraction(text) <= MAX_EFFORT:
        return Fraction(text)
    raise DataError(
        "E_SETTING", f"effort = {printable(text)}", hint=f"a number above 0, at most {MAX_EFFORT}"
    )


def form_request(workload: Sequence[Compiled], terms: Terms, default: Fraction | None) -> Request:
    """Form the request for statements on given terms; ``default`` is the epsilon where none is set.

    Raises: DataError (E_EPSILON) where there is no default either.
    """

    def request_at(epsilon: Fraction) -> Request:
        return Request(
            tuple(workload),
            epsilon,
            terms.delta,
            terms.noise,
            terms.mechanism,
            terms.effort,
            terms.reconstruct,
            metric=terms.metric,
            rounds=terms.rounds,
        )

    if any(item.max_stddev is not None for item in workload):
        return request_at(least_epsilon(request_at, terms.limit))
    return request_at(require_epsilon(terms, default))


def require_epsilon(terms: Terms, default: Fraction | None = None) -> Fraction:
    """The epsilon that is set, else the default. Raises: DataError (E_EPSILON)."""
    epsilon = default if terms.epsilon is None else terms.epsilon
    if epsilon is None:
        raise DataError(
            "E_EPSILON", "no epsilon is set", hint="SET epsilon = 0.5, or --epsilon 0.5"
        )
    return epsilon
