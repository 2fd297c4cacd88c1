"""Data-dependent mechanisms: they choose what to measure, and look only through a handle.

- ``batches``: Batches of clipped sums: choose where to clip, measure one design, answer, order
- ``candidates``: Public facts of candidates: sizes, sensitivities, expected noise, and answers of
  many at once
- ``choose``: Choice of the mechanism that suits a workload, decided from public facts alone
- ``design``: Designs of a batch of sum queries for a given clipping threshold: five named
  algorithms
- ``factored``: A table as a product of parts over disjoint attribute sets, and how measurements
  reweight it
- ``fixed``: A strategy of the matrix mechanism measured through a handle: one joint release, no
  choices
- ``handle``: The interface of adaptive mechanisms to private data: their queries, and what they
  return
- ``mwem``: MWEM: measure what the model gets most wrong, then reweight the model until it fits
- ``predicates``: Single queries, products of one predicate per attribute, evaluated in batches
- ``rap``: RAP: relaxed one-hot rows, fitted to adaptively chosen queries
- ``relaxed``: Mixtures of product distributions, and how they are fitted to noisy answers
- ``schedule``: The budget of a run divided over rounds, and its declared constants
- ``summed``: A statement with a clip: which column it sums, over which rows, and in which nested
  groups
- ``targets``: Noisy answers as a squared error on a table of blocks, and patterns over several
  columns
- ``task``: One adaptive run from beginning to end: public facts in, a model out
- ``thresholds``: Thresholds to clip values at: private choices on a public grid, a free one after
  the fact
- ``transcript``: Lines of what a run was told, look by look, and what it ended with
- ``whole_marginals``: Measure whole marginals, chosen round by round where the model is worst
"""
