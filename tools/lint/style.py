#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Checks the rules of docs/style.md that a script can check: sizes, first lines, and words that do not belong in the sources.

Prints one line per finding, `warning:` for the soft limits, and exits with 1 if anything else was found. Takes the project's
root as its only argument (default: the one this file is in), so that its own test can run it on made-up trees.
"""
import pathlib
import re
import sys

FOLDERS = ["src", "fuzz", "bench", "tests", "tools", "rust", "cmake", ".ci"]
ROOT_FILES = ["dev"]
CPP = {".cc", ".h"}
OTHER = {".py", ".sh", ".rs"}
BUILD_FILES = {".cmake", ".txt"}

FILE_SOFT, FILE_HARD = 400, 800
FUNCTION_SOFT, LONG_FUNCTIONS_MAX = 70, 0.03

# The library neither prints nor exits; CHECK and the log's default sink are the two places that do.
PRINTING = re.compile(r"\b(std::cout|std::cerr|(std::|fmt::)?v?f?print(f|ln)?\s*\(|(std::)?f?puts\s*\(|(std::)?(quick_)?exit\s*\(|_exit\s*\(|"
                      r"(std::)?abort\s*\()")
MAY_PRINT = re.compile(r"src/cli/|src/base/(result\.h|log\.(h|cc))$|fuzz/|bench/|tests/|.*_(test|bench)\.cc$")
LATER = re.compile(r"\b(TO" r"DO|FIX" r"ME|X" r"XX)\b")
MACHINE_PATH = re.compile(r"(?<![\w.])/(work|farm|home|root|Users)/[\w.]")


def strip_text(source):
    """The source with comments and literals blanked out and every line break kept."""
    blank = lambda match: re.sub(r"[^\n]", " ", match.group())
    literal = r'R"(?P<d>[^(\s]*)\(.*?\)(?P=d)"|"(?:\\.|[^"\\\n])*"|(?<![0-9a-fA-F])\'(?:\\.|[^\'\\\n])+\''
    return re.sub(rf"{literal}|//[^\n]*|/\*.*?\*/", blank, source, flags=re.S)


def functions(code):
    """(first line, number of lines) of each function body in stripped C++ code, found by matching braces."""
    code = re.sub(r"^[ \t]*#(?:[^\n]*\\\n)*[^\n]*", lambda m: re.sub(r"[^\n]", " ", m.group()), code, flags=re.M)
    scopes, start, found = [], 0, []  # scopes: (kind, position of the first character of what introduced it)
    for match in re.finditer(r"[{};]", code):
        if match.group() == "{":
            head = code[start:match.start()]
            if any(kind == "function" for kind, _ in scopes):
                kind = "inner"
            elif re.search(r"\b(namespace|extern)\b", head) or (
                    re.search(r"\b(class|struct|union|enum)\b", head) and not re.search(r"\)\s*(const|noexcept|override)*\s*$", head)):
                kind = "scope"
            else:
                kind = "function" if "(" in head else "inner"
            scopes.append((kind, start + len(head) - len(head.lstrip())))
        elif match.group() == "}" and scopes:
            kind, begin = scopes.pop()
            if kind == "function":
                found.append((code.count("\n", 0, begin) + 1, code.count("\n", begin, match.end()) + 1))
        start = match.end()
    return found


def first_lines(path, lines):
    """What is wrong with the first lines of a source, if anything."""
    if lines and lines[0].startswith("#!"):
        lines = lines[1:]
    mark = "//" if path.suffix in CPP | {".rs"} else "#"
    if not lines or lines[0] != f"{mark} SPDX-License-Identifier: Apache-2.0":
        yield 1, f"the first line must be '{mark} SPDX-License-Identifier: Apache-2.0'"
        return
    described_in_header = path.suffix == ".cc" and path.with_suffix(".h").exists()
    says = lines[1].strip() if len(lines) > 1 else ""
    if not described_in_header and not re.match(r'(//[/!]?|#|r?""")\s*[^\s#/].{10,}', says):
        yield 2, "the line after the licence must say what the file is about"


def check_cpp(name, source, code):
    """Findings of a C++ source as (line, text)."""
    if name.endswith(".h") and "\n#pragma once\n" not in source:
        yield 1, "a header needs #pragma once"
    plain = code if name.endswith("_test.cc") else source
    for number, (bare, stripped) in enumerate(zip(plain.split("\n"), code.split("\n")), 1):
        if not bare.isascii():
            yield number, "only ASCII here; write other characters as escapes"
        if not MAY_PRINT.match(name) and PRINTING.search(stripped):
            yield number, "the library neither prints nor exits: return an Error, or log"


def project_files(root):
    candidates = [root / name for name in ROOT_FILES]
    for folder in FOLDERS:
        candidates += (root / folder).rglob("*")
    for path in sorted(candidates):
        relative = path.relative_to(root)
        known = path.suffix in CPP | OTHER | BUILD_FILES or relative.name in ROOT_FILES or relative.parts[0] == ".ci"
        if path.is_file() and known and not {"corpora", "data", "target", "__pycache__"} & set(relative.parts):
            yield path


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    problems, warnings, files, total, long = [], [], 0, 0, 0
    for path in project_files(root):
        files += 1
        name = path.relative_to(root).as_posix()
        source = path.read_text(errors="replace")
        lines = source.split("\n")
        found = []
        if path.suffix not in BUILD_FILES:
            found += first_lines(path, lines)
        for number, line in enumerate(lines, 1):
            if "\t" in line:
                found.append((number, "a tab"))
            if LATER.search(line):
                found.append((number, "do it, or write it down where plans are kept"))
            if MACHINE_PATH.search(line):
                found.append((number, "a path of somebody's machine"))
        if len(lines) > FILE_HARD:
            found.append((1, f"{len(lines)} lines; at most {FILE_HARD}"))
        elif len(lines) > FILE_SOFT and path.suffix in CPP | OTHER:
            warnings.append(f"{name}:1: {len(lines)} lines; more than {FILE_SOFT} is worth a split")
        if path.suffix in CPP:
            code = strip_text(source)
            found += check_cpp(name, source, code)
            for line, length in functions(code):
                total += 1
                if length > FUNCTION_SOFT:
                    long += 1
                    warnings.append(f"{name}:{line}: a function of {length} lines; more than {FUNCTION_SOFT} is worth a split")
        problems += [f"{name}:{number}: {text}" for number, text in sorted(found)]
    if long > LONG_FUNCTIONS_MAX * total:
        problems.append(f"{long} of {total} functions are longer than {FUNCTION_SOFT} lines; at most {LONG_FUNCTIONS_MAX:.0%}")
    for text in warnings:
        print(f"warning: {text}")
    for text in problems:
        print(text)
    print(f"style: {files} files, {total} functions, {len(warnings)} warnings, {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
