"""Released clipped sums: what is stored of them, and what is said about them."""

from __future__ import annotations

import json
from fractions import Fraction

from dpsql.answer.result import CostInfo, ReceiptInfo
from dpsql.errors import decimal_text
from dpsql.records import dataclass

HOW = {
    "eb": "counts were drawn towards a smooth tail: the sums are biased, without standard errors",
    "r2t": "the largest of several clipped sums, less a margin for their noise: below the sum with "
    "probability 0.9, biased, without a standard error",
}
"""Notes on methods whose errors nothing is known about."""

UNKNOWN = ("?",)
"""Domains that sums of an earlier version are about: it did not say which."""


@dataclass(frozen=True, slots=True)
class ClippedSums:
    """Noisy answers in result order, the deviations of their noise, and where values were clipped.

    ``levels`` has the one threshold of all answers, or one for each; ``chosen`` says that they
    were chosen privately, ``cuts`` that some are below the largest declared value, and
    ``ordered`` that the answers were made non-decreasing. There are no values where a threshold
    alone was released. ``rule`` is how clips were chosen, where that decides what can be said;
    ``released`` names the domains and bounds that were found before, and are needed to ask.
    """

    values: tuple[float, ...]
    stddev: tuple[float, ...]
    levels: tuple[Fraction, ...]
    chosen: bool
    cuts: bool
    ordered: bool
    epsilon: Fraction
    delta: Fraction
    noise: str
    receipt: tuple[str, int, str]
    rule: str = ""
    released: tuple[str, ...] = ()

    @property
    def is_unknown(self) -> bool:
        """True if nothing is known about the errors."""
        return self.rule in HOW

    def cost(self, free: bool) -> CostInfo:
        """Return the cost of the sums."""
        return CostInfo(self.epsilon, self.delta, self.noise, free)

    @property
    def proof(self) -> ReceiptInfo:
        """The entry in the ledger."""
        return ReceiptInfo(*self.receipt)

    def notes(self, column: str, free: bool) -> tuple[str, ...]:
        """Return the notes of every result: threshold, sign of the bias, meaning of the errors."""
        levels = sorted(set(self.levels))
        text = number_text(levels[0])
        if len(levels) > 1:
            text = f"thresholds from {text} to {number_text(levels[-1])}"
        how = " (chosen privately)" if self.chosen else ""
        where = "to them" if len(levels) > 1 else "to it"
        if self.cuts:
            clipped = f"values of {column} above {text}{how} are clipped {where}"
            notes = [
                f"{clipped}: the sums are biased downwards",
                "standard errors are those of the clipped sums; they leave the bias out",
            ]
        else:
            notes = [f"values of {column} are clipped to {text}{how}, the largest declared"]
        if self.rule in HOW:
            notes.append(HOW[self.rule])
        elif self.ordered:
            notes.append("the sums were made non-decreasing; standard errors are those before that")
        if free:
            paid = f"(epsilon {decimal_text(self.epsilon)})"
            entry = f"from entry {self.receipt[1]} of the ledger {paid}"
            notes.append(f"{entry}; SET fresh = on pays for new noise")
        return tuple(notes)


def encode_clipped(sums: ClippedSums) -> bytes:
    """Return clipped sums as bytes."""
    facts = {
        "values": list(sums.values),
        "stddev": list(sums.stddev),
        "levels": [str(level) for level in sums.levels],
        "flags": [sums.chosen, sums.cuts, sums.ordered],
        "epsilon": str(sums.epsilon),
        "delta": str(sums.delta),
        "noise": sums.noise,
        "receipt": list(sums.receipt),
        "rule": sums.rule,
        "released": list(sums.released),
    }
    return json.dumps(facts).encode()


def decode_clipped(body: bytes) -> ClippedSums:
    """Return the sums that were encoded. Raises: ValueError, KeyError, TypeError."""
    facts = json.loads(body)
    chosen, cuts, ordered = facts["flags"]
    ledger_id, seq, head = facts["receipt"]
    return ClippedSums(
        tuple(map(float, facts["values"])),
        tuple(map(float, facts["stddev"])),
        tuple(map(Fraction, facts["levels"])),
        chosen,
        cuts,
        ordered,
        Fraction(facts["epsilon"]),
        Fraction(facts["delta"]),
        facts["noise"],
        (ledger_id, seq, head),
        facts.get("rule", ""),
        tuple(facts.get("released", UNKNOWN)),
    )


LONG = 1e12
"""Numbers from which on they are written by their powers of ten."""


def rounded_text(value: float) -> str:
    """A number of two digits for people.

    >>> rounded_text(12345.0), rounded_text(2.51e13)
    ('12,000', '2.5e+13')
    """
    return number_text(Fraction(f"{value:.2g}")) if value < LONG else f"{value:.2g}"


def number_text(value: Fraction) -> str:
    """A number for people.

    >>> number_text(Fraction(12345)), number_text(Fraction(1, 3))
    ('12,345', '0.33333333')
    """
    return f"{int(value):,}" if value.denominator == 1 else f"{float(value):,.8g}"
