"""Files of data: their names, forms, schemas and rows, as DuckDB and pyarrow read them."""
