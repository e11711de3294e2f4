#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks that the object files of ISA folders can do no harm to a CPU without that ISA.

Such a file is compiled with flags that not every CPU can run. It must define exactly one external symbol, its install
function, and no weak one: the linker may keep its copy of an inline function for the whole program. Takes a build folder,
prints one line per finding and exits with 1 if there is any.
"""
import pathlib
import re
import subprocess
import sys

# scalar and neon are not listed: their code runs on every CPU of its architecture.
ISA_FOLDERS = {"avx2", "avx512", "amx", "dotprod", "i8mm"}
# Letters of nm for defined symbols that other files can see; lower case is local, except for these three.
WEAK = set("wWvVu")
INSTALL = re.compile(r"^nanomind::(\w+)::install_\w+\(nanomind::KernelTable&\)$")


def isa_objects(build):
    """Object files below `build` whose source lies in kernels/cpu/<isa>/."""
    for path in sorted(build.rglob("*.o")):
        if path.parent.name in ISA_FOLDERS and path.parent.parent.name == "cpu":
            yield path


def defined_symbols(path, nm):
    """(letter, name) of every symbol that the object defines."""
    text = subprocess.run([nm, "--defined-only", "--demangle", str(path)], check=True, capture_output=True, text=True).stdout
    for line in text.splitlines():
        _, letter, name = line.split(maxsplit=2)
        yield letter, name


def check(path, symbols):
    """Findings for one object."""
    # Sanitizers mark each object with weak or common symbols of their own.
    symbols = [(letter, name) for letter, name in symbols if not name.startswith(("__asan", "__odr_asan", "__ubsan", "asan."))]
    external = [name for letter, name in symbols if letter.isupper() and letter not in WEAK]
    for name in (name for letter, name in symbols if letter in WEAK):
        yield f"{path}: weak symbol {name}"
    if len(external) != 1:
        yield f"{path}: {len(external)} external symbols instead of one: {', '.join(external) or 'none'}"
    for name in external:
        match = INSTALL.match(name)
        if not match or match[1] != path.parent.name:
            yield f"{path}: {name} is not an install function of {path.parent.name}"


def main(arguments):
    build = pathlib.Path(arguments[1]) if len(arguments) > 1 else pathlib.Path("build/release")
    nm = arguments[2] if len(arguments) > 2 else "nm"
    objects = list(isa_objects(build))
    findings = [finding for path in objects for finding in check(path, defined_symbols(path, nm))]
    if not objects:
        findings.append(f"{build}: no object file of an ISA folder; build the program first")
    print("\n".join(findings) or f"{len(objects)} object files, each with one install function")
    return 1 if findings else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv))
