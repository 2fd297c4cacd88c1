"""Sub-queries: rows compared with answers, EXISTS, IN, and scalar values."""
