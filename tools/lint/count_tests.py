#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Prints "PASSED FAILED SKIPPED" of a junit file that ctest wrote. A GoogleTest program counts as its cases, any other test as
one, a program that crashed as one failure, and a missing file as one failure too."""
import pathlib
import re
import sys
import xml.etree.ElementTree as xml


def case_counts(test):
    """(passed, failed, skipped) of one ctest test."""
    output = test.findtext("system-out") or ""
    of = lambda word: sum(int(n) for n in re.findall(rf"^\[  {word} +\] (\d+) tests?[.,]", output, re.M))
    passed, failed, skipped = of("PASSED"), of("FAILED"), of("SKIPPED")
    if test.get("status") == "run":
        return (passed, 0, skipped) if passed + skipped > 0 else (1, 0, 0)
    if test.get("status") == "disabled" or test.find("skipped") is not None and "SKIP" in test.find("skipped").get("message", ""):
        return 0, 0, 1
    return passed, max(failed, 1), skipped


def main():
    report = pathlib.Path(sys.argv[1])
    if not report.exists():
        print("0 1 0")
        return
    counts = [case_counts(test) for test in xml.parse(report).getroot().iter("testcase")]
    print(*(sum(column) for column in zip(*counts, (0, 0, 0))))


if __name__ == "__main__":
    main()
