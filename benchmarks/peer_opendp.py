"""OpenDP's library as a peer, by its Polars interface with public keys: see ``benchmarks.peer``.

It returns no count below zero, which halves the squared error of a cell that nobody is in.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

from benchmarks.peer import EPSILON, Asked, Counts, run


class OpenDP:
    """A lazy frame; each marginal is a query of a context that splits epsilon evenly."""

    def __init__(self, folder: Path, asked: Asked) -> None:
        import opendp.prelude
        import polars as pl

        dp: Any = opendp.prelude

        dp.enable_features("contrib", "honest-but-curious")
        self.dp, self.pl, self.asked = dp, pl, asked
        self.frame = pl.scan_csv(folder / "t.csv")

    def _context(self, queries: int) -> Any:
        return self.dp.Context.compositor(
            data=self.frame,
            privacy_unit=self.dp.unit_of(contributions=1),
            privacy_loss=self.dp.loss_of(epsilon=EPSILON),
            split_evenly_over=queries,
        )

    def one(self, keys: Sequence[str]) -> Counts:
        return self._ask(self._context(1), keys)

    def many(self, marginals: Sequence[Sequence[str]]) -> Iterator[Counts]:
        context = self._context(len(marginals))
        for keys in marginals:
            yield self._ask(context, keys)

    def _ask(self, context: Any, keys: Sequence[str]) -> Counts:
        cells = zip(*product(*map(range, self.asked.shape(keys))), strict=True)
        listed = self.pl.LazyFrame({key: list(each) for key, each in zip(keys, cells, strict=True)})
        query = context.query().group_by(*keys).agg(self.dp.len().alias("n")).with_keys(listed)
        return self.asked.table(keys, query.release().collect().select(*keys, "n").rows())


if __name__ == "__main__":
    run(OpenDP)
