"""The only code that sees rows: it turns a table into exact integer counts, and nothing else.

Nothing outside ``dpsql.privacy.measure`` may import this package.
"""
