"""Codes of values, and arrays of them: encoded, combined, tallied, spilled to disk."""
