"""The only code that reads rows: it turns a table into exact integer counts, and nothing else.

- ``data_engine``: what a data engine is, and what it hands over; ``plugins``: those of other
  packages; ``conformance``: their promises, tried
- ``files``: the engine of files, with ``formats`` for those that come as batches of Arrow
- ``servers``: the engines of servers, which count where the rows are
- ``codes``: fetched values to cells, and what these add up to
- ``unit``: the rows of a privacy unit, bounded, and brought together within it
- ``vault``: the vault over any engine; ``pushdown``: that of a table that a server counts

Who beside it sees rows is written in ``.importlinter``, under ``rows``.
"""
