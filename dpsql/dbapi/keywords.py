"""Words of SQL that are offered where it is typed: at the prompt, and in the editor of the page."""

KEYWORDS = (
    "SELECT", "FROM", "WHERE", "GROUP BY", "ORDER BY", "HAVING", "LIMIT", "AS", "AND", "OR", "NOT",
    "IN", "BETWEEN", "LIKE", "IS NULL", "IS NOT NULL", "CASE", "WHEN", "THEN", "ELSE", "END",
    "JOIN", "LEFT JOIN", "ON", "USING", "WITH DIFFERENTIAL_PRIVACY OPTIONS(",
    "ASC", "DESC", "FILTER", "DATE", "TRUE", "FALSE", "CREATE SYNTHETIC TABLE", "OPTIONS (",
    "FOR (", "FOR WORKLOAD", "INTO", "ROWS =",
)  # fmt: skip
STARTERS = (
    "SELECT", "WITH", "EXPLAIN", "SET", "SHOW", "DESCRIBE", "BEGIN WORKLOAD", "RUN WORKLOAD",
    "CANCEL WORKLOAD", "EXPLAIN RUN WORKLOAD", "ROLLBACK",
    "CREATE SYNTHETIC TABLE", "MATERIALIZE SYNTHETIC TABLE",
    "DESCRIBE SYNTHETIC TABLE", "CREATE DOMAIN", "CREATE BOUNDS", "DROP DOMAIN", "DROP BOUNDS",
    "DESCRIBE DOMAIN",
)  # fmt: skip
FUNCTIONS = (
    "COUNT(*)", "COUNT(", "SUM(", "AVG(", "DP_STDDEV(", "DP_INTERVAL_LOW(", "DP_INTERVAL_HIGH(",
    "date_trunc(", "lower(", "upper(", "floor(", "abs(",
)  # fmt: skip
