"""Tools that know dpsql: SQLAlchemy by a dialect, IPython by a magic; optional, imported by them.

- ``alchemy``: the dialect ``dpsql:///catalog.toml`` with reflection
- ``magic``: ``%load_ext dpsql`` and ``%%dpsql``
- ``notebook``: where a long run tells how it goes on
"""
