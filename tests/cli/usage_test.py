# SPDX-License-Identifier: Apache-2.0
"""How the program is called: exit codes, help, settings, and surroundings that are not as usual."""
import json
import os
import subprocess

from program import PROGRAM, ROOT, ProgramTest, main

COMMANDS = ("run", "chat", "watch", "pull", "list", "show", "rm", "convert", "quantize", "join", "pack", "tokenize", "perplexity", "embed", "rerank", "bench", "doctor")


class Calling(ProgramTest):
    def test_wrong_calls_exit_with_2_and_say_what_to_do(self):
        cases = [
            ([], "COMMAND"),
            (["--bogus"], "--help"),
            (["rnu"], "Did you mean 'run'"),
            (["run", self.tiny, "x", "--temp", "warm"], "--temp"),
            (["run", self.tiny, "x", "--temp", "-1"], "temperature"),
            (["run", self.tiny, "x", "--top-p", "2"], "top"),
            (["run", self.tiny, "x", "-t", "-4"], "--threads"),
            (["run", self.tiny, "x", "--memory", "lots"], "2G"),
            (["run", self.tiny, "two", "words"], "quotes"),
            (["run", self.tiny, "--raw"], "question"),
            (["show"], "show --help"),
            (["rm", "./some.gguf"], "path"),
            (["help", "nothing"], "no command"),
        ]
        for arguments, expected in cases:
            with self.subTest(arguments=arguments):
                done = self.expect(2, *arguments, stdin=None)
                self.assertEqual(done.stdout, b"")
                self.assertIn(expected.lower(), done.stderr.decode().lower())

    def test_empty_values_are_no_missing_options(self):
        for option in ("--regex", "--grammar", "--gbnf", "--lark", "--json-schema", "--tools", "--draft", "--stop", "--image", "--mmproj"):
            with self.subTest(option=option):
                done = self.expect(2, "run", self.tiny, "hello", option, "", stdin=None)
                self.assertIn(f"{option}: the value is empty", done.stderr.decode())
        self.assertIn(b"--regex= has no value", self.expect(2, "run", self.tiny, "--regex=", "hello", stdin=None).stderr)
        self.assertIn(b"--report", self.expect(2, "quantize", self.tiny, "x.gguf", "--type", "q8_0", "--report", "").stderr)
        self.expect(0, "run", self.tiny, "hello", "--system", "", "-n", "1", stdin=None)

    def test_help_goes_to_standard_output(self):
        whole = self.expect(0, "--help").stdout.decode()
        for command in COMMANDS:
            with self.subTest(command=command):
                self.assertIn(f"  {command} ", whole)
                described = self.expect(0, command, "--help")
                self.assertEqual(described.stderr, b"")
                self.assertEqual(described.stdout, self.expect(0, "help", command).stdout)

    def test_version(self):
        self.assertRegex(self.expect(0, "--version").stdout.decode(), r"^nanomind \d+\.\d+\.\d+\n$")


class Models(ProgramTest):
    def test_unknown_model_is_refused_with_the_closest_name(self):
        done = self.expect(1, "show", "smollm2-135")
        self.assertIn(b"smollm2-135m", done.stderr)
        self.assertEqual(done.stdout, b"")

    def test_misspelt_model_is_not_taken_for_a_question(self):
        done = self.expect(2, "run", "smolm2-135m", stdin=None)
        self.assertIn(b"did you mean 'smollm2-135m'", done.stderr)

    def test_missing_file_and_wrong_file(self):
        self.assertIn(b"There is no file", self.expect(1, "run", "./none.gguf", "x", stdin=None).stderr)
        page = self.home / "page.gguf"
        page.write_text("<!DOCTYPE html><html>sign in</html>")
        self.assertIn(b"HTML", self.expect(1, "run", page, "x", stdin=None).stderr)

    def test_store(self):
        del self.environment["NANOMIND_PACKED"]
        pulled = self.expect(0, "pull", self.tiny)
        self.assertEqual(pulled.stdout, b"")
        listed = json.loads(self.expect(0, "list", "--json").stdout)
        here = {row["name"]: row for row in listed if row["path"]}
        self.assertEqual(list(here), ["tiny-qwen2"])
        self.assertEqual(here["tiny-qwen2"]["bytes"], os.path.getsize(self.tiny))
        self.assertTrue(any(row["name"] == "smollm2-135m" and row["path"] is None for row in listed))
        self.assertIn(b"tiny-qwen2", self.expect(0, "list").stdout)
        shown = json.loads(self.expect(0, "show", "tiny-qwen2", "--json").stdout)
        self.assertTrue(os.path.samefile(shown["path"], here["tiny-qwen2"]["path"]))
        self.assertEqual(shown["architecture"], "qwen2")
        self.expect(0, "run", "tiny-qwen2", "hello", "-n", "2", stdin=None)
        self.expect(0, "rm", "tiny-qwen2")
        self.assertFalse(os.path.exists(here["tiny-qwen2"]["path"]))
        self.assertEqual(list(self.home.rglob("*.packed")), [], "packed weights go with their model")
        self.assertTrue(os.path.exists(self.tiny))
        self.assertIn(b"tiny-qwen2", self.expect(1, "rm", "tiny-qwen2").stderr)

    def test_the_documentation_has_the_architectures(self):
        """./dev docs writes them."""
        table = self.expect(0, "list", "--architectures").stdout.decode()
        document = (ROOT / "docs/models.md").read_text()
        self.assertIn(f"<!-- architectures -->\n{table}<!-- /architectures -->", document)
        names = [entry["architecture"] for entry in json.loads(self.expect(0, "list", "--architectures", "--json").stdout)]
        self.assertEqual(names, sorted(names))
        self.assertEqual(len(names), table.count("\n") - 2)

    def test_show_of_a_model_that_is_not_here(self):
        shown = json.loads(self.expect(0, "show", "smollm2-135m", "--json").stdout)
        self.assertIsNone(shown["path"])
        self.assertEqual(shown["bytes"], 98362432)


