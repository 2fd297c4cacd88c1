"""Strategies for unions of products: OPT_kron, OPT_+, OPT_M, COA and joint descent."""
