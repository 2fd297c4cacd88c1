"""Search for the strategy of least expected error for a workload (stage 5).

Problem: a workload as searches see it: traces of its factors, weights of its components.
Components: all subsets of attributes that are asked together, each with its weight R_c.
Union: blocks that share one p-Identity factor per attribute. Family: the blocks to choose from.
Objective: the exact error of a union as a function of its parameters. Found: one with its error.
SearchLimits: which blocks one search may use, and how much work it may do.
WeightSearch: descents over few blocks at a time, each to a LocalOptimum, and hops between them.
Traces: what the residual planner knows of an attribute.
Reach: which blocks may come in where shares are tried anew.
LowRank: queries of which combinations are measured, where they are fewer than the cells.
Reduction: a workload less its symmetry. Symmetric: the optimum there.
CellBasis: eigenvectors that the Grams of an attribute have in common, for lower bounds.
Group: products over the same attributes, with a block of their own.
Selection: the strategy that is taken, with a lower bound on all others.

``select`` tries the families one by one, cheapest first; ``strategy_cache`` remembers what it
found.
"""