class SettingsFiles(ProgramTest):
    def ids(self, *flags, environment=None):
        done = self.expect(0, "run", self.tiny, "--raw", "hello", "--json", "--temp", "0", *flags, stdin=None, environment=environment)
        return json.loads(done.stdout)["ids"]

    def test_flags_override_environment_overrides_file(self):
        config = self.home / ".config/nanomind/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text("max_tokens = 2\n")
        self.assertEqual(len(self.ids()), 2)
        self.assertEqual(len(self.ids(environment={"NANOMIND_MAX_TOKENS": "3"})), 3)
        self.assertEqual(len(self.ids("-n", "4", environment={"NANOMIND_MAX_TOKENS": "3"})), 4)
        elsewhere = self.home / "elsewhere/nanomind/config.toml"
        elsewhere.parent.mkdir(parents=True)
        elsewhere.write_text("max_tokens = 5\n")
        self.assertEqual(len(self.ids(environment={"XDG_CONFIG_HOME": str(self.home / "elsewhere")})), 5)

    def test_broken_settings_are_named(self):
        config = self.home / ".config/nanomind/config.toml"
        config.parent.mkdir(parents=True)
        config.write_text("threads = \n")
        self.assertIn(b"config.toml, line 1", self.expect(2, "list").stderr)
        config.write_text("colour = 3\n")
        self.assertIn(b"'colour'", self.expect(0, "list").stderr)
        self.assertIn(b"NANOMIND_TEMP", self.expect(2, "list", environment={"NANOMIND_TEMP": "warm"}).stderr)

    def test_default_model_and_isa_from_the_environment(self):
        done = self.expect(0, "run", "--raw", "hello there", "--json", "-n", "1", stdin=None, environment={"NANOMIND_MODEL": self.tiny})
        self.assertEqual(json.loads(done.stdout)["model"], "tiny-qwen2")
        done = self.expect(0, "bench", self.tiny, "--json", "-p", "4", "-n", "2", "-r", "1", environment={"NANOMIND_ISA": "scalar"})
        self.assertEqual(json.loads(done.stdout)["isa"], "scalar")
        done = self.run_program("run", self.tiny, "x", stdin=None, environment={"NANOMIND_ISA": "mmx"})
        self.assertNotEqual(done.returncode, 0)
        self.assertIn(b"scalar", done.stderr)


class Surroundings(ProgramTest):
    def test_doctor(self):
        findings = {entry["subject"]: entry for entry in json.loads(self.run_program("doctor", "--json").stdout)}
        for subject in ("processor", "kernels", "memory", "models", "packed", "pip", "settings"):
            self.assertIn(subject, findings)
        self.assertIn("scalar", findings["kernels"]["text"])
        self.assertFalse((self.home / ".local").exists(), "doctor must not create folders")

    def test_reader_that_goes_away_is_no_error(self):
        command = f"'{PROGRAM}' run '{self.tiny}' --raw hello --temp 0 --ctx 4000 | head -c 1 >/dev/null; echo ${{PIPESTATUS[0]}}"
        done = subprocess.run(["bash", "-c", command], capture_output=True, text=True, check=True, env=self.environment, timeout=120,
                              stdin=subprocess.DEVNULL)
        self.assertEqual(done.stdout.strip(), "141")
        self.assertNotIn("standard output", done.stderr)

    def test_output_that_cannot_be_written_is_an_error(self):
        for redirection in (">/dev/full", ">&-"):
            with self.subTest(redirection=redirection):
                done = subprocess.run(["bash", "-c", f"'{PROGRAM}' list {redirection}"], capture_output=True, text=True, check=False,
                                      env=self.environment, timeout=120)
                self.assertEqual(done.returncode, 1)
                self.assertIn("standard output", done.stderr)

    def test_closed_input_is_no_input(self):
        done = subprocess.run(["bash", "-c", f"'{PROGRAM}' run '{self.tiny}' hello -n 1 <&-"], capture_output=True, check=False,
                              env=self.environment, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_no_home(self):
        environment = {key: value for key, value in self.environment.items() if key != "HOME"}
        done = subprocess.run([PROGRAM, "run", self.tiny, "--raw", "hello", "-n", "1"], capture_output=True, check=False, env=environment,
                              stdin=subprocess.DEVNULL, timeout=120)
        self.assertEqual(done.returncode, 0, done.stderr)

    def test_home_that_cannot_be_written(self):
        # A file where the folder should be stops even root.
        blocked = self.home / "file"
        blocked.write_text("")
        environment = {"HOME": str(blocked), "NANOMIND_PACKED": str(blocked / "packed")}
        self.expect(0, "run", self.tiny, "--raw", "hello", "-n", "1", stdin=None, environment=environment)
        done = self.expect(1, "pull", self.tiny, environment=environment)
        self.assertIn(b"nanomind:", done.stderr)


if __name__ == "__main__":
    main()
