# SPDX-License-Identifier: Apache-2.0
"""Field cases of model files (docs/field-cases.md): what is no model, what is damaged, missing or does not fit on the disk."""
import hashlib
import http.server
import json
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import sys
import threading

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from program import DEADLINE_S, PROGRAM, ROOT, ProgramTest, main  # noqa: E402

ETAG = '"1"'


class Server:
    """Serves one file with ranges; the first answer is cut off after `cut` bytes. `requests` are the ranges asked for, "" for all."""

    def __init__(self, content, cut=None):
        self.requests = []
        server = self

        class Handler(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                wanted = self.headers.get("Range", "")
                server.requests.append(wanted)
                start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.headers.get("If-Range", ETAG) == ETAG else 0
                self.send_response(206 if start else 200)
                if start:
                    self.send_header("Content-Range", f"bytes {start}-{len(content) - 1}/{len(content)}")
                self.send_header("Content-Length", str(len(content) - start))
                self.send_header("ETag", ETAG)
                self.end_headers()
                first = len(server.requests) == 1 and cut is not None
                self.wfile.write(content[start:cut if first else None])

            def log_message(self, *_):
                pass

        self.http = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.http.server_address[1]}/small.gguf"
        self.thread = threading.Thread(target=self.http.serve_forever, kwargs={"poll_interval": 0.01})
        self.thread.start()

    def close(self):
        self.http.shutdown()
        self.thread.join()
        self.http.server_close()


