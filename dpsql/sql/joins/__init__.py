"""Joins of private tables, along the privacy unit or a declared reference."""
