"""Helpers that exist in the test tree only."""
