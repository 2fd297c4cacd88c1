"""The only code that sees rows: it turns a table into exact integer counts, and nothing else.

- data_engine: what a data engine is, and what it hands over; plugged: those of other packages;
  conformance: their promises, tried
- servers: the engines of servers; postgresql, with postgresql_session, postgresql_sql and copied;
  spark, with spark_session, spark_footers and spark_sql
- counter: engines that count where the rows are; dialect: the leaves of their SQL; code_sql: codes
  of rows; group_sql: one covering set; pushed: what a vault lets a server keep and count
- held: one snapshot for a request; versions: of tables that change while they are read
- duckdb: the engine of files; source: files, their schema and the locked DuckDB; arrow_stream: what
  it hands over, as arrays; lines: CSV
- encode: fetched numbers to cells; rows: the rows of a table, and their view; tally: what they add;
  node_weights: how that is split between the nodes of a number
- distinct: which privacy units have which keys of a column that nobody listed
- vault: the vault over any engine

Only the doors and ``dpsql.privacy.vaults`` may import this package.
"""
