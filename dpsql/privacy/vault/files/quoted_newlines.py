"""Rows of CSV whose quoted fields hold line ends: lines that are one row, joined into one.

Only for files that declare ``quoted_newlines``, by which the curator vouches that every quote is
written as CSV has it. Where that is so, the rows of a file are those of its parts. A line that is
written otherwise can take lines after it with it only if all together are a row.

A line with an odd number of quotes leaves one open, and the next such line closes it: those in
between have an even number, which changes nothing. So each line is looked at twice at most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator

from dpsql.privacy.vault.files.text_files import LONGEST

NEWLINE = "\ufdd0"
"""The character, none of any text, that stands for a line end within a row."""
_NEWLINE = NEWLINE.encode()


def join_lines(blocks: Iterable[bytes], is_row: Callable[[bytes], bool]) -> Iterator[bytes]:
    """Yield blocks of lines, in which each row is one line.

    Args:
        blocks: lines between newlines, a few at a time.
        is_row: tells whether a line, of several joined by ``NEWLINE``, is a row.

    >>> two = [b'1,"a', b'b"\\n2,"c', b'3,d']
    >>> [each.decode() for each in join_lines(two, lambda line: line.startswith(b"1"))]
    ['1,"a\\ufdd0b"', '2,"c\\n3,d']
    """
    held: list[bytes] = []  # a line that leaves a quote open, and all after it
    for block in blocks:
        done, held = _joined(held, block.split(b"\n"), is_row)
        if sum(map(len, held)) > LONGEST:
            done, held = [*done, *held], []
        if done:
            yield b"\n".join(done)
    if held:
        yield b"\n".join(held)


def _joined(
    held: list[bytes], lines: list[bytes], is_row: Callable[[bytes], bool]
) -> tuple[list[bytes], list[bytes]]:
    """Return lines of which each is a row or none, and those that may go on."""
    found: list[bytes] = []
    for line in lines:
        is_odd = line.count(b'"') % 2 == 1
        if not held and not is_odd:
            found.append(line)
        elif not held:
            held = [line]
        elif not is_odd:
            held.append(line)
        else:
            whole = _NEWLINE.join(each.removesuffix(b"\r") for each in (*held, line))
            if len(whole) <= LONGEST and is_row(whole):
                found, held = [*found, whole], []
            else:
                found, held = [*found, *held], [line]
    return found, held
