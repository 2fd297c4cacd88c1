"""The dialect of a session: what PostgreSQL means by a statement, read once and as DuckDB's SQL."""
