#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs check.py on a stand-in program that repeats the expected values, then with one of them spoilt at a time."""

import json
import os
import subprocess
import sys
import tempfile
import unittest
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GOLDEN = json.loads((ROOT / "tests/golden/smollm2-135m.json").read_text())

STAND_IN = """#!{python}
import json, sys
values = json.load(open({values!r}))
command, rest = sys.argv[1], sys.argv[3:]
if command == "tokenize":
    print(json.dumps({{"ids": values["tokens"].get(str(len(sys.stdin.buffer.read())), [])}}))
elif command == "run":
    print(json.dumps(values["answers"][rest[0] + " --raw" * ("--raw" in rest)]))
elif values["perplexity"] is None:
    sys.exit("perplexity: no such file")
else:
    print(json.dumps(values["perplexity"]))
"""


def key(row):
    return row["prompt"] + " --raw" * (row["kind"] == "raw")


def right_values():
    answers = {key(r): {"ids": list(r["ids"]), "prompt_tokens": len(r["prompt_ids"])} for r in GOLDEN["answers"]}
    perplexity = GOLDEN["perplexity"]
    return {
        "tokens": {},
        "answers": answers,
        "perplexity": {"perplexity": perplexity["value"], "logprobs": list(perplexity["log_probabilities"])},
    }


class CheckTest(unittest.TestCase):
    def check(self, values):
        """Exit code and printed lines for a program that gives these values, the check of token ids left aside."""
        with tempfile.TemporaryDirectory() as folder:
            (Path(folder) / "values.json").write_text(json.dumps(values))
            program = Path(folder) / "nanomind"
            program.write_text(STAND_IN.format(python=sys.executable, values=str(Path(folder) / "values.json")))
            os.chmod(program, 0o755)
            call = [sys.executable, str(HERE / "check.py"), "--program", str(program), "smollm2-135m"]
            done = subprocess.run(call, capture_output=True, text=True)
        lines = [line for line in done.stdout.splitlines() if "tokens of tests/" not in line]
        return done.returncode, lines

    def failures(self, values):
        return [line for line in self.check(values)[1] if line.startswith("FAIL")]

    def row(self, wanted):
        """The first answer, and its first step, whose margin is as wanted."""
        for row in GOLDEN["answers"]:
            for step, margin in enumerate(row["margins"]):
                if wanted(margin):
                    return row, step
        raise AssertionError("no such step")

    def test_expected_values_pass(self):
        self.assertEqual(self.failures(right_values()), [])

    def test_wrong_ids_fail(self):
        code, _ = self.check(right_values())
        self.assertEqual(code, 1)  # the stand-in has no token ids

    def test_another_token_at_a_sure_step_fails(self):
        values = right_values()
        row, step = self.row(lambda margin: margin > 1)
        values["answers"][key(row)]["ids"][step] += 1
        self.assertEqual(len(self.failures(values)), 1)

    def test_another_token_at_an_undecided_step_passes(self):
        values = right_values()
        row, step = self.row(lambda margin: margin < 0.4)
        values["answers"][key(row)]["ids"][step] += 1
        self.assertEqual(self.failures(values), [])

    def test_a_short_answer_fails(self):
        values = right_values()
        row, step = self.row(lambda margin: margin > 1)
        del values["answers"][key(row)]["ids"][step:]
        self.assertEqual(len(self.failures(values)), 1)

    def test_another_prompt_fails(self):
        values = right_values()
        values["answers"][key(GOLDEN["answers"][0])]["prompt_tokens"] += 1
        self.assertEqual(len(self.failures(values)), 1)

    def test_perplexity_two_percent_off_fails(self):
        values = right_values()
        values["perplexity"]["perplexity"] *= 1.02
        self.assertEqual(len(self.failures(values)), 2)  # high and fast

    def test_one_log_probability_far_off_fails(self):
        values = right_values()
        values["perplexity"]["logprobs"][7] -= 1.5
        self.assertEqual(len(self.failures(values)), 1)

    def test_all_log_probabilities_slightly_off_fails(self):
        values = right_values()
        values["perplexity"]["logprobs"] = [v - 0.15 for v in values["perplexity"]["logprobs"]]
        self.assertEqual(len(self.failures(values)), 1)

    def test_another_number_of_scored_tokens_fails(self):
        values = right_values()
        del values["perplexity"]["logprobs"][0]
        self.assertEqual(len(self.failures(values)), 1)

    def test_a_failing_command_is_a_failed_check(self):
        values = right_values()
        values["perplexity"] = None
        self.assertEqual(self.failures(values), 2 * ["FAIL  perplexity exits with 1: perplexity: no such file"])


if __name__ == "__main__":
    unittest.main()
