"""Decisions from public facts: workloads, strategies and their exact expected errors (stage 6).

Request: statements to answer together, on what terms.
Plan: what is measured for a request; Part: a strategy with its amount of budget, on one table.
PlannedRequest: a plan with the layouts that answers are read off.
Chooser: how a layout and a strategy are chosen for a target; Chosen: the two of them.
Target: all answers about one table that one part of a plan measures.
Memory: the bytes that a request needs.

What is measured can be checked without this package. Each of ``strategy.blocks`` measures the
Kronecker product, in the order of the domain, of its ``factors`` (attribute to integer rows, None
for the identity) and of one row of ones per attribute it does not name; a key that is a tuple of
attributes gives rows over their combined cells. Its sensitivity is the largest L1 norm (Laplace)
or squared L2 norm (Gaussian) of a column; noise of variance 2 (sensitivity / share)^2, or
sensitivity / share times the variance at unit sensitivity, costs that share of the budget, and
``strategy.rmse`` is the error of least squares over all blocks.

>>> from dpsql.plan import Workload, select
>>> strategy = select(Workload({"sex": 2, "age": 3}, [{"sex": "identity"}]))
>>> [(block.attributes, block.factors, str(block.share)) for block in strategy.blocks]
[(('sex',), {'sex': None}, '1')]
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from dpsql.search.select import select
    from dpsql.strategy.base import Strategy
    from dpsql.workload.workload import Product, Workload

__all__ = ["Product", "Strategy", "Workload", "select"]


def __getattr__(name: str) -> Any:
    """Return what the package exports, on use."""
    if name == "select":
        from dpsql.search.select import select  # scipy, which few that import this need

        return select
    if name == "Strategy":
        from dpsql.strategy.base import Strategy  # handed on; a circle otherwise

        return Strategy
    if name in ("Product", "Workload"):
        from dpsql.workload import workload  # handed on; a circle otherwise

        return getattr(workload, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
