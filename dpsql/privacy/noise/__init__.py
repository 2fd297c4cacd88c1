"""Exact samplers of noise, and choices among public candidates, from random bits."""
