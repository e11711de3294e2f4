#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Keeps docs/field-cases.md and the tests equal: each test of the table exists, each row has one or says what is missing, and each
test that carries a case's name stands in that case's row.

Prints one line per finding and exits with 1 if there is any. Takes the project's root as its only argument.
"""
import pathlib
import re
import sys

TABLE = "docs/field-cases.md"
GROUPS = "CTX|TOK|TOOL|IMG|LOAD|QUAL"
ROW = re.compile(rf"^\| ((?:{GROUPS})-\d\d) \|(.*)\|([^|]*)\|$")
CPP_TEST = re.compile(r"^TEST(?:_F|_P)?\((\w+),\s*(\w+)\)", re.M)
PYTHON_TEST = re.compile(r"^ +def (test_\w+)\(", re.M)
CARRIES = re.compile(rf"(?:^|\.|^test_)({GROUPS})_?(\d\d)(?![0-9])", re.I)
MISSING = re.compile(r"not yet: \w")


def all_tests(root):
    """Every test by name, with the file that has it."""
    found = {}
    for folder in ("src", "tests"):
        for path in sorted((root / folder).rglob("*_test.*")):
            if path.suffix == ".cc":
                names = [f"{suite}.{name}" for suite, name in CPP_TEST.findall(path.read_text())]
            else:
                names = PYTHON_TEST.findall(path.read_text()) if path.suffix == ".py" else []
            found |= {name: path.relative_to(root).as_posix() for name in names}
    return found


def case_of(test):
    """The case whose name a test carries, or None."""
    match = CARRIES.search(test)
    return f"{match.group(1).upper()}-{match.group(2)}" if match else None


def check(root):
    tests = all_tests(root)
    listed, cases = set(), set()
    for number, line in enumerate((root / TABLE).read_text().split("\n"), 1):
        row = ROW.match(line)
        if not row:
            if re.match(rf"\|\s*({GROUPS})-", line):
                yield f"{TABLE}:{number}: not a row of the form | CASE | saw | does | tests |"
            continue
        case, told, names = row.group(1), row.group(2), re.findall(r"`([^`]+)`", row.group(3))
        if case in cases:
            yield f"{TABLE}:{number}: {case} has a row already"
        cases.add(case)
        if not names and not MISSING.search(told):
            yield f"{TABLE}:{number}: {case} has neither a test nor the words 'not yet: <part>'"
        for name in names:
            listed.add((case, name))
            if name not in tests:
                yield f"{TABLE}:{number}: there is no test {name}"
            elif case_of(name) != case:
                yield f"{TABLE}:{number}: the name of {name} does not say {case}"
    if not cases:
        yield f"{TABLE}: no row was found"
    for name, path in tests.items():
        if case_of(name) and (case_of(name), name) not in listed:
            yield f"{path}: {name} is not in the row of {case_of(name)} in {TABLE}"


def main():
    root = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else pathlib.Path(__file__).resolve().parents[2]
    problems = list(check(root))
    for text in problems:
        print(text)
    print(f"field cases: {len(problems)} problems")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
