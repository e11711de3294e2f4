# SPDX-License-Identifier: Apache-2.0
"""Holds the built program against the expected values in tests/golden: one line per check, then "N passed, N failed".

    check.py [--program build/release/nanomind] [--chunks 8] [--answers 10] [--isa NAME] MODEL [MODEL ...]

MODEL is a path to a GGUF file, or a name that the program knows; its stem or name selects tests/golden/<name>.json.
The standard library only. Exit code 0 when all passed, 1 when a check failed, 2 for a wrong call, 77 when this
CPU cannot run the instruction set that was asked for. The rules:

- Token ids are equal, to the last one.
- A greedy answer is equal up to the first step at which the reference's best two logits are closer than 0.5.
- Perplexity is within 1 %, also of prompts read fast. With high precision log-probabilities of single tokens are within
  0.005 on average and 0.05 at most: 16-bit activations and halves in the cache cost SmolLM2, the most sensitive of our
  models, 0.0007 and 0.009. Activations of 8 bits would fail, with 0.056 and 0.27 (float_reference.py with
  round_to_int8_blocks).
"""

import argparse
import hashlib
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
MARGIN = 0.5  # logits
PERPLEXITY_SHARE = 0.01
MEAN_LOG_PROBABILITY, MAX_LOG_PROBABILITY = 0.005, 0.05  # nats


class Report:
    """Counts checks and prints one line for each."""

    def __init__(self):
        self.passed = self.failed = 0

    def line(self, passed, text):
        self.passed += passed
        self.failed += not passed
        print(("pass  " if passed else "FAIL  ") + text, flush=True)


class ProgramFailed(Exception):
    pass


class Program:
    def __init__(self, path, model, options):
        self.path, self.model, self.options = path, model, options

    def json(self, command, *arguments, text=""):
        """What `nanomind COMMAND MODEL … --json` prints, parsed."""
        call = [str(self.path), command, str(self.model), *arguments, "--json"]
        call += self.options if command != "tokenize" else []
        done = subprocess.run(call, input=text.encode(), capture_output=True)
        if done.returncode != 0:
            lines = done.stderr.decode(errors="replace").strip().splitlines() or ["(nothing on standard error)"]
            raise ProgramFailed(f"{command} exits with {done.returncode}: {lines[-1]}")
        try:
            return json.loads(done.stdout)
        except ValueError:
            raise ProgramFailed(f"{command} --json prints something else than JSON: {done.stdout[:80]!r}")


def digest(ids):
    return hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest()


def check_tokens(program, golden, report):
    for name, expected in golden["texts"].items():
        data = (ROOT / name).read_bytes()
        if hashlib.sha256(data).hexdigest() != expected["sha256"]:
            report.line(False, f"{name} has changed since its ids were written; run golden.py MODEL.gguf --only texts")
            continue
        ids = program.json("tokenize", text=data.decode())["ids"]
        same = digest(ids) == expected["ids_sha256"]
        detail = f"{len(ids)} ids" if same else f"{len(ids)} ids of {expected['tokens']}, or others"
        first = [i for i, (a, b) in enumerate(zip(ids, expected["first"])) if a != b]
        report.line(same, f"tokens of {name}: {detail}" + (f", from index {first[0]}" if first else ""))


def check_answer(program, row, report):
    raw = ["--raw"] if row["kind"] == "raw" else []
    answer = program.json("run", row["prompt"], *raw, "-n", "64", "--temp", "0")
    title = f"{row['kind']} {row['prompt'].strip()[:40]!r}: "
    if answer.get("prompt_tokens", len(row["prompt_ids"])) != len(row["prompt_ids"]):
        return report.line(False, title + f"{answer['prompt_tokens']} prompt tokens of {len(row['prompt_ids'])}")
    ids, expected = answer["ids"], row["ids"]
    pairs = zip(ids + [None] * len(expected), expected + [None] * (len(ids) - len(expected)))
    differing = [i for i, (a, b) in enumerate(pairs) if a != b]
    if not differing:
        return report.line(True, title + f"all {len(expected)} tokens")
    step = differing[0]
    margin = row["margins"][min(step, len(expected) - 1)]
    where = f"{step} of {len(expected)} tokens, then a step with margin {margin:.2f}"
    report.line(margin < MARGIN, title + where)


