"""The arguments of aggregates as sums of products."""
