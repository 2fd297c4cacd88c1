"""SmartNoise SQL as a peer: see ``benchmarks.peer``.

Without a threshold, which costs a delta and rare groups, it answers the groups that the data have.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from benchmarks.peer import EPSILON, Asked, Counts, run


class SmartNoise:
    """A reader of a pandas frame; each marginal is a query with its part of epsilon."""

    def __init__(self, folder: Path, asked: Asked) -> None:
        import pandas as pd

        self.asked = asked
        self.frame = pd.read_csv(folder / "t.csv")
        columns = {name: {"type": "int"} for name in asked.sizes}
        options = {"row_privacy": True, "censor_dims": False, "rows": len(self.frame)}
        self.metadata = {"": {"s": {"t": {**options, **columns}}}}
        self.reader = self._open(EPSILON)

    def _open(self, epsilon: float) -> Any:
        import snsql

        privacy = snsql.Privacy(epsilon=epsilon, delta=1e-9)
        return snsql.from_df(self.frame, metadata=self.metadata, privacy=privacy)

    def one(self, keys: Sequence[str]) -> Counts:
        return self._ask(self.reader, keys)

    def many(self, marginals: Sequence[Sequence[str]]) -> Iterator[Counts]:
        reader = self._open(EPSILON / len(marginals))
        for keys in marginals:
            yield self._ask(reader, keys)

    def _ask(self, reader: Any, keys: Sequence[str]) -> Counts:
        listed = ", ".join(keys)
        found = reader.execute(f"SELECT {listed}, COUNT(*) AS n FROM s.t GROUP BY {listed}")
        return self.asked.table(keys, found[1:])


if __name__ == "__main__":
    run(SmartNoise)
