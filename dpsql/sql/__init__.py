"""SQL text to signed sums of products: stages 1 to 3, functions of the text and the catalog alone.

1. text -> ``Statement``: ``parse`` splits, checks limits and reads our own statements word by word
   (``lexemes``, ``clauses``, ``synthetic``); the grammar of SELECT is sqlglot's.
2. ``Statement`` -> ``Query``, frozen values without types of the parser (``query``): ``shape``
   finds which SELECTs are made flat (``inline``, ``result_subqueries``), which are measured
   (``bind``), and which are the outer shell. ``relations`` reads FROM and JOIN for all of them,
   ``names`` resolves names, in a measured SELECT by its ``scope``, which binds its conditions too.
   ``keys`` are of GROUP BY, ``aggregates`` of ``sums``; ``language`` lists what may be written,
   ``cell_edges`` what fits the declared cells.
3. ``Query`` -> ``Compiled`` (``compiled``): ``products`` writes every answer as a sum of products,
   conditions by ``evaluate`` on the declared values, keys by ``group_rows``. The outer shell
   becomes SQL over noisy tables: its ``expressions`` (``over_cells``, ``over_tables``,
   ``hoisted_subqueries``) stand in ``layers`` around ``tables``, with slopes by ``derivative`` and
   whole numbers by ``whole_numbers``. ``compose`` walks all three.

Its nouns: a *fragment* is the text of one statement, a *scope* the names of a measured SELECT, a
*relation* what stands in FROM, a *lookup* public rows joined to a column, a *summand* what one row
adds to a sum, a *term* a product of matrices, one for each column, and an *answer* a sum of terms.
"""
