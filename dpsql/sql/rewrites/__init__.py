"""Rewrites of forms of SQL that mean other SQL, before names are looked up."""
