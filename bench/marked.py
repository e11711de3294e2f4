# SPDX-License-Identifier: Apache-2.0
"""The parts of a Markdown file that programs write: what lies between the lines <!-- NAME --> and <!-- /NAME -->."""
import pathlib
import sys


def _split(path, name):
    """What comes before the part, the part, and what comes after it; the markers belong to the outer two."""
    begin, end = f"<!-- {name} -->\n", f"<!-- /{name} -->"
    text = pathlib.Path(path).read_text()
    if begin not in text or end not in text:
        sys.exit(f"{path} lacks the markers {begin.strip()} and {end}")
    before, rest = text.split(begin, 1)
    part, after = rest.split(end, 1)
    return before + begin, part, end + after


def read(path, name):
    return _split(path, name)[1].splitlines()


def write(path, name, lines):
    before, _, after = _split(path, name)
    pathlib.Path(path).write_text(before + "".join(line + "\n" for line in lines) + after)
