"""Strategies: integer rows to measure, their forecast and their least squares (stages 5, 6, 9).

Strategy: what is measured on a table: blocks, and the shares of the budget that they get.
Block: integer rows with noise of their own.
Forecast: the exact error of every answer, from public facts.
Estimate: what the noisy numbers say, by least squares.
Axis: the least-squares constants of one attribute; StructuredAxis: those of rows never formed.
Partitions: which cells separate blocks tell apart; a BlockTable is what one of them knows, its
Side where it agrees with the others: Dependencies of small tables, Equalities of large ones.

There are four kinds: products that share a matrix per attribute (``product``), products that do not
(``separate``), rows on interchangeable cells (``symmetric``), and the queries themselves
(``queries``). Each is registered by its module, under the name by which files know it.
"""
