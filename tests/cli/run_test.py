# SPDX-License-Identifier: Apache-2.0
"""Answers, and the commands that a script reads."""
import json
import math
import os
import signal
import struct
import subprocess
import unittest

from program import PROGRAM, ROOT, ProgramTest, main, real_model


class Run(ProgramTest):
    def answer(self, *arguments, tokens=4, **options):
        return json.loads(self.expect(0, "run", self.tiny, "--json", "--temp", "0", "-n", tokens, *arguments, **options).stdout)

    def with_template(self, template):
        """A copy of the tiny model with another chat template, at most as long as its own."""
        model = (ROOT / "tests/data/tiny-qwen2.gguf").read_bytes()
        start = model.index(b"tokenizer.chat_template") + len("tokenizer.chat_template") + 4
        length = struct.unpack("<Q", model[start:start + 8])[0]
        self.assertLessEqual(len(template), length)
        path = self.home / "templated.gguf"
        path.write_bytes(model[:start + 8] + template.encode().ljust(length) + model[start + 8 + length:])
        return path

    def test_json(self):
        answer = self.answer("--raw", "hello", stdin=None)
        self.assertEqual(set(answer), {"model", "text", "ids", "prompt_tokens", "completion_tokens", "context", "finish_reason", "timings"})
        self.assertEqual(len(answer["ids"]), 4)
        self.assertEqual(answer["completion_tokens"], 4)
        self.assertEqual(answer["finish_reason"], "length")
        self.assertEqual(set(answer["timings"]), {"load_ms", "prompt_ms", "prompt_tok_s", "decode_ms", "decode_tok_s"})

    def test_plain_output_is_the_text_of_the_json(self):
        text = self.answer("--raw", "hello", stdin=None)["text"]
        plain = self.expect(0, "run", self.tiny, "--raw", "--temp", "0", "-n", "4", "hello", stdin=None)
        self.assertEqual(plain.stdout, text.encode())
        templated = self.expect(0, "run", self.tiny, "--temp", "0", "-n", "4", "hello", stdin=None).stdout
        self.assertTrue(templated.endswith(b"\n"))

    def test_seed_decides(self):
        def draw(seed):
            done = self.expect(0, "run", self.tiny, "--raw", "hello", "--temp", "2", "--top-k", "0", "--top-p", "1", "--min-p", "0",
                               "-n", "16", "--seed", seed, "--json", stdin=None)
            return json.loads(done.stdout)["ids"]
        self.assertEqual(draw(1), draw(1))
        self.assertNotEqual(draw(1), draw(2))

    def test_logprobs(self):
        answer = self.answer("--raw", "hello", "--logprobs", "2", stdin=None)
        self.assertEqual([entry["id"] for entry in answer["logprobs"]], answer["ids"])
        for entry in answer["logprobs"]:
            self.assertEqual(entry["top_logprobs"][0]["id"], entry["id"])  # temperature 0
            self.assertLessEqual(entry["logprob"], 0)
            self.assertEqual(len(entry["top_logprobs"]), 2)
        self.assertIn(b"--json", self.expect(2, "run", self.tiny, "hello", "--logprobs", "2", stdin=None).stderr)

    def test_stop_and_bias(self):
        forty = self.answer("--raw", "hello", "--logit-bias", "65=1e4", stdin=None, tokens=40)["text"]
        self.assertEqual(len(forty), 40)
        stopped = self.answer("--raw", "hello", "--stop", "not there at all", "--stop", forty[:3], "--regex", "xy" + forty, stdin=None,
                              tokens=40)
        self.assertEqual(stopped["text"], "xy")
        self.assertEqual(stopped["finish_reason"], "stop")
        first = self.answer("--raw", "hello", stdin=None)["ids"][0]
        self.assertNotEqual(self.answer("--raw", "hello", "--logit-bias", f"{first}=ban", stdin=None)["ids"][0], first)
        self.assertEqual(self.answer("--raw", "hello", "--logit-bias", "7=1e4", stdin=None)["ids"], [7] * 4)
        for wrong in ("7", "=3", "7=x", "999999999=1"):
            self.assertNotEqual(self.run_program("run", self.tiny, "hello", "--logit-bias", wrong, stdin=None).returncode, 0)
        several = json.loads(self.expect(0, "tokenize", self.tiny, "--json", "--no-bos", stdin="xyz").stdout)["ids"]
        refused = self.expect(2, "run", self.tiny, "hello", "--logit-bias", "xyz=ban", stdin=None).stderr.decode()
        self.assertGreater(len(several), 1)
        for token in several:
            self.assertIn(f"{token} ('", refused)
        self.assertEqual(self.answer("--raw", "hello", "--logit-bias", "x=1e4", stdin=None)["text"], "xxxx")

    def test_a_character_that_is_cut_is_left_out(self):
        whole = self.answer("--raw", "hello", "--regex", "a\u20acb", stdin=None, tokens=100)
        self.assertEqual(whole["text"], "a\u20acb")
        cuts = set()
        for tokens in range(1, len(whole["ids"])):
            cut = self.answer("--raw", "hello", "--regex", "a\u20acb", stdin=None, tokens=tokens)
            plain = self.expect(0, "run", self.tiny, "--raw", "hello", "--regex", "a\u20acb", "-n", tokens, stdin=None).stdout.decode()
            self.assertEqual((cut["ids"], cut["finish_reason"], plain), (whole["ids"][:tokens], "length", cut["text"]))
            cuts.add((tokens, cut["text"]))
        self.assertIn((2, "a"), cuts)  # the character has several tokens
        # What no character can begin with is shown where it stands.
        first = whole["ids"][1]
        broken = self.answer("--raw", "hello", "--logit-bias", f"{first}=1e4", stdin=None, tokens=3)
        self.assertEqual((broken["ids"], broken["text"]), ([first] * 3, "\ufffd" * 2))

    def test_form_of_the_answer(self):
        schema = '{"enum": [{"a": [1, 2]}]}'
        answer = self.answer("--raw", "hello", "--json-schema", schema, stdin=None, tokens=400)
        self.assertEqual(json.loads(answer["text"]), {"a": [1, 2]})
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertEqual(self.answer("--raw", "hello", "--regex", "ab[c]d", stdin=None, tokens=100)["text"], "abcd")
        for name, text in (("g.gbnf", 'root ::= "yes"'), ("g.lark", 'start: "yes"'), ("schema.json", '{"const": "yes"}')):
            path = self.home / name
            path.write_text(text)
            flag = "--json-schema" if name.endswith("json") else "--grammar"
            answer = self.answer("--raw", "hello", flag, path, stdin=None, tokens=100)
            self.assertEqual(answer["text"].strip('"'), "yes")
        (self.home / "null").write_text('{"const": "yes"}')
        named = self.answer("--raw", "hello", "--json-schema", "null", stdin=None, tokens=100, cwd=self.home)
        self.assertEqual(named["text"], '"yes"')
        for inline in ("null", "[1]", '"hello"', "3"):
            refused = self.expect(2, "run", self.tiny, "hello", "--json-schema", inline, stdin=None).stderr.decode()
            self.assertIn(f"--json-schema {inline}: a JSON schema is an object", refused)
        path = self.home / "wrong.gbnf"
        path.write_text('root ::= "a"\n\nb ::= c')
        self.assertIn(b"Line 3", self.expect(2, "run", self.tiny, "hello", "--grammar", path, stdin=None).stderr)
        self.assertIn(b"--gbnf", self.expect(2, "run", self.tiny, "hello", "--grammar", "grammar.txt", stdin=None).stderr)
        self.assertIn(b"one form", self.expect(2, "run", self.tiny, "hello", "--regex", "a", "--grammar", path, stdin=None).stderr)
        self.assertIn(b"schema", self.expect(2, "run", self.tiny, "hello", "--json-schema", "{", stdin=None).stderr)

    def test_calls_of_tools_are_lines_of_json(self):
        tools = self.home / "tools.json"
        model = self.with_template("{% if tools %}{# <tool_call> #}{% endif %}{{ messages[0].content }}")
        tools.write_text('[{"name": "f", "parameters": {"type": "object", "properties": {"a": {"type": "integer"}}}}]')
        call = r'<tool_call>\{"name": "f", "arguments": \{"a": 1\}\}</tool_call>'
        arguments = ("run", model, "--temp", "0", "-n", "400", "--tools", tools, "hello")
        done = self.expect(0, *arguments, "--regex", "Well\\. " + call + call, stdin=None)
        self.assertEqual(done.stdout, b'Well.\n' + b'{"name":"f","arguments":{"a":1}}\n' * 2)
        answer = json.loads(self.expect(0, *arguments, "--json", "--regex", call, stdin=None).stdout)
        self.assertEqual((answer["text"], answer["tool_calls"]), ("", [{"name": "f", "arguments": {"a": 1}}]))
        done = self.expect(0, *arguments, "--regex", call.replace('"f"', '"g"'), stdin=None)
        self.assertTrue(done.stdout.startswith(b"<tool_call>"))  # there is no tool g
        tools.write_text("{}")
        self.assertIn(b"list of tools", self.expect(2, *arguments, stdin=None).stderr)
        tools.write_text('[{"name": "f"}]')
        self.assertIn(b"--raw", self.expect(2, *arguments, "--raw", stdin=None).stderr)
        self.assertIn(b"knows no tools", self.expect(1, "run", self.tiny, "--tools", tools, "hello", stdin=None).stderr)

    def test_thinking_is_shown_when_asked_for(self):
        model = self.with_template("{{ messages[0].content }}<think>{# </think> #}")
        arguments = ("run", model, "--temp", "0", "--regex", "ok!", "hello", "-n", "400", "--think-budget")
        done = self.expect(0, *arguments, "3", stdin=None)
        self.assertEqual((done.stdout, done.stderr), (b"ok!\n", b""))
        shown = self.expect(0, *arguments, "3", "--show-thinking", stdin=None)
        self.assertEqual(shown.stdout, b"ok!\n")
        answer = json.loads(self.expect(0, *arguments, "3", "--json", stdin=None).stdout)
        self.assertEqual(answer["text"], "ok!")
        self.assertEqual(shown.stderr.decode().strip(), answer["reasoning"].strip())
        self.assertGreaterEqual(answer["reasoning_tokens"], 3)
        self.assertLess(len(json.loads(self.expect(0, *arguments, "0", "--json", stdin=None).stdout)["ids"]), len(answer["ids"]))

    def test_piped_text_is_the_question_or_follows_it(self):
        piped = self.answer("--raw", stdin="one\n\ntwo")
        both = self.answer("--raw", "one", stdin="two")
        given = self.answer("--raw", "one\n\ntwo", stdin=None)
        for answer in (piped, both):
            self.assertEqual((answer["ids"], answer["prompt_tokens"]), (given["ids"], given["prompt_tokens"]))
        # Raw text is taken as it is; a question loses the newline that ends it.
        self.assertEqual(self.answer("--raw", stdin="one\n")["prompt_tokens"], self.answer("--raw", stdin="one")["prompt_tokens"] + 1)
        self.assertEqual(self.answer(stdin="one\n")["prompt_tokens"], self.answer(stdin="one")["prompt_tokens"])
        self.assertIn(b"empty", self.expect(2, "run", self.tiny, stdin="").stderr)

    def test_special_recognises_control_tokens(self):
        text = "<|im_end|>"
        self.assertGreater(self.answer("--raw", text, stdin=None)["prompt_tokens"], 1)
        self.assertEqual(self.answer("--raw", "--special", text, stdin=None)["prompt_tokens"], 1)

    def test_full_context_is_said(self):
        done = self.expect(0, "run", self.tiny, "--raw", "hello", "--temp", "0", "--ctx", "64", "--json", stdin=None)
        answer = json.loads(done.stdout)
        if answer["finish_reason"] == "context_full":
            self.assertIn(b"--ctx", done.stderr)
            self.assertEqual(answer["prompt_tokens"] + answer["completion_tokens"], 65)
        too_long = self.expect(1, "run", self.tiny, "--raw", "hello " * 50, "--ctx", "64", stdin=None)
        self.assertIn(b"--ctx", too_long.stderr)
        self.assertEqual(too_long.stdout, b"")

    def test_what_slid_out_is_said(self):
        arguments = ("run", self.tiny, "--raw", "hello", "--temp", "0", "--ctx", "256", "--when-full", "slide", "--ignore-eos", "--json")
        done = self.expect(0, *arguments, "-n", "400", "--verbose", stdin=None)
        answer = json.loads(done.stdout)
        self.assertEqual(len(answer["ids"]), 400)
        self.assertGreater(answer["dropped_tokens"], 0)
        self.assertLessEqual(answer["prompt_tokens"] + 400 - answer["dropped_tokens"], 257)
        self.assertEqual(done.stderr.decode().count(f"{answer['dropped_tokens']} old ones were forgotten"), 1)
        self.assertIn(f"{answer['dropped_tokens']} were forgotten to make room", done.stderr.decode())
        short = self.expect(0, *arguments, "-n", "4", stdin=None)
        self.assertNotIn("dropped_tokens", json.loads(short.stdout))
        self.assertEqual(short.stderr, b"")

    def test_a_pipe_is_no_file(self):
        pipe = self.home / "pipe"
        os.mkfifo(pipe)
        refused = self.expect(2, "run", self.tiny, "--tools", pipe, "hello", stdin=None)
        self.assertIn(b"not a regular file", refused.stderr)

    def test_cache_type_is_chosen_and_told(self):
        arguments = ("run", self.tiny, "--raw", "hello", "-n", "4", "--verbose")
        self.assertIn(b"tokens in f16)", self.expect(0, *arguments, stdin=None).stderr)
        self.assertIn(b"tokens in q8_0)", self.expect(0, *arguments, "--kv-type", "q8_0", stdin=None).stderr)
        self.assertIn(b"q4_0", self.expect(2, *arguments, "--kv-type", "q2_0", stdin=None).stderr)

    def test_interrupt_ends_by_the_signal(self):
        process = subprocess.Popen([PROGRAM, "run", self.tiny, "--raw", "hello", "--temp", "0", "--ctx", "200000"], env=self.environment,
                                   stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
        self.assertTrue(process.stdout.read(1))  # the answer has begun
        process.send_signal(signal.SIGINT)
        process.stdout.read()
        self.assertEqual(process.wait(60), -signal.SIGINT)
        process.stdout.close()

    def test_base_model_continues_and_says_so(self):
        gemma = ROOT / "tests/data/tiny-gemma3.gguf"
        shown = json.loads(self.expect(0, "show", gemma, "--json").stdout)
        if shown["chat_template"]:
            self.skipTest("tiny-gemma3 has a chat template")
        done = self.expect(0, "run", gemma, "hello", "-n", "2", stdin=None)
        self.assertIn(b"base model", done.stderr)
        done = self.expect(0, "run", gemma, "hello", "-n", "2", "--system", "Be brief.", stdin=None)
        self.assertIn(b"system message is left out", done.stderr)
        self.assertIn(b"base model", self.expect(1, "chat", gemma, stdin=b"hello\n").stderr)


class Pictures(ProgramTest):
    def test_a_model_without_eyes_says_what_it_needs(self):
        picture = ROOT / "models/tinyvision/samples/00-emoji-what-is-it.png"
        done = self.expect(1, "run", self.tiny, "-i", picture, "what is this?")
        self.assertIn("--mmproj", done.stderr.decode())

    def test_wrong_files_are_named(self):
        eyes = ROOT / "models/tinyvision/mmproj-tinyvision-smollm2-135m-q8_0.gguf"
        done = self.expect(2, "run", self.tiny, "--mmproj", eyes, "-i", eyes, "what is this?")
        self.assertIn("do not belong together", done.stderr.decode())

    @unittest.skipUnless(real_model(), "needs smollm2-135m")
    def test_pictures_are_answered_as_by_the_references(self):
        eyes = ROOT / "models/tinyvision/mmproj-tinyvision-smollm2-135m-q8_0.gguf"
        samples = json.loads((ROOT / "models/tinyvision/samples.json").read_text())["samples"]
        self.assertEqual(len(samples), 18)
        for sample in samples:
            picture = ROOT / "models/tinyvision" / sample["file"]
            with self.subTest(sample["file"]):
                done = self.expect(0, "run", real_model(), "--temp", "0", "--mmproj", eyes, "-i", picture, sample["question"])
                answer = done.stdout.decode().strip()
                self.assertEqual(answer, sample["pytorch_fp32_greedy"])
                self.assertEqual(answer, sample["llama_cpp_f16"])


class Tools(ProgramTest):
    def test_tokenize(self):
        text = "hello, <|im_end|> w\u00f6rld\n"
        ids = json.loads(self.expect(0, "tokenize", self.tiny, "--json", stdin=text).stdout)
        self.assertEqual(set(ids), {"ids"})
        special = json.loads(self.expect(0, "tokenize", self.tiny, "--json", "--special", stdin=text).stdout)
        self.assertLess(len(special["ids"]), len(ids["ids"]))
        lines = self.expect(0, "tokenize", self.tiny, stdin=text).stdout.decode(errors="surrogateescape").splitlines()
        self.assertEqual([int(line.split("\t")[0]) for line in lines], ids["ids"])
        self.assertEqual(json.loads(self.expect(0, "tokenize", self.tiny, "--json", stdin="").stdout), {"ids": []})
        self.expect(0, "tokenize", self.tiny, "--json", stdin=b"\xff\x00\xfe")

    def test_perplexity(self):
        text = self.home / "text.txt"
        text.write_text("The quick brown fox jumps over the lazy dog. " * 40)
        logits = self.home / "logits.f32"
        done = self.expect(0, "perplexity", self.tiny, text, "--ctx", "32", "--chunks", "2", "--logits", logits)
        value = float(done.stdout.split()[-1])
        as_json = json.loads(self.expect(0, "perplexity", self.tiny, text, "--ctx", "32", "--chunks", "2", "--json").stdout)
        self.assertAlmostEqual(as_json["perplexity"], value, places=3)
        self.assertEqual((as_json["chunks"], as_json["ctx"]), (2, 32))
        # Each scored position has a row of logits as wide as the vocabulary, whose own perplexity is what was printed.
        ids = json.loads(self.expect(0, "tokenize", self.tiny, "--json", "--no-bos", stdin=text.read_text()).stdout)["ids"]
        rows = as_json["tokens"]
        width = logits.stat().st_size // 4 // rows
        self.assertEqual(logits.stat().st_size, 4 * rows * width)
        data = struct.unpack(f"<{rows * width}f", logits.read_bytes())
        targets = [ids[chunk * 32 + position + 1] for chunk in range(2) for position in range(16, 31)]
        self.assertEqual(len(targets), rows)
        total = 0.0
        for row, target in enumerate(targets):
            values = data[row * width:(row + 1) * width]
            best = max(values)
            total += values[target] - best - math.log(sum(math.exp(v - best) for v in values))
        self.assertAlmostEqual(math.exp(-total / rows), as_json["perplexity"], delta=1e-3 * as_json["perplexity"])
        pipe = self.home / "pipe"
        os.mkfifo(pipe)
        refused = self.expect(2, "perplexity", self.tiny, text, "--ctx", "32", "--chunks", "1", "--logits", pipe)
        self.assertIn(b"not a regular file", refused.stderr)
        self.assertTrue(pipe.is_fifo())
        self.assertIn(b"--ctx", self.expect(2, "perplexity", self.tiny, text, "--ctx", "100000").stderr)
        self.assertEqual(self.expect(1, "perplexity", self.tiny, self.home / "none.txt").stdout, b"")

    def test_quantize(self):
        text = self.home / "text.txt"
        text.write_text("The quick brown fox jumps over the lazy dog. " * 40)
        out = self.home / "out.gguf"
        done = self.expect(0, "quantize", self.tiny, out, "--type", "q4_0", "--report", text, "--ctx", "32", "--chunks", "2", "--json")
        made = json.loads(done.stdout)
        self.assertEqual(made["bytes"], out.stat().st_size)
        self.assertEqual(list((self.home / "packed").glob("*")), [], "the report leaves no packed weights")
        report = made["report"]
        self.assertEqual((report["chunks"], report["tokens"]), (2, 30))
        self.assertGreater(report["mean_kl"], 0)
        self.assertLessEqual(report["mean_kl"], report["max_kl"])
        # The same from files that exist; the last number is the perplexity.
        again = self.expect(0, "perplexity", out, text, "--against", self.tiny, "--ctx", "32", "--chunks", "2", "--precision", "high")
        self.assertAlmostEqual(float(again.stdout.split()[-1]), report["perplexity"], places=3)
        self.assertIn(b"KL divergence        %.6f" % report["mean_kl"], again.stdout)
        one, two = self.home / "one.gguf", self.home / "two.gguf"
        self.expect(0, "quantize", self.tiny, one, "--type", "q4_0", "-t", "1")
        self.expect(0, "quantize", self.tiny, two, "--type", "q4_0", "-t", "2")
        self.assertEqual(one.read_bytes(), two.read_bytes())
        self.assertEqual(one.read_bytes(), out.read_bytes())
        # What cannot be is said before the work, and nothing appears.
        empty = self.home / "empty.txt"
        empty.write_text("")
        for arguments in (("none.gguf", "--type", "q9"), ("none.gguf", "--type", "q4_0", "--report", self.home / "none.txt"),
                          ("none.gguf", "--type", "q4_0", "--report", empty), ("none.gguf", "--type", "q4_0", "--rule", "nosuch=q8_0"),
                          ("none/none.gguf", "--type", "q4_0")):
            failed = self.run_program("quantize", self.tiny, self.home / arguments[0], *arguments[1:])
            self.assertNotEqual(failed.returncode, 0)
            self.assertNotEqual(failed.stderr, b"")
        self.assertFalse(list(self.home.glob("none*")))

    def test_files_of_a_model_that_sees(self):
        checkpoint = ROOT / "tests/data/checkpoint/minicpmv4_6"
        text, vision = self.home / "tiny.gguf", self.home / "mmproj-tiny.gguf"
        told = self.expect(0, "convert", checkpoint, "-o", text, "--type", "f16").stderr.decode()
        self.assertIn(f": {text}\n", told)
        self.assertIn(f": {vision}\n", told)
        small, small_vision = self.home / "small-q4_k.gguf", self.home / "mmproj-small-q8_0.gguf"
        self.expect(0, "quantize", text, small, "--type", "q4_k", "--head", "q6_k")
        self.expect(0, "quantize", vision, small_vision, "--type", "q8_0")
        self.assertLess(small_vision.stat().st_size, vision.stat().st_size)
        picture = ROOT / "tests/data/vision/100x40.png"
        for model, eyes in ((text, vision), (small, small_vision)):
            answer = self.expect(0, "run", model, "--mmproj", eyes, "-i", picture, "What is it?", "-n", "4", "--temp", "0")
            self.assertNotEqual(answer.stdout, b"")
        # Names tell which file is which, and predictions of text are nothing that a vision file has.
        refused = self.expect(2, "convert", checkpoint, "-o", self.home / "mmproj-x.gguf")
        self.assertIn(b"taken for a vision file", refused.stderr)
        refused = self.expect(2, "convert", checkpoint, "-o", self.home / "eyes.gguf", "--only", "vision")
        self.assertIn(b"mmproj-eyes.gguf", refused.stderr)
        refused = self.expect(2, "quantize", vision, self.home / "none.gguf", "--type", "q8_0", "--head", "q8_0")
        self.assertIn(b"no matrix that makes logits", refused.stderr)
        refused = self.expect(2, "quantize", vision, self.home / "none.gguf", "--type", "q8_0", "--report", picture)
        self.assertIn(b"--report", refused.stderr)
        self.assertFalse((self.home / "none.gguf").exists())
        alone = self.home / "mmproj-alone.gguf"
        self.expect(0, "convert", checkpoint, "-o", alone, "--only", "vision", "--type", "f16")
        self.assertEqual(alone.read_bytes(), vision.read_bytes())

    def test_bench(self):
        bench = json.loads(self.expect(0, "bench", self.tiny, "--json", "-p", "8", "-n", "4", "-r", "3", "-t", "1").stdout)
        self.assertEqual(list(bench), ["model", "threads", "isa", "prefill", "decode", "limit", "peak_rss_mb", "load_ms"])
        self.assertEqual((bench["prefill"]["tokens"], bench["decode"]["tokens"], bench["threads"]), (8, 4, 1))
        for part in ("prefill", "decode"):
            self.assertEqual(len(bench[part]["tok_s_all"]), 3)
            self.assertEqual(bench[part]["tok_s"], sorted(bench[part]["tok_s_all"])[1])
        self.assertGreater(bench["decode"]["gb_s"], 0)
        self.assertGreater(bench["limit"]["read_gb_s"], 0)
        self.assertGreater(bench["limit"]["gemm_tflops"], 0)
        self.assertGreater(bench["peak_rss_mb"], 0)

    def test_pack(self):
        self.expect(0, "pack", self.tiny)
        packed = list((self.home / "packed").iterdir())
        self.assertEqual(len([file for file in packed if file.name.startswith("tiny-qwen2.gguf")]), 1)
        self.assertIn(b"already", self.expect(0, "pack", self.tiny).stderr)


class RealAnswers(ProgramTest):
    def test_capital_of_france(self):
        model = real_model()
        if not model:
            self.skipTest("no model; pull smollm2-135m or set NANOMIND_TEST_MODEL")
        environment = {"NANOMIND_PACKED": os.path.join(os.path.dirname(model), "packed")} if os.path.exists(model) else {}
        done = self.expect(0, "run", model, "--temp", "0", "-n", "24", "What is the capital of France?", stdin=None, environment=environment)
        self.assertIn("Paris", done.stdout.decode())


if __name__ == "__main__":
    main()
