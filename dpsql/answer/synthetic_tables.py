"""Synthetic tables: released models; what is stored of them, and what is said about them.

A model is a release: everything computed from it is free. Stored are its parameters, what was
measured, how precisely and at what cost; never seeds, scores or true answers.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from dpsql.answer.codec import Keep, decode_looks, encode_looks, packed, unpacked
from dpsql.catalog import Table
from dpsql.catalog.catalog import Unit
from dpsql.errors import LedgerError, ProgrammingError, decimal_text, printable
from dpsql.learn.transcript import Look
from dpsql.pgm.measurements import Model
from dpsql.records import dataclass, replace

_KINDS = {
    "factored": "dpsql.learn.factored:FactoredModel",
    "graphical": "dpsql.pgm.model:GraphicalModel",
    "mixture": "dpsql.learn.relaxed:ProductMixture",
    "rap": "dpsql.learn.relaxed:ProductMixture",
}
"""The decoders of models of each kind; imported on use."""

VERSION = 2
"""Of what is stored of a model; the first has no looks, neighbours and forecast."""


@dataclass(frozen=True, slots=True, eq=False)
class Synthetic:
    """A released model of some columns of a private table, and the ledger entry that paid for it.

    It has no name when it was learned to answer one workload. ``rule`` says how the mechanism was
    chosen, ``transcript`` tells what was measured in words, and ``looks`` in numbers.
    ``neighbours`` are the tables that are not told apart, ``forecast`` what EXPLAIN said;
    ``released`` names the domains of its columns that had to be found.
    """

    name: str
    table: str
    model: Model
    epsilon: Fraction
    delta: Fraction
    noise: str
    rule: str
    transcript: tuple[str, ...]
    receipt: tuple[str, int, str]
    interrupted: bool = False
    looks: tuple[Look, ...] = ()
    neighbours: str = ""
    forecast: tuple[tuple[str, str], ...] = ()
    released: tuple[str, ...] = ()

    @property
    def note(self) -> str:
        """The note on every answer from it."""
        part = " of a run that was interrupted" if self.interrupted else ""
        if not self.name:
            return (
                f"from a model ({self.rule}; entry {self.receipt[1]} of the ledger{part}): "
                "biased, no standard errors"
            )
        return (
            f"from the synthetic table {self.name} (entry {self.receipt[1]} of the ledger{part}): "
            "biased, no standard errors"
        )

    @property
    def left_out(self) -> tuple[str, ...]:
        """The rows of the private table that it is not about, in words."""
        return tuple(text for name, text in self.forecast if name == "left out")

    def facts(self) -> list[tuple[str, str]]:
        """Return lines to show: what it is, what was measured for it, and what follows."""
        rows = [(name, _fact(value)) for name, value in self.model.describe().items()]
        rows += self.forecast
        rows += [] if ("rule", self.rule) in self.forecast else [("decision", self.rule)]
        cost = f"epsilon {decimal_text(self.epsilon)}"
        rows.append(("cost", cost + (f", delta {float(self.delta):g}" if self.delta else "")))
        rows += [("neighbours", self.neighbours)] if self.neighbours else []
        for line in self.transcript:
            word, _, told = line.partition(" ")
            rows.append((word, told) if word in ("measured", "chosen") else ("error", line))
        return rows

    def refit(self, work: float) -> Synthetic:
        """Return the same with a model that was fitted on, from what was measured: free.

        ``work`` is in cells that the fit goes through.

        Raises: ProgrammingError (E_STATEMENT) for a model whose fit ends by itself.
        """
        from dpsql.pgm.fit import fit  # few models are fitted again
        from dpsql.pgm.model import GraphicalModel

        model = self.model
        if not isinstance(model, GraphicalModel) or not self.looks:
            raise ProgrammingError(
                "E_STATEMENT",
                f"{printable(self.name)} is no graphical model with what was measured for it",
                hint="only those can be fitted further",
            )
        measured = [each for look in self.looks for each in look.measured if each.candidate]
        total, cap = model.total, model.cap
        found = fit(model.domain, measured, total, warm=model, cap=cap, work=work, tolerance=0.0)
        return replace(self, model=found)

    def describe(self, table: Table) -> Table:
        """The columns of the private table that the model has, as a table of its own."""
        columns = {key: table.columns[key] for key in table.columns if key in self.model.domain}
        return replace(
            table, name=self.name, unit=Unit(), columns=columns, budget=None, synthetic=True
        )


def _fact(value: object) -> str:
    """A fact about a model: numbers are rounded, cliques are written apart.

    >>> _fact(1644.232323), _fact([["a", "b"], ["c"]]), _fact("graphical")
    ('1644.23', 'a, b; c', 'graphical')
    """
    if isinstance(value, float):
        return f"{value:.6g}"
    if isinstance(value, list):
        return "; ".join(", ".join(map(str, clique)) for clique in value)
    return str(value)


def find_synthetic(models: Mapping[str, Synthetic], name: str) -> Synthetic:
    """The synthetic table of a name. Raises: ProgrammingError (E_UNKNOWN_TABLE)."""
    synthetic = models.get(name.casefold())
    if synthetic is None:
        known = ", ".join(each.name for each in models.values()) or "there are none"
        raise ProgrammingError(
            "E_UNKNOWN_TABLE",
            f"there is no synthetic table {printable(name)!r}",
            hint=f"synthetic tables: {known}",
        )
    return synthetic


def check_name(name: str, taken: Mapping[str, object]) -> None:
    """Refuse a name that is taken or is no name.

    Raises: ProgrammingError (E_STATEMENT).
    """
    if name.casefold() in taken:
        raise ProgrammingError(
            "E_STATEMENT",
            f"there is a table {printable(name)!r} already",
            hint="a synthetic table needs a name of its own",
        )
    if not name.isidentifier() or len(name) > 64:
        raise ProgrammingError(
            "E_STATEMENT", f"{printable(name)!r} is no name for a table", hint="letters and digits"
        )


def encode_synthetic(synthetic: Synthetic) -> bytes:
    """Return a model as the bytes of a zipped archive of arrays."""
    return packed(lambda keep: _facts(synthetic, keep))


def _facts(synthetic: Synthetic, keep: Keep) -> dict[str, Any]:
    model: Any = synthetic.model
    return {
        "name": synthetic.name,
        "table": synthetic.table,
        "model": model.encode(keep),
        "epsilon": str(synthetic.epsilon),
        "delta": str(synthetic.delta),
        "noise": synthetic.noise,
        "rule": synthetic.rule,
        "transcript": list(synthetic.transcript),
        "receipt": list(synthetic.receipt),
        "interrupted": synthetic.interrupted,
        "version": VERSION,
        "looks": encode_looks(synthetic.looks, keep),
        "neighbours": synthetic.neighbours,
        "forecast": synthetic.forecast,
        **({"released": synthetic.released} if synthetic.released else {}),
    }


def decode_synthetic(body: bytes) -> Synthetic:
    """Return the model that was encoded.

    Raises: LedgerError (E_LEDGER_VERSION); ValueError, KeyError, TypeError, OSError, BadZipFile
    for anything else.
    """
    facts, arrays = unpacked(body)
    version = facts.get("version", 1)
    if version > VERSION:
        raise LedgerError(
            "E_LEDGER_VERSION",
            "a synthetic table was stored by a later version of dpsql",
            hint="use the version that made it",
        )
    known = facts if version > 1 else {"looks": None, "neighbours": "", "forecast": []}
    model = _class_of(facts["model"]["kind"]).decode(facts["model"], arrays)
    ledger_id, seq, head = facts["receipt"]
    return Synthetic(
        facts["name"],
        facts["table"],
        model,
        Fraction(facts["epsilon"]),
        Fraction(facts["delta"]),
        facts["noise"],
        facts["rule"],
        tuple(facts["transcript"]),
        (ledger_id, seq, head),
        facts["interrupted"],
        decode_looks(known["looks"], arrays, facts["noise"]) if known["looks"] else (),
        known["neighbours"],
        tuple((name, text) for name, text in known["forecast"]),
        tuple(facts.get("released", ())),
    )


def _class_of(kind: str) -> Any:
    module, name = _KINDS[kind].split(":")
    return getattr(importlib.import_module(module), name)
