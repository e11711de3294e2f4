#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs clang-tidy over the sources of a build, skipping those that passed before and did not change since.

A source is remembered by the hash of itself, of the headers of src/ that it includes, of its compile command, of the program's version
and of .clang-tidy, the project's and its folder's, so a change of one header checks again exactly the files that see it. What passed is
remembered for every checkout of this user, in XDG_CACHE_HOME/nanomind-dev/tidy, and forgotten a month after its last use. Exits with 1
if clang-tidy found anything.
"""
import argparse
import concurrent.futures
import functools
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parents[2]
SRC = ROOT / "src"
CLANG_TIDY = "clang-tidy-19"
PASSED = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "nanomind-dev" / "tidy"
MONTH = 30 * 24 * 3600  # seconds


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
    digest = hashlib.sha256(command.replace(str(ROOT), "").encode() + version() + (ROOT / ".clang-tidy").read_bytes())
    folder = path.parent / ".clang-tidy"
    digest.update(folder.read_bytes() if folder.exists() else b"")
    for file in sorted(seen):
        digest.update(str(file.relative_to(ROOT)).encode() + file.read_bytes())
    return digest.hexdigest()


@functools.cache
def version():
    return subprocess.run([CLANG_TIDY, "--version"], capture_output=True, check=True).stdout


def forget_old():
    for mark in PASSED.iterdir():
        if time.time() - mark.stat().st_mtime > MONTH:
            mark.unlink(missing_ok=True)


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
    PASSED.mkdir(parents=True, exist_ok=True)
    forget_old()
    prints = {path: fingerprint(path, commands[path]) for path in sorted(wanted & set(commands)) if SRC in path.parents}
    marks = {path: PASSED / mark for path, mark in prints.items()}
    changed = [path for path, mark in marks.items() if not mark.exists()]

    failures = 0
    with concurrent.futures.ThreadPoolExecutor(arguments.jobs) as pool:
        for path, (ok, output) in zip(changed, pool.map(functools.partial(run_tidy, build), changed)):
            if ok:
                marks[path].touch()
            else:
                failures += 1
                print(output.strip())
    for mark in marks.values():  # those of earlier runs are in use
        if mark.exists():
            mark.touch()
    print(f"tidy: {len(prints)} files, {len(changed)} checked, {failures} with findings")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(main())
