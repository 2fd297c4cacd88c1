"""The modules that planning needs: imported once, by the process that others are forked from."""

import gc
from importlib import import_module
from pkgutil import walk_packages

PACKAGES = (
    "algebra answer catalog dialect learn logical pgm plan relation search sql strategy workload"
)
MODULES = ("adaptive", "error_targets", "explain", "planning_processes")

for package in PACKAGES.split():
    whole = import_module(f"dpsql.{package}")
    for found in walk_packages(whole.__path__, f"{whole.__name__}."):
        import_module(found.name)
for name in MODULES:
    import_module(f"dpsql.engine.{name}")
gc.freeze()  # pages that no collection touches are shared
