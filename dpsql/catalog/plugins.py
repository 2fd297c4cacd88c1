"""Extensions: parts that other installed packages add to dpsql, found by entry point."""

from __future__ import annotations

from collections.abc import Callable

from dpsql.errors import OperationalError, printable


def plugged(group: str, name: str, unusable: Callable[[str, str], OperationalError]) -> object:
    """Return what an installed package declares by an entry point, None where none does.

    Args:
        group: entry point group, such as that of data engines.
        name: of the entry point, as a catalog or setting has it.
        unusable: makes the error of a name and of why it cannot be used.

    Raises: the error that ``unusable`` makes, when the entry point cannot be loaded or several
    packages declare it.
    """
    from importlib.metadata import entry_points  # 20 ms, for names that are not our own

    points = {(each.value, each) for each in entry_points(group=group, name=name)}
    if not points:
        return None
    if len(points) > 1:
        raise unusable(name, "several installed packages declare it")
    try:
        return points.pop()[1].load()
    except Exception as failure:
        raise unusable(name, f"it cannot be loaded: {printable(str(failure))}") from failure
