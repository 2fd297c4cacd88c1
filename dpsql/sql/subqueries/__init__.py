"""Rows compared with answers, EXISTS, IN, and scalar sub-queries."""
