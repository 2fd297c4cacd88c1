"""Strategies that treat cells or queries alike which are."""
