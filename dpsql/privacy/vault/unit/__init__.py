"""Rows of privacy units: numbered, bounded, and brought together within one unit."""
