"""The only code that sees rows: it turns a table into exact integer counts, and nothing else.

- data_engine: what a data engine is, and what it hands over; plugged: those of other packages;
  conformance: their promises, tried
- duckdb: the engine of files; source: files, their schema and the locked DuckDB; lines: CSV
- encode: fetched numbers to cells; rows: the rows of a table, and their view; tally: what they add
- distinct: which privacy units have which keys of a column that nobody listed
- vault: the vault over any engine

Nothing outside ``dpsql.privacy.measure`` may import this package.
"""
