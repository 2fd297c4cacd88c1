"""dpsql as a peer: see ``benchmarks.peer``."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from benchmarks.peer import EPSILON, Asked, Counts, run


class Ours:
    """A connection to the table; all marginals are one script."""

    def __init__(self, folder: Path, asked: Asked) -> None:
        import dpsql

        self.asked = asked
        self.connection = dpsql.connect(folder / "t.toml", epsilon=EPSILON)
        self.connection.execute("SET fresh = on")

    def one(self, keys: Sequence[str]) -> Counts:
        return self.asked.table(keys, self.connection.execute(sql_of(keys)).fetchall())

    def many(self, marginals: Sequence[Sequence[str]]) -> Iterator[Counts]:
        cursor = self.connection.executescript(";\n".join(map(sql_of, marginals)))
        for keys in marginals:
            yield self.asked.table(keys, cursor.fetchall())
            cursor.nextset()


def sql_of(keys: Sequence[str]) -> str:
    """A marginal as SQL."""
    listed = ", ".join(keys)
    return f"SELECT {listed}, COUNT(*) AS n FROM t GROUP BY {listed}"


if __name__ == "__main__":
    run(Ours)
