#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the sources of a build, skipping those that passed before and did not change since.

A source is remembered by the hash of itself, of the headers of src/ that it includes, of its compile command and of .clang-tidy, the
project's and its folder's, so a change of one header checks again exactly the files that see it. Exits with 1 if clang-tidy found
anything.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
CLANG_TIDY = "clang-tidy-19"


@functools.cache
def included_by(path):
    """The files of src/ that `path` includes itself."""
    names = re.findall(r'^\s*#\s*include\s*"([^"]+)"', path.read_text(errors="replace"), re.M)
    return [SRC / name for name in names if (SRC / name).is_file()]


def fingerprint(path, command):
    seen, waiting = set(), [path]
    while waiting:
        current = waiting.pop()
        if current not in seen:
            seen.add(current)
            waiting += included_by(current)
    digest = hashlib.sha256(command.encode() + (ROOT / ".clang-tidy").read_bytes())
    folder = path.parent / ".clang-tidy"
    digest.update(folder.read_bytes() if folder.exists() else b"")
    for file in sorted(seen):
        digest.update(str(file).encode() + file.read_bytes())
    return digest.hexdigest()


def run_tidy(build, path):
    done = subprocess.run([CLANG_TIDY, "--quiet", "-p", build, path], capture_output=True, text=True, check=False)
    return done.returncode == 0, done.stdout + ("" if done.returncode == 0 else done.stderr)


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--build", required=True, help="build folder with compile_commands.json")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("files", nargs="*", help="only these sources (default: all of the build)")
    arguments = parser.parse_args()

    build = pathlib.Path(arguments.build)
    commands = {pathlib.Path(c["file"]): c["command"] for c in json.loads((build / "compile_commands.json").read_text())}
    wanted = {pathlib.Path(name).resolve() for name in arguments.files} or set(commands)
    cache = build / "tidy.cache"
    passed = set(cache.read_text().split()) if cache.exists() else set()
    prints = {path: fingerprint(path, commands[path]) for path in sorted(wanted & set(commands)) if SRC in path.parents}
    changed = [path for path, mark in prints.items() if mark not in passed]

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for path, (ok, output) in zip(changed, pool.map(functools.partial(run_tidy, build), changed)):
            if ok:
                passed.add(prints[path])
            else:
                failures += 1
                print(output.strip())
    cache.write_text("\n".join(sorted(passed & set(prints.values()))))
    print(f"tidy: {len(prints)} files, {len(changed)} checked, {failures} with findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
