"""What one run ended with: a model and everything that was told on the way."""

from __future__ import annotations

from dataclasses import dataclass

from dpsql.adaptive.auto import Choice
from dpsql.adaptive.handle import Measured, Model
from dpsql.adaptive.statement import error_statements
from dpsql.adaptive.transcript import Look
from dpsql.plan.noise_law import Noise


@dataclass(frozen=True, slots=True, eq=False)
class Learned:
    """The model a run ended with, every look that led to it, and the mechanism that looked."""

    model: Model
    looks: tuple[Look, ...]
    choice: Choice
    interrupted: bool = False

    @property
    def measurements(self) -> tuple[Measured, ...]:
        """Every noisy answer that was released."""
        return tuple(m for look in self.looks for m in look.measured)

    def transcript(self, noise: Noise) -> tuple[str, ...]:
        """What was measured, how precisely and at what cost, and what follows for the errors."""
        lines = [look.told(noise) for look in self.looks]
        if self.choice.useless:
            lines.append("the number of rows says that the budget was too small to be useful")
        for s in error_statements(self.model, self.measurements):
            names = ", ".join(s.attributes)
            told = f"counts of {names} are, in sum," if names else "number of rows is"
            lines.append(f"with 95 % confidence the {told} within {s.bound:.4g} of the model's")
        return tuple(lines)
