"""Numbers of rounds of a run, and of queries in each: declared, never searched for."""

from __future__ import annotations

from dpsql.errors import ProgrammingError
from dpsql.records import dataclass, replace

MOST = 10_000
"""Most rounds, and most queries in each."""

SCHEDULES = {
    "mwem": ("auto", "doubling", "annealing"),
    "rap": ("auto",),
    "marginals": ("auto", "annealing"),
}
"""The mechanisms with rounds, and the words that stand for a number of them."""

WORDS = SCHEDULES["mwem"]
"""The words of all mechanisms: the others know some of these."""


@dataclass(frozen=True, slots=True)
class Rounds:
    """``count`` rounds that ask ``each`` queries; "auto" leaves it to the mechanism.

    "doubling" and "annealing" start with small amounts per round and raise them by rule.
    """

    count: int | str = "auto"
    each: int | str = "auto"

    def within(self, candidates: int) -> Rounds:
        """At most as many rounds as there are candidates."""
        if isinstance(self.count, str):
            return self
        return replace(self, count=min(self.count, candidates))

    def display(self) -> dict[str, str]:
        """Both settings as text."""
        return {"rounds": str(self.count), "per_round": str(self.each)}

    @property
    def declared(self) -> dict[str, str]:
        """The settings that are not left to the mechanism."""
        return {name: text for name, text in self.display().items() if text != "auto"}

    def check(self, mechanism: str) -> None:
        """Refuse by name a setting that a mechanism does not have.

        Raises: ProgrammingError (E_SETTING).
        """
        if mechanism not in SCHEDULES:
            for name, text in self.declared.items():
                raise _refusal(
                    f"{name} = {text} is for mechanisms that look several times, and "
                    f"'{mechanism}' looks once",
                    f"leave {name} out, or name one of {', '.join(map(repr, SCHEDULES))}",
                )
        elif isinstance(self.count, str) and self.count not in SCHEDULES[mechanism]:
            fitting = [name for name, words in SCHEDULES.items() if self.count in words]
            raise _refusal(
                f"'{mechanism}' has no schedule '{self.count}'",
                f"a number of rounds, or {' or '.join(map(repr, fitting))}",
            )
        elif self.each != "auto" and mechanism != "rap":
            raise _refusal(
                f"per_round = {self.each} is for 'rap': '{mechanism}' asks one query in a round",
                "leave per_round out; rounds = 10 is a number of rounds",
            )
        elif self.each != "auto" and self.count == 1:
            raise _refusal(
                f"per_round = {self.each} contradicts rounds = 1, which asks all queries at once",
                "leave per_round out, or have two rounds or more",
            )


AUTO = Rounds()
"""Left to the mechanism."""


def _refusal(message: str, hint: str) -> ProgrammingError:
    return ProgrammingError("E_SETTING", message, hint=hint)
