"""Strategies for the queries over one attribute."""