class FieldCases(ProgramTest):
    def setUp(self):
        super().setUp()
        self.content = pathlib.Path(self.tiny).read_bytes()
        self.models = self.home / "models"
        self.environment |= {"NANOMIND_MODELS": str(self.models), "no_proxy": "*"}

    def serve(self, **options):
        server = Server(self.content, **options)
        self.addCleanup(server.close)
        return server

    def catalog(self, url, sha256=None):
        entry = {"name": "small", "summary": "for tests", "architecture": "qwen2", "licence": "MIT", "file": "small.gguf", "bytes": len(self.content),
                 "sha256": sha256 or hashlib.sha256(self.content).hexdigest(), "sources": [{"url": url}]}
        path = self.home / ".config/nanomind/models.json"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(json.dumps({"models": [entry]}))

    def stored(self):
        return sorted(path.name for path in self.models.iterdir() if not path.name.startswith(".")) if self.models.exists() else []

    def test_load_01_impostors_are_told_apart(self):
        impostors = {"a web page": b"<!DOCTYPE html><html><title>Sign in</title></html>", "empty": b"", "Git LFS": b"version https://git-lfs.github.com/spec/v1\n"
                     b"oid sha256:0123\nsize 1117320768\n", "is cut short": self.content[:len(self.content) // 2], "zeros": b"\0" * 4096,
                     "a text": b"Entry not found"}
        for i, (expected, content) in enumerate(impostors.items()):
            with self.subTest(expected=expected):
                path = self.home / f"model{i}.gguf"
                path.write_bytes(content)
                for command in (["run", path, "hello"], ["show", path], ["pull", path]):
                    done = self.expect(1, *command, stdin=None)
                    self.assertIn(expected.lower(), done.stderr.decode().lower())
                    self.assertIn(path.name, done.stderr.decode())
        self.assertEqual(self.stored(), [])

    def test_load_06_a_model_that_is_here_needs_no_network(self):
        server = self.serve()
        self.catalog(server.url)
        self.expect(0, "pull", "small")
        asked = len(server.requests)
        offline = {"https_proxy": server.url, "http_proxy": server.url, "all_proxy": server.url, "no_proxy": "", "HF_ENDPOINT": server.url}
        for command in (["run", "small", "hello", "-n", "1"], ["pull", "small"], ["list"], ["show", "small"], ["doctor"]):
            self.run_program(*command, stdin=None, environment=offline)
        self.assertEqual(len(server.requests), asked, "somebody was asked, though the model is here")
        strace = shutil.which("strace")
        if not strace:
            self.skipTest("strace is missing: only the proxies were watched")
        calls = self.home / "calls"
        self.environment |= {"LSAN_OPTIONS": "detect_leaks=0"}  # which cannot work under strace
        done = self.run_traced(strace, calls, "run", "small", "hello", "-n", "1")
        if done.returncode != 0 and not calls.read_text(errors="replace").strip():
            self.skipTest("strace is not allowed here: only the proxies were watched")
        self.assertEqual(done.returncode, 0, done.stderr)
        self.assertNotIn("AF_INET", calls.read_text(errors="replace"))

    def run_traced(self, strace, calls, *arguments):
        return subprocess.run([strace, "-f", "-o", str(calls), "-e", "trace=socket,connect", PROGRAM, *arguments], capture_output=True, check=False,
                              timeout=DEADLINE_S, env=self.environment, stdin=subprocess.DEVNULL)

    def test_load_07_a_cut_download_goes_on_and_is_checked(self):
        half = len(self.content) // 2
        server = self.serve(cut=half)
        self.catalog(server.url)
        self.expect(0, "pull", "small")
        self.assertEqual(server.requests, ["", f"bytes={half}-"])
        model = self.models / "small.gguf"
        self.assertEqual(model.read_bytes(), self.content)
        self.assertEqual(self.stored(), ["small.gguf", "small.gguf.json"])
        # Damage that leaves size and time as they were is found and repaired on request.
        time = model.stat().st_mtime_ns
        model.write_bytes(self.content[:-1] + bytes([self.content[-1] ^ 1]))
        os.utime(model, ns=(time, time))
        self.assertIn(b"damaged", self.expect(0, "pull", "--verify", "small").stderr)
        self.assertEqual(model.read_bytes(), self.content)
        self.assertEqual(len(server.requests), 3)
        self.assertIn(b"already here", self.expect(0, "pull", "--verify", "small").stderr)

    def test_load_07_another_hash_is_an_error(self):
        self.catalog(self.serve().url, sha256="0" * 64)
        done = self.expect(1, "pull", "small")
        self.assertIn(b"SHA-256", done.stderr)
        self.assertNotIn("small.gguf", self.stored())
        self.assertNotEqual(self.run_program("show", "small", "--json").stdout, b"")
        self.assertIsNone(json.loads(self.run_program("show", "small", "--json").stdout)["path"])

    def test_load_09_what_asks_no_device_needs_none(self):
        for command in (["--version"], ["--help"], ["run", "--help"], ["show", self.tiny], ["list"]):
            self.expect(0, *command, stdin=None, environment={"NANOMIND_DEVICE": "nothing", "LD_LIBRARY_PATH": "/nonexistent"})
        done = self.run_program("run", self.tiny, "hello", "--device", "rk3588", stdin=None)
        self.assertIn(done.returncode, (1, 2))
        self.assertRegex(done.stderr.decode(), r"rk3588.*cpu")

    def test_load_10_a_full_disk_leaves_no_half_model(self):
        # A limit on file sizes stands in for a disk that is full.
        def full_disk(room=len(self.content) // 2):
            signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
            resource.setrlimit(resource.RLIMIT_FSIZE, (room, room))

        self.catalog(self.serve().url)
        done = self.expect(1, "pull", "small", preexec_fn=full_disk)
        self.assertRegex(done.stderr.decode(), r"nanomind: .*(room|space|too big)")
        self.assertNotIn("small.gguf", self.stored())
        self.assertIsNone(json.loads(self.expect(0, "show", "small", "--json").stdout)["path"])
        out = self.home / "q.gguf"
        source = ROOT / "tests/data/tiny-llama3.gguf"

        def small_disk():
            full_disk(20_000)
        self.expect(1, "quantize", source, out, "--type", "q8_0", preexec_fn=small_disk)
        self.assertEqual([path.name for path in self.home.iterdir() if "q.gguf" in path.name], [])
        # Where the packed weights do not fit, the model runs all the same.
        done = self.expect(0, "run", self.tiny, "--raw", "hello", "-n", "1", "--json", stdin=None, preexec_fn=small_disk)
        self.assertEqual(len(json.loads(done.stdout)["ids"]), 1)
        # With room again, the download goes on and is whole.
        self.expect(0, "pull", "small")
        self.assertEqual((self.models / "small.gguf").read_bytes(), self.content)


if __name__ == "__main__":
    main()
