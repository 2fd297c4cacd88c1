"""Implicit matrices: rows of questions over cells that are never written out; numpy only.

- ``blocks``: One-attribute building blocks: points, totals, running totals and explicit rows
- ``fading``: Running totals that fade: older cells count for less, in steps; the rows are never
  formed
- ``groups``: Sums over disjoint classes of cells, in memory that grows with the cells alone
- ``integer_rows``: Integer rows that can be measured: a Kronecker product, or rows on orbits of
  cells
- ``kron``: Kronecker products, applied one attribute at a time and never formed
- ``levels``: A hierarchy of intervals: level by level the cells are cut finer; its rows are never
  formed
- ``marginals``: The algebra of marginals over d attributes, as arrays of shape (2, ..., 2)
- ``operator``: The list of questions every implicit matrix answers
- ``orbits``: Interchangeable cells of one attribute, and the parts of queries that they separate
- ``ranges``: Interval sums: all ranges, chosen ranges, trees of ranges; their rows are never
  formed
- ``stepwise``: Rows of many cells that change at few of them, as pieces of one entry each
- ``worst``: The cell of a domain in which a sum of products is largest: exact, or never less
"""
