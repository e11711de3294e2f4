#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What guessing ahead brings: the same question with and without --draft, in turns A B A B, greedy.

draft.py MODEL [--draft lookup|MODEL] [--turns N] [--question FILE]

Prints the ratio of median decode speeds, how many guesses were right, and whether all texts were equal. Without a question a
copy-heavy one is asked: to repeat a piece of code with a small change.
"""
import argparse
import json
import os
import pathlib
import statistics
import subprocess

ROOT = pathlib.Path(__file__).resolve().parents[1]
PROGRAM = os.environ.get("NANOMIND", str(ROOT / "build/release/nanomind"))

COPY_HEAVY = '''Repeat the following Python code exactly, with the function name changed to total:

def compute_sum(values, start=0, verbose=False):
    """Add up all of the values, beginning with start."""
    result = start
    for index, value in enumerate(values):
        if verbose:
            print(f"adding item {index} with value {value} to {result}")
        result += value
    if verbose:
        print(f"the final result is {result}")
    return result
'''


def ask(model, question, *flags):
    done = subprocess.run([PROGRAM, "run", model, question, "--temp", "0", "-n", "300", "--json", *flags],
                          stdin=subprocess.DEVNULL, capture_output=True, text=True, check=True)
    return json.loads(done.stdout)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--draft", default="lookup")
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--question", type=pathlib.Path)
    arguments = parser.parse_args()
    question = arguments.question.read_text() if arguments.question else COPY_HEAVY

    plain, drafted = [], []
    for _ in range(arguments.turns):
        plain.append(ask(arguments.model, question))
        drafted.append(ask(arguments.model, question, "--draft", arguments.draft))
    speed = [statistics.median(answer["timings"]["decode_tok_s"] for answer in answers) for answers in (plain, drafted)]
    guesses = drafted[-1].get("draft", {"guessed": 0, "accepted": 0})
    equal = len({answer["text"] for answer in plain + drafted}) == 1
    print(f"plain {speed[0]:.1f} tok/s, with guesses {speed[1]:.1f} tok/s: ratio {speed[1] / speed[0]:.2f}; "
          f"{guesses['accepted']} of {guesses['guessed']} guesses were right; "
          f"{'all texts equal' if equal else 'TEXTS DIFFER'}")
    return 0 if equal else 1


if __name__ == "__main__":
    raise SystemExit(main())
