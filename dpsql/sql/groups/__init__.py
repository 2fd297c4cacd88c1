"""GROUP BY, its keys and sets, and the groups that no row is in."""