def check_perplexity(program, golden, chunks, precision, report):
    """Perplexity of some chunks; with high precision also every log-probability."""
    expected = golden["perplexity"]
    context = expected["context"]
    chunks = min(chunks, expected["chunks"])
    size = ["--ctx", str(context), "--chunks", str(chunks)]
    result = program.json("perplexity", str(ROOT / golden["text"]), *size, "--precision", precision)
    want = expected["log_probabilities"][: chunks * (context - context // 2 - 1)]
    value = math.exp(-sum(want) / len(want))
    share = result["perplexity"] / value - 1
    text = f"perplexity ({precision}) {result['perplexity']:.4f}, expected {value:.4f} ({100 * share:+.2f} %)"
    report.line(abs(share) <= PERPLEXITY_SHARE, text)
    if precision == "high":
        check_log_probabilities(result.get("logprobs", []), want, report)


def check_log_probabilities(have, want, report):
    if len(have) != len(want):
        text = f"{len(have)} log-probabilities, expected {len(want)}: positions ctx/2 to ctx-2 of each chunk"
        return report.line(False, text)
    errors = [abs(a - b) for a, b in zip(have, want)]
    mean = sum(errors) / len(errors)
    passed = mean <= MEAN_LOG_PROBABILITY and max(errors) <= MAX_LOG_PROBABILITY
    text = f"log-probabilities of {len(have)} tokens: off by {mean:.4f} on average, {max(errors):.3f} at most"
    report.line(passed, text)


def check_model(program, golden, arguments, report):
    checks = [lambda: check_tokens(program, golden, report)]
    checks += [lambda row=row: check_answer(program, row, report) for row in golden["answers"][: arguments.answers]]
    if arguments.chunks > 0:
        checks.append(lambda: check_perplexity(program, golden, arguments.chunks, "high", report))
        checks.append(lambda: check_perplexity(program, golden, arguments.chunks, "fast", report))
    for check in checks:
        try:
            check()
        except ProgramFailed as problem:
            report.line(False, str(problem))


def can_run(program, isa):
    call = [program, "run", ROOT / "tests/data/tiny-llama.gguf", "x", "--raw", "-n", "1", "--isa", isa]
    with tempfile.TemporaryDirectory() as packed:
        environment = os.environ | {"NANOMIND_PACKED": packed}
        done = subprocess.run(call, env=environment, capture_output=True, stdin=subprocess.DEVNULL)
    return done.returncode == 0 or b"cannot run kernels for" not in done.stderr


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+", metavar="MODEL")
    parser.add_argument("--program", type=Path, default=ROOT / "build/release/nanomind")
    parser.add_argument("--chunks", type=int, default=8, help="chunks of text that perplexity scores; 0: none")
    parser.add_argument("--answers", type=int, default=10, help="how many of the greedy answers to compare")
    parser.add_argument("--option", action="append", default=[], help="passed on to run and perplexity: --option=-t2")
    parser.add_argument("--isa", help="kernels to use; exit code 77 where this CPU cannot run them")
    arguments = parser.parse_args()
    if not arguments.program.exists():
        parser.error(f"{arguments.program} does not exist; build it with ./dev build")
    if arguments.isa and not can_run(arguments.program, arguments.isa):
        print(f"skipped: this CPU has no {arguments.isa}")
        sys.exit(77)
    if arguments.isa:
        arguments.option += ["--isa", arguments.isa]
    report = Report()
    for model in arguments.models:
        name = Path(model).stem if model.endswith(".gguf") else model
        path = ROOT / "tests/golden" / f"{name}.json"
        if not path.exists():
            known = sorted(p.stem for p in path.parent.glob("*.json") if "answers" in json.loads(p.read_text()))
            parser.error(f"there are no expected values for {name}; there are for {', '.join(known)}")
        print(f"{name}:", flush=True)
        golden = json.loads(path.read_text())
        check_model(Program(arguments.program, model, arguments.option), golden, arguments, report)
    print(f"{report.passed} passed, {report.failed} failed")
    sys.exit(1 if report.failed else 0)


if __name__ == "__main__":
    main()
