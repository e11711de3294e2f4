# SPDX-License-Identifier: Apache-2.0
"""Drives the built program for the tests of this folder: as a script would, and on a pseudo-terminal as a person would.

The program is $NANOMIND. Tests run with a home folder of their own, on the tiny models of tests/data; those that need real
answers use $NANOMIND_TEST_MODEL, or smollm2-135m of the user's store, and are skipped without.
"""
import json
import os
import pathlib
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import unittest

ROOT = pathlib.Path(__file__).resolve().parents[2]
PROGRAM = os.environ.get("NANOMIND", str(ROOT / "build/release/nanomind"))
DEADLINE_S = int(os.environ.get("NANOMIND_TEST_DEADLINE_S", "120"))
SMALL_MODEL = "smollm2-135m"


def base_environment():
    """The environment without anything that changes what the program does."""
    keep = ("PATH", "LD_LIBRARY_PATH", "ASAN_OPTIONS", "UBSAN_OPTIONS", "TSAN_OPTIONS", "SSL_CERT_FILE")
    return {key: value for key, value in os.environ.items() if key in keep}


def stored_model(name):
    """Path of a model of the user's store, or None."""
    shown = subprocess.run([PROGRAM, "show", name, "--json"], capture_output=True, text=True, check=False)
    return json.loads(shown.stdout).get("path") if shown.returncode == 0 else None


def real_model():
    """Path of a model that answers sensibly, or None."""
    chosen = os.environ.get("NANOMIND_TEST_MODEL")
    if chosen:
        return chosen
    return stored_model(SMALL_MODEL)


class ProgramTest(unittest.TestCase):
    """Gives every test an empty home, and its own copies of the tiny models."""

    def setUp(self):
        self.home = pathlib.Path(tempfile.mkdtemp(prefix="nanomind-cli-test-"))
        self.addCleanup(shutil.rmtree, self.home, ignore_errors=True)
        self.environment = base_environment() | {"HOME": str(self.home), "NANOMIND_PACKED": str(self.home / "packed"),
                                                 "NANOMIND_THREADS": "2", "LC_ALL": "C", "TERM": "xterm"}
        self.tiny = str(ROOT / "tests/data/tiny-qwen2.gguf")

    def run_program(self, *arguments, stdin="", environment=None, **options):
        """Runs to the end with `stdin` piped in (bytes or text; None: /dev/null); returns the finished process, bytes."""
        if isinstance(stdin, str):
            stdin = stdin.encode()
        source = {"stdin": subprocess.DEVNULL} if stdin is None else {"input": stdin}
        return subprocess.run([PROGRAM, *map(str, arguments)], capture_output=True, check=False, timeout=DEADLINE_S,
                              env=self.environment | (environment or {}), **(source | options))

    def expect(self, code, *arguments, **options):
        """The same, for an exit code that is known."""
        done = self.run_program(*arguments, **options)
        self.assertEqual(done.returncode, code, f"{arguments}\nstdout: {done.stdout[-2000:]}\nstderr: {done.stderr[-2000:]}")
        return done


class Terminal:
    """The program on a pseudo-terminal. `seen` is everything that it has shown so far."""

    def __init__(self, arguments, environment):
        self.seen = ""
        self._mark = 0
        self._pid, self._fd = pty.fork()
        if self._pid == 0:
            os.execve(PROGRAM, [PROGRAM, *map(str, arguments)], environment)

    def send(self, text):
        os.write(self._fd, text.encode())

    def line(self, text):
        """Types a line and Return."""
        self.send(text + "\r")

    def _read(self, until):
        if not select.select([self._fd], [], [], max(0, until - time.monotonic()))[0]:
            return False
        try:
            data = os.read(self._fd, 65536)
        except OSError:  # the other end is closed
            return False
        self.seen += data.decode(errors="replace")
        return bool(data)

    def expect(self, pattern):
        """Waits until something matches that came after the previous match."""
        until = time.monotonic() + DEADLINE_S
        while True:
            match = re.compile(pattern, re.S).search(self.seen, self._mark)
            if match:
                self._mark = match.end()
                return match
            if not self._read(until):
                raise AssertionError(f"no {pattern!r} after: {self.seen[self._mark:][-3000:]!r}")

    def prompt(self):
        """Waits until a new line can be edited: bracketed paste is switched on before each, and never for a redraw."""
        self.expect(r"\x1b\[\?2004h.*?> ")

    def finish(self):
        """Waits for the end; the exit code, or the negative signal."""
        until = time.monotonic() + DEADLINE_S
        while self._read(until):
            pass
        status = self._wait(until)
        os.close(self._fd)
        self._pid = 0
        return os.waitstatus_to_exitcode(status)

    def _wait(self, until):
        while True:
            pid, status = os.waitpid(self._pid, os.WNOHANG)
            if pid:
                return status
            if time.monotonic() > until:
                raise AssertionError(f"the program does not end: {self.seen[-3000:]!r}")
            select.select([], [], [], 0.01)

    def close(self):
        """Ends the program if a test did not come to that."""
        if self._pid:
            os.kill(self._pid, signal.SIGKILL)
            os.waitpid(self._pid, 0)
            os.close(self._fd)


def main():
    if not os.access(PROGRAM, os.X_OK):
        print(f"There is no program {PROGRAM}; build it, or set NANOMIND.", file=sys.stderr)
        sys.exit(1)
    unittest.main(module="__main__", verbosity=2)
