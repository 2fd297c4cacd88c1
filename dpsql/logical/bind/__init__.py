"""The binder: a syntax tree and a schema to a plan. Only here is a name looked up."""
