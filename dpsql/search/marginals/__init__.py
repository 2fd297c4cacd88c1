"""Strategies for unions of marginals, by components: the residual planner."""
