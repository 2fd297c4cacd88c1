"""What is to be found of a column and released, because nobody can list it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal


@dataclass(frozen=True, slots=True)
class Sought:
    """What a column is declared to lack: its keys, or its bounds.

    At most ``max_keys`` different keys of a privacy unit count; ``by`` is the period of a date.
    """

    what: Literal["keys", "bounds"]
    max_keys: int = 1
    by: str = "day"

    @property
    def statement(self) -> str:
        """The first words of the statement that finds it."""
        return "CREATE DOMAIN" if self.what == "keys" else "CREATE BOUNDS"
