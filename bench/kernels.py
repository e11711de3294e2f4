#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The speed of the matrix kernels by type, rows and instruction set, on one thread, as a share of the limit measured in the same process.

  bench/kernels.py [--bench build/release/kernels_bench] [--isas avx2 avx512] [--seconds 0.1] [--write docs/numbers.md]

One row is bound by memory: GB/s of weights, and the share of a plain read. More rows are bound by products: billions of operations a
second (a product and a sum are two), and the share of the peak of the products that the ISA's integer kernels are made of. `few` carries
activations in two byte planes and `exact` in 16 bits, so that half of the peak is their ceiling (`few` counts both planes and can reach
all of it); `fast` has activations of 8 bits.

kernels_bench is built with -DNANOMIND_BUILD_BENCH=ON (Google Benchmark). --write puts the tables between the markers "kernels" of a
Markdown file.
"""
import argparse
import json
import os
import pathlib
import re
import subprocess
import sys

import marked

ROOT = pathlib.Path(__file__).resolve().parent.parent
KINDS = {"matmul": "few", "gemm": "exact", "gemm_fast": "fast"}
NAME = re.compile(r"(matmul|gemm|gemm_fast)/([^/]+)/m:(\d+)/real_time/threads:1$")


def measure(options, isa):
    """{(kind, type, rows): cell}"""
    done = subprocess.run(
        [options.bench, "--benchmark_filter=^(matmul|gemm|gemm_fast)/.*threads:1$", f"--benchmark_min_time={options.seconds}",
         "--benchmark_format=json"],
        env={**os.environ, "NANOMIND_ISA": isa}, capture_output=True, text=True)  # fmt: skip
    if done.returncode != 0:
        sys.exit(f"{options.bench} failed for {isa}:\n{done.stderr}")
    cells = {}
    for run in json.loads(done.stdout)["benchmarks"]:
        kind, dtype, rows = NAME.match(run["name"]).groups()
        if rows == "1":
            cell = f"{run['bytes/s'] / 1e9:.1f} ({run['of_read']:.0%})"
        else:
            cell = f"{run['ops/s'] / 1e9:.0f} ({run['of_peak']:.0%})" if "of_peak" in run else f"{run['ops/s'] / 1e9:.0f}"
        cells[KINDS[kind], dtype, int(rows)] = cell
    return cells


def table(isa, cells):
    columns = sorted({(kind, rows) for kind, _, rows in cells}, key=lambda c: (list(KINDS.values()).index(c[0]), c[1]))
    types = list(dict.fromkeys(dtype for _, dtype, _ in cells))
    lines = [f"| {isa} | " + " | ".join(f"{kind} {rows}" for kind, rows in columns) + " |", "|---|" + "--:|" * len(columns)]
    for dtype in types:
        lines.append(f"| {dtype} | " + " | ".join(cells.get((kind, dtype, rows), "") for kind, rows in columns) + " |")
    return "\n".join(lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--bench", default=ROOT / "build" / "release" / "kernels_bench")
    parser.add_argument("--isas", nargs="+", default=["avx2", "avx512"])
    parser.add_argument("--seconds", default="0.1")
    parser.add_argument("--write", type=pathlib.Path)
    options = parser.parse_args()
    text = "\n\n".join(table(isa, measure(options, isa)) for isa in options.isas)
    print(text)
    if options.write:
        marked.write(options.write, "kernels", text.splitlines())


if __name__ == "__main__":
    main()
