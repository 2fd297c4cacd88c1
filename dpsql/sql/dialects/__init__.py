"""Words and functions of other databases, written as DuckDB knows them."""
