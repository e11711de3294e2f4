#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs field_cases.py on made-up trees: each rule is broken once, in a tree that is otherwise right."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("field_cases.py")
HEAD = "| case | users saw | nanomind | tests |\n|---|---|---|---|\n"
TOK = "| TOK-01 | slow | linear | `Bpe.Tok01Linear` `test_tok_01_runs` |\n"
QUAL = "| QUAL-06 | bad | not yet: pictures | |\n"
RIGHT = {
    "docs/field-cases.md": HEAD + TOK + QUAL,
    "src/text/bpe_test.cc": "TEST_P(Bpe, Tok01Linear) {}\nTEST(Bpe, TokensTake100) {}\n",
    "tests/field/answers_test.py": "class A:\n    def test_tok_01_runs(self):\n        pass\n\n    def test_tokens(self):\n        pass\n",
}


def run(changes):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in (RIGHT | changes).items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        done = subprocess.run([sys.executable, TOOL, folder], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


class FieldCasesTool(unittest.TestCase):
    def test_a_right_tree_passes(self):
        self.assertEqual(run({}), (0, "field cases: 0 problems\n"))

    def refuses(self, expected, changes):
        code, output = run(changes)
        self.assertEqual(code, 1, output)
        self.assertIn(expected, output)

    def test_each_mistake_is_found(self):
        table = "docs/field-cases.md"
        self.refuses("there is no test Bpe.Tok01Linear", {"src/text/bpe_test.cc": ""})
        self.refuses("not in the row of TOK-02", {"src/text/bpe_test.cc": RIGHT["src/text/bpe_test.cc"] + "TEST(Bpe, Tok02More) {}\n"})
        self.refuses("not in the row of TOK-01", {table: HEAD + "| TOK-01 | slow | linear | `Bpe.Tok01Linear` |\n"})
        self.refuses("neither a test nor", {table: HEAD + TOK + "| QUAL-06 | bad | good | |\n"})
        self.refuses("does not say TOK-01", {table: HEAD + TOK.replace("|\n", "`test_tokens` |\n")})
        self.refuses("has a row already", {table: HEAD + TOK + TOK})
        self.refuses("not a row of the form", {table: HEAD + TOK + "| QUAL-06 | not yet: pictures\n"})
        self.refuses("no row was found", {table: HEAD})


if __name__ == "__main__":
    unittest.main()
