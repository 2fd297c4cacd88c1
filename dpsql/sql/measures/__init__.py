"""Measures: the arguments of aggregates as sums of products."""
