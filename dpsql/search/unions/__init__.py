"""Strategies for unions of products by OPT_kron, OPT_+, OPT_M, COA and joint descent."""
