"""The logical plan: a statement with its names bound, as ten kinds of relational operators.

``bind`` looks names up, once; after it no name is looked up. Columns are numbered. Expressions
over one row, aggregates and windows are different types: an aggregate in WHERE cannot be written.
"""
