"""Graphical models of noisy marginals: numpy only, and nothing private.

- ``fit``: Fits of graphical models: the distribution of highest entropy that explains noisy
  marginals
- ``linear``: Candidates as linear maps on the marginal of the attributes they touch
- ``mbi_backend``: Private-PGM by the mbi package, behind the interface of ``dpsql.pgm.fit``
- ``model``: Graphical models: a distribution over many attributes as potentials of some cliques
- ``predict``: Errors of optimal Gaussian marginals, foretold from public sizes alone
- ``project``: Projections of noisy answers on what counts can be: non-negative with a known sum,
  monotone
- ``sample``: Synthetic rows from a model: free of budget, any number of times
- ``tree``: Junction trees: what a graphical model keeps tables for, and belief propagation on
  them
"""
