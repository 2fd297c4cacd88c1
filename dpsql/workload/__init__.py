"""The workload: queries as a weighted union of Kronecker products over few cells (stage 4).

Term: one matrix per column, times polynomials of measures; an answer is a signed sum of terms.
Polynomial: a term's part in a bounded measure. Pattern: a condition over several columns.
Product: a term over cells. Workload: products with weights over one domain.
WeightedAnswer: the terms of one answer, and how much its error counts.
Layout: a workload on the fewest cells, and how every answer is read off it.
Coarsening: a smaller workload, in which cells that no query tells apart are one.
Module ``repeated_blocks``: attributes of which every cell has the same problem are planned once.
Cells, Nodes, Unions, Steps: how rows become the cells of an attribute.
Weights: what one row adds to the cells of a block, and how it is split between nodes.
"""
