"""Servers that count where the rows are: SQL that they are sent, sessions, versions."""
