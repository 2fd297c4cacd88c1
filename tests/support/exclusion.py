"""A contract of import-linter by exclusion: everybody is forbidden an import but a reasoned list.

A list of sources leaves out every module that is written after it; a list of exceptions does not.
"""

from __future__ import annotations

from fnmatch import fnmatchcase

from grimp import ImportGraph
from importlinter import Contract, ContractCheck, fields, output


class ExclusionContract(Contract):
    """Only the modules under ``allowed`` may import the ``forbidden`` modules.

    An entry of ``allowed`` is ``pattern: reason``; in a pattern ``*`` stands for any text, dots
    included. With ``indirectly``, chains of imports count as well.
    """

    type_name = "exclusion"

    forbidden = fields.ListField(subfield=fields.StringField())
    allowed = fields.ListField(subfield=fields.StringField())
    indirectly = fields.BooleanField(required=False, default=False)

    def check(self, graph: ImportGraph, verbose: bool) -> ContractCheck:
        broken = [
            (importer, target)
            for target in self._targets(graph)
            for importer in sorted(self._importers(graph, target))
            if not self._is_allowed(importer)
        ]
        unused = [each for each in self._entries() if not self._covers(graph, each[0])]
        return ContractCheck(
            kept=not (broken or unused), metadata={"broken": broken, "unused": unused}
        )

    def render_broken_contract(self, check: ContractCheck) -> None:
        for importer, target in check.metadata["broken"]:
            output.print_error(f"{importer} -> {target}")
        for pattern, reason in check.metadata["unused"]:
            output.print_error(f"no module needs the exception {pattern!r} ({reason!r})")

    def _entries(self) -> list[tuple[str, str]]:
        pairs = [entry.partition(":") for entry in self.allowed]  # type: ignore[attr-defined]
        return [(pattern.strip(), reason.strip()) for pattern, _, reason in pairs]

    def _targets(self, graph: ImportGraph) -> list[str]:
        """The forbidden modules and all that is inside them; one that does not exist is one too."""
        found: list[str] = []
        for name in self.forbidden:  # type: ignore[attr-defined]
            inside = name in graph.modules and not graph.is_module_squashed(name)
            found += [name, *(sorted(graph.find_descendants(name)) if inside else ())]
        return [name for name in found if name in graph.modules]

    def _importers(self, graph: ImportGraph, target: str) -> set[str]:
        if self.indirectly:
            found = set(graph.find_downstream_modules(target))
        else:
            found = set(graph.find_modules_that_directly_import(target))
        return found - set(self._targets(graph))

    def _is_allowed(self, module: str) -> bool:
        return any(fnmatchcase(module, pattern) for pattern, reason in self._entries() if reason)

    def _covers(self, graph: ImportGraph, pattern: str) -> bool:
        """Whether an exception is still needed by some module."""
        targets = self._targets(graph)
        importers = {each for target in targets for each in self._importers(graph, target)}
        return not targets or any(fnmatchcase(each, pattern) for each in importers)
