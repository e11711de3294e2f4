# SPDX-License-Identifier: Apache-2.0
"""Cameras on the command line, with folders of pictures in their place: watch, and run -i camera:."""
import json
import shutil
import signal
import subprocess
import unittest

from program import PROGRAM, ROOT, ProgramTest, main, real_model

EYES = ROOT / "models/tinyvision/mmproj-tinyvision-smollm2-135m-q8_0.gguf"
QUESTION = "What is in this picture?"
MUSHROOM, HORSE = "00-emoji-what-is-it.png", "01-emoji-describe-noun-background.png"


class Cameras(ProgramTest):
    def folder(self, *pictures):
        """A camera that sees these samples, one after another."""
        folder = self.home / "seen"
        folder.mkdir()
        for number, name in enumerate(pictures):
            shutil.copy(ROOT / "models/tinyvision/samples" / name, folder / f"{number:02}.png")
        return folder

    def watch(self, *flags):
        return ["watch", real_model(), "--mmproj", EYES, "--temp", "0", "--every", "0s", QUESTION, *flags]

    def test_what_is_wrong_is_said(self):
        for arguments, code, expected in ((["watch", self.tiny, "hello", "--every", "soon"], 2, "5s"),
                                          (["watch", self.tiny, "hello", "--camera", "front"], 2, "camera:2"),
                                          (["watch", self.tiny, "hello", "--camera", "camera:/dev/none"], 1, "no camera"),
                                          (["watch", self.tiny], 2, "question"),
                                          (["watch", self.tiny, "one", "two"], 2, "quotes"),
                                          (["watch", self.tiny, "hello", "--camera", f"file:{self.home}"], 1, "There are no pictures")):
            with self.subTest(arguments=arguments):
                done = self.expect(code, *arguments, stdin=None)
                self.assertEqual(done.stdout, b"")
                self.assertIn(expected, done.stderr.decode())

    def test_a_model_without_eyes_says_what_it_needs(self):
        done = self.expect(1, "watch", self.tiny, "hello", "--camera", f"file:{self.folder(MUSHROOM)}", stdin=None)
        self.assertIn("--mmproj", done.stderr.decode())
        self.assertIn("nanomind watch tinyvision --camera file:", done.stderr.decode())

    @unittest.skipUnless(real_model(), "needs smollm2-135m")
    def test_asks_when_the_picture_has_changed(self):
        camera = f"camera:file:{self.folder(MUSHROOM, MUSHROOM, HORSE, HORSE, MUSHROOM)}"
        lines = self.expect(0, *self.watch("--camera", camera), stdin=None).stdout.decode().splitlines()
        times, answers = zip(*(line.split("\t") for line in lines))
        self.assertEqual((answers[0], answers[2], len(answers)), ("A mushroom.", "A mushroom.", 3))
        for time in times:
            self.assertRegex(time, r"^\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d[+-]\d\d:\d\d$")

        looks = [json.loads(line) for line in self.expect(0, *self.watch("--camera", camera, "--json"), stdin=None).stdout.splitlines()]
        self.assertEqual([list(look) for look in looks], [["time", "changed", "difference", "text"]] * 5)
        self.assertEqual([look["changed"] for look in looks], [True, False, True, False, True])
        self.assertEqual([look["text"] for look in looks], [answers[0], None, answers[1], None, answers[2]])
        self.assertIsNone(looks[0]["difference"])
        self.assertEqual(looks[1]["difference"], 0)
        self.assertEqual(looks[2]["difference"], looks[4]["difference"])

        two = self.expect(0, *self.watch("--camera", camera, "--json", "--count", "2"), stdin=None).stdout.splitlines()
        self.assertEqual(len(two), 2)
        blind = self.expect(0, *self.watch("--camera", camera, "--threshold", "255"), stdin=None).stdout.splitlines()
        self.assertEqual(len(blind), 1, "the first is asked about in any case")

    @unittest.skipUnless(real_model(), "needs smollm2-135m")
    def test_a_damaged_picture_is_passed_over(self):
        folder = self.folder(MUSHROOM, HORSE, MUSHROOM)
        whole = (folder / "01.png").read_bytes()
        (folder / "01.png").write_bytes(whole[:200])
        done = self.expect(0, *self.watch("--camera", f"file:{folder}", "--threshold", "0", "--count", "2", "--json"), stdin=None)
        self.assertEqual([json.loads(line)["changed"] for line in done.stdout.splitlines()], [True, False])
        self.assertEqual(done.stderr.count(b"01.png"), 1)
        for name in ("00.png", "02.png"):
            (folder / name).write_bytes(whole[:100])
        done = self.expect(1, *self.watch("--camera", f"file:{folder}"), stdin=None)
        self.assertEqual(done.stdout, b"")
        self.assertIn(b"02.png", done.stderr)

    @unittest.skipUnless(real_model(), "needs smollm2-135m")
    def test_interrupt_ends_the_wait_by_the_signal(self):
        arguments = self.watch("--camera", f"file:{self.folder(MUSHROOM, HORSE)}", "--every", "1h")
        arguments.remove("0s")
        arguments.remove("--every")
        process = subprocess.Popen([PROGRAM, *map(str, arguments)], env=self.environment, stdin=subprocess.DEVNULL,
                                   stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertIn(b"A mushroom.", process.stdout.readline())
        process.send_signal(signal.SIGINT)
        self.assertEqual(process.stdout.read(), b"")
        self.assertEqual(process.wait(60), -signal.SIGINT)
        process.stdout.close()

    @unittest.skipUnless(real_model(), "needs smollm2-135m")
    def test_run_and_chat_take_a_picture(self):
        camera = f"camera:file:{self.folder(MUSHROOM)}"
        model = [real_model(), "--mmproj", EYES, "--temp", "0"]
        self.assertEqual(self.expect(0, "run", *model, "-i", camera, QUESTION, stdin=None).stdout, b"A mushroom.\n")
        self.assertEqual(self.expect(0, "chat", *model, stdin=f"/image {camera}\n{QUESTION}\n").stdout, b"A mushroom.\n")
        done = self.expect(1, "run", *model, "-i", f"camera:file:{self.home}", QUESTION, stdin=None)
        self.assertIn(b"There are no pictures", done.stderr)


if __name__ == "__main__":
    main()
