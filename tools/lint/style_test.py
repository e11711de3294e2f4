#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Runs style.py on made-up trees: each rule is broken once, in a tree that is otherwise right."""
import pathlib
import subprocess
import sys
import tempfile
import unittest

TOOL = pathlib.Path(__file__).with_name("style.py")
HEAD = "// SPDX-License-Identifier: Apache-2.0\n"
ABOUT = HEAD + "// What a shape is and what may be asked of it.\n"
RIGHT = {
    "src/base/shape.h": ABOUT + "#pragma once\n",
    "src/base/shape.cc": HEAD + '#include "base/shape.h"\nint f() {\n  return 1;\n}\n',
    "src/base/shape_test.cc": ABOUT + 'const char* s = "\u00e9";\nvoid g() { printf("x"); }\n',
    "src/cli/main.cc": ABOUT + 'void g() { std::printf("x"); }\n',
}


def run(changes):
    with tempfile.TemporaryDirectory() as folder:
        root = pathlib.Path(folder)
        for name, text in {**RIGHT, **changes}.items():
            (root / name).parent.mkdir(parents=True, exist_ok=True)
            (root / name).write_text(text)
        done = subprocess.run([sys.executable, TOOL, root], capture_output=True, text=True, check=False)
        return done.returncode, done.stdout


def function_of(lines):
    return "void f(int a) {\n" + "  a = 1;\n" * (lines - 2) + "}\n"


class StyleTest(unittest.TestCase):
    def expect(self, changes, message):
        status, output = run(changes)
        self.assertIn(message, output)
        self.assertEqual(status, 1, output)

    def test_right_tree_passes(self):
        self.assertEqual(run({}), (0, "style: 4 files, 3 functions, 0 warnings, 0 problems\n"))

    def test_first_lines(self):
        self.expect({"src/base/a.h": "#pragma once\n"}, "src/base/a.h:1: the first line must be")
        self.expect({"src/base/a.cc": HEAD + "int a;\n"}, "src/base/a.cc:2: the line after the licence")
        self.expect({"tools/a.py": "#!/usr/bin/env python3\nimport sys\n"}, "tools/a.py:1: the first line must be")

    def test_pragma_once(self):
        self.expect({"src/base/a.h": ABOUT}, "needs #pragma once")

    def test_words_and_characters(self):
        self.expect({"src/base/a.cc": ABOUT + "// TO" "DO: later\n"}, "a.cc:3: do it")
        self.expect({"src/base/a.cc": ABOUT + "\tint a;\n"}, "a.cc:3: a tab")
        self.expect({"src/base/a.cc": ABOUT + "// \u2026\n"}, "a.cc:3: only ASCII")
        self.expect({"tools/a.sh": "# SPDX-License-Identifier: Apache-2.0\n# Fetches what is needed.\ncd /ho" "me/me\n"},
                    "a.sh:3: a path of somebody's machine")

    def test_library_neither_prints_nor_exits(self):
        for call in ("std::cout << 1", 'std::fprintf(stderr, "x")', "fmt::print(1)", "std::exit(1)", "abort()"):
            self.expect({"src/base/a.cc": ABOUT + f"void f() {{ {call}; }}\n"}, "a.cc:3: the library neither prints")
        self.assertEqual(run({"src/base/a.cc": ABOUT + 'void f() { snprintf(b, 1, "exit("); }  // abort()\n'})[0], 0)

    def test_file_length(self):
        self.expect({"src/base/a.cc": ABOUT + "int a;\n" * 800}, "803 lines; at most 800")
        status, output = run({"src/base/a.cc": ABOUT + "int a;\n" * 500})
        self.assertIn("warning: src/base/a.cc:1: 503 lines", output)
        self.assertEqual(status, 0)

    def test_function_length(self):
        self.expect({"src/base/a.cc": ABOUT + "namespace n {\n" + function_of(71) + "}\n"}, "src/base/a.cc:4: a function of 71 lines")
        many = "".join(function_of(5) for _ in range(60))
        status, output = run({"src/base/a.cc": ABOUT + function_of(71) + many})
        self.assertIn("1 warnings, 0 problems", output)
        self.assertEqual(status, 0)
        self.assertIn("0 warnings", run({"src/base/a.cc": ABOUT + function_of(70)})[1])


if __name__ == "__main__":
    unittest.main()
