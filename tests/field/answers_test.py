# SPDX-License-Identifier: Apache-2.0
"""Field cases of questions and answers (docs/field-cases.md), as users of the program meet them; on tiny random models."""
import json
import pathlib
import struct
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "cli"))
from program import ROOT, ProgramTest, main  # noqa: E402

TOOLS = [{"type": "function", "function": {"name": "get_weather", "description": "Weather of a city", "parameters": {
    "type": "object", "properties": {"city": {"type": "string", "enum": ["Seoul", "Busan"]}, "days": {"type": "integer", "minimum": 1, "maximum": 7}},
    "required": ["city", "days"]}}}, {"type": "function", "function": {"name": "stop"}}]
HERMES = "{% if tools %}{# <tool_call> #}{{ tools | tojson }}{% endif %}{{ messages[0].content }}"


class FieldCases(ProgramTest):
    def patched(self, key, value, name="patched.gguf"):
        """A copy of the tiny model where the text of a metadata key is another one, at most as long as its own."""
        model = (ROOT / "tests/data/tiny-qwen2.gguf").read_bytes()
        start = model.index(key.encode()) + len(key) + 4
        length = struct.unpack("<Q", model[start:start + 8])[0]
        self.assertLessEqual(len(value), length)
        path = self.home / name
        path.write_bytes(model[:start + 8] + value.encode().ljust(length) + model[start + 8 + length:])
        return path

    def with_template(self, template):
        return self.patched("tokenizer.chat_template", template, "templated.gguf")

    def ends_well(self, *arguments, **options):
        """Runs to an end that the program chose: an answer, or an error in words."""
        done = self.run_program(*arguments, **options)
        self.assertIn(done.returncode, (0, 1, 2), done.stderr[-500:])
        if done.returncode:
            self.assertIn(b"nanomind: ", done.stderr)
        return done

    def test_ctx_01_overflow_is_loud_on_every_path(self):
        secret = "The secret is ANANAS-7734. " + "word " * 600
        for flags in (["--raw"], [], ["--json"], ["--json", "--raw"]):
            with self.subTest(flags=flags):
                done = self.expect(1, "run", self.tiny, "--ctx", "512", *flags, stdin=secret)
                self.assertEqual(done.stdout, b"")
                self.assertRegex(done.stderr.decode(), r"prompt has \d+ tokens, but the context holds 512")
        done = self.expect(0, "chat", self.tiny, "--ctx", "512", "-n", "2", stdin=secret + "\nhello\n")
        self.assertIn(b"The question was not taken in", done.stderr)
        self.assertIn(b"stopped after 2", done.stderr)  # the next question is answered

    def test_ctx_09_absurd_contexts_are_refused_at_start(self):
        for size in ("1000000000", "2147483648"):
            done = self.expect(1, "run", self.tiny, "--ctx", size, "--memory", "64M", "hello", stdin=None)
            self.assertRegex(done.stderr.decode(), r"needs \d+ MB .* but 64 MB are available. A context of \d+ tokens would fit \(--ctx \d+\)")

    def test_ctx_10_context_is_shown(self):
        self.assertEqual(json.loads(self.expect(0, "show", self.tiny, "--json").stdout)["context"], 256)
        for flags, context in (([], 256), (["--ctx", "64"], 64)):
            done = self.expect(0, "run", self.tiny, "--raw", "hello", "-n", "1", "--json", *flags, stdin=None)
            self.assertEqual(json.loads(done.stdout)["context"], context)

    def test_tok_01_long_runs_are_read(self):
        for text in ("A" * 43_000, "Z" * 131_072, "\n" * 100_000, " " * 200_000, "QUJD" * 30_000):
            with self.subTest(text=text[:4], length=len(text)):
                ids = json.loads(self.expect(0, "tokenize", self.tiny, "--json", stdin=text).stdout)["ids"]
                self.assertGreater(len(ids), 0)
                self.assertIn(b"context holds", self.expect(1, "run", self.tiny, "--raw", stdin=text).stderr)

    def test_tok_03_nul_does_not_end_the_question(self):
        def tokens(text):
            done = self.expect(0, "run", self.tiny, "--json", "-n", "1", stdin=text)
            return json.loads(done.stdout)["prompt_tokens"]
        self.assertEqual(tokens(b"BANANA\0APPLE") - tokens(b"BANANA"), len(b"\0APPLE"))  # the tiny model has bytes for tokens

    def test_tok_04_an_unknown_pre_tokenizer_is_an_error(self):
        done = self.expect(1, "run", self.patched("tokenizer.ggml.pre", "qwen9"), "hello", stdin=None)
        self.assertIn(b"qwen9", done.stderr)
        model = (ROOT / "tests/data/tiny-qwen2.gguf").read_bytes()
        old = self.home / "old.gguf"
        old.write_bytes(model.replace(b"tokenizer.ggml.pre", b"tokenizer.ggml.per"))
        self.assertIn(b"Convert the model again", self.expect(1, "run", old, "hello", stdin=None).stderr)

    def test_tok_06_thoughts_are_no_answer(self):
        model = self.with_template("{{ messages[0].content }}<think>{# </think> #}\n")
        run = ("run", model, "--temp", "0", "--ignore-eos", "--json", "hello")
        eaten = json.loads(self.expect(0, *run, "-n", "8", stdin=None).stdout)
        self.assertEqual((eaten["text"], eaten["finish_reason"], eaten["reasoning_tokens"]), ("", "length", 8))
        self.assertNotEqual(eaten["reasoning"], "")
        closed = json.loads(self.expect(0, *run, "-n", "60", "--think-budget", "5", "--regex", "yes|no", stdin=None).stdout)
        self.assertIn(closed["text"], ("yes", "no"))
        self.assertNotIn("</think>", closed["reasoning"])
        # What is printed is the answer alone, and past thoughts are not part of the next prompt.
        plain = self.expect(0, "run", model, "--temp", "0", "-n", "60", "--think-budget", "5", "--regex", "yes|no", "hello", stdin=None)
        self.assertIn(plain.stdout, (b"yes\n", b"no\n"))
        turns = self.with_template("{% for m in messages %}{{ m.content }}|{% endfor %}<think>{# </think> #}\n")
        talk = self.home / "talk.json"
        self.expect(0, "chat", turns, "--temp", "0", "-n", "60", "--think-budget", "5", "--regex", "yes|no", stdin=f"one\ntwo\n/save {talk}\n")
        for message in json.loads(talk.read_text())["messages"]:
            self.assertIn(message["content"], ("one", "two", "yes", "no"))

    def test_tok_07_a_template_that_knows_no_system_role_gets_the_text(self):
        model = self.with_template("{% if messages[0].role == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
                                   "{{ messages[0].content }}")
        def tokens(*flags):
            return json.loads(self.expect(0, "run", model, "--json", "-n", "1", *flags, "hello", stdin=None).stdout)["prompt_tokens"]
        self.assertEqual(tokens("--system", "Be brief.") - tokens(), len("Be brief.\n\n"))
        refuses = self.with_template("{{ raise_exception('Not today') }}")
        self.assertIn(b"Not today", self.expect(2, "run", refuses, "hello", stdin=None).stderr)

    def test_tok_09_hostile_templates_are_stopped(self):
        for template in ("{% for i in range(10**9) %}x{% endfor %}", "{{ 'x' * 10**12 }}", "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
                         "{{ ''.__class__.__mro__ }}", "{{ cycler.__init__.__globals__.os.popen('id').read() }}", "{% include '/etc/passwd' %}"):
            with self.subTest(template=template):
                done = self.ends_well("run", self.with_template(template), "hello", "-n", "1", stdin=None)
                self.assertNotIn(b"root:", done.stdout + done.stderr)
                self.assertNotIn(b"uid=", done.stdout + done.stderr)

    def test_tok_10_bytes_that_are_no_utf8(self):
        gbk = "你好".encode("gbk")
        for text in (gbk, b"\xed\xa0\x80", b"\xc0\xaf", b"hello \xff"):
            with self.subTest(text=text):
                self.assertIn(b"not valid UTF-8", self.expect(2, "run", self.tiny, stdin=text).stderr)
        self.expect(0, "run", self.tiny, "-n", "1", stdin=b"\xef\xbb\xbfhello")
        self.expect(0, "run", self.tiny, "--raw", "-n", "1", stdin=gbk)  # a text to continue is bytes
        self.assertIn(b"empty", self.expect(2, "run", self.tiny, stdin=b"\r\n").stderr)
        talk = self.home / "talk.json"
        for content in (b'"\\ud800"', b'"\xc4\xe3"', b'"\xc0\xaf"', b'"a\x00b"'):
            talk.write_bytes(b'{"nanomind_chat": 1, "messages": [{"role": "user", "content": ' + content + b'}]}')
            done = self.expect(0, "chat", self.tiny, "-n", "1", stdin=f"/load {talk}\nhello\n")
            self.assertIn(b"not a conversation", done.stderr)
            self.assertIn(b"stopped after 1", done.stderr)

    def test_tool_03_hostile_forms_of_answers_are_errors(self):
        deep = self.home / "deep.json"
        parentheses = "(" * 60_000 + "a" + ")" * 60_000
        schema = '{"type":"array","items":' * 10_000 + "{}" + "}" * 10_000
        for flag, source in (("--regex", parentheses), ("--json-schema", schema), ("--json-schema", "[" * 1_000_000), ("--gbnf", f"root ::= {parentheses}"),
                             ("--lark", f"start: {parentheses}"), ("--tools", '[{"name":"f","parameters":' + '{"a":' * 200_000 + "1" + "}" * 200_000 + "}]"),
                             ("--tools", "[" * 1_000_000)):
            with self.subTest(flag=flag, source=source[:30]):
                deep.write_text(source)
                done = self.expect(2, "run", self.tiny, "hello", flag, source if flag == "--regex" else deep, stdin=None)
                self.assertEqual(done.stdout, b"")
        done = self.expect(0, "run", self.tiny, "--raw", "hello", "--json", "-n", "30", "--regex", "(a+)+b", stdin=None)
        self.assertRegex(json.loads(done.stdout)["text"], "^a*b?$")
        deep.write_text("[" * 1_000_000)
        self.assertIn(b"not a conversation", self.expect(0, "chat", self.tiny, stdin=f"/load {deep}\n").stderr)

    def test_tool_04_a_model_that_likes_white_space_ends(self):
        schema = '{"type":"object","properties":{"a":{"enum":[1,2]}},"required":["a"],"additionalProperties":false}'
        likes = [flag for byte in (" ", "\n") for flag in ("--logit-bias", f"{byte}=1e4")]
        done = self.expect(0, "run", self.tiny, "--raw", "hello", "--json", "--ctx", "4000", *likes, "--json-schema", schema, stdin=None)
        answer = json.loads(done.stdout)
        self.assertEqual(answer["finish_reason"], "stop")
        self.assertIn(json.loads(answer["text"]), ({"a": 1}, {"a": 2}))
        self.assertLess(len(answer["text"]), 200)

    def calls(self, choice, model, *flags, tools=None):
        path = self.home / "tools.json"
        path.write_text(json.dumps(tools or TOOLS))
        chosen = ["--tool-choice", choice] if choice else []
        done = self.expect(0, "run", model, "--json", "--ctx", "2000", "--seed", "1", "--tools", path, *chosen, *flags, "How old is Rome?", stdin=None)
        return json.loads(done.stdout)

    def test_tool_07_the_choice_of_a_tool_is_kept(self):
        model = self.with_template(HERMES)
        without = json.loads(self.expect(0, "run", model, "--json", "-n", "4", "How old is Rome?", stdin=None).stdout)
        none = self.calls("none", model, "-n", "4")
        self.assertEqual((none["tool_calls"], none["prompt_tokens"]), ([], without["prompt_tokens"]))
        for choice in (None, "auto"):
            self.assertGreater(self.calls(choice, model, "-n", "4")["prompt_tokens"], without["prompt_tokens"])
        for choice in ("required", "get_weather", "stop"):
            with self.subTest(choice=choice):
                answer = self.calls(choice, model)
                self.assertEqual((answer["text"], answer["finish_reason"]), ("", "stop"))
                names = [call["name"] for call in answer["tool_calls"]]
                self.assertGreaterEqual(len(names), 1)
                if choice != "required":
                    self.assertEqual(names, [choice])
                for call in answer["tool_calls"]:
                    if call["name"] == "stop":
                        self.assertEqual(call["arguments"], {})
                    else:
                        self.assertIn(call["arguments"].get("city"), ("Seoul", "Busan"))
                        self.assertIn(call["arguments"].get("days"), range(1, 8))

    def test_tool_07_what_cannot_be_kept_is_refused(self):
        model = self.with_template(HERMES)
        tools = self.home / "tools.json"
        tools.write_text(json.dumps(TOOLS))
        run = ("run", model, "hello", "-n", "4")
        unknown = self.expect(2, *run, "--tools", tools, "--tool-choice", "get_wether", stdin=None)
        self.assertIn(b"no tool named 'get_wether'; there are: get_weather, stop", unknown.stderr)
        self.assertIn(b"--tools", self.expect(2, *run, "--tool-choice", "required", stdin=None).stderr)
        self.assertIn(b"--regex", self.expect(2, *run, "--tools", tools, "--tool-choice", "required", "--regex", "a", stdin=None).stderr)
        plain = self.with_template("{{ messages[0].content }}")
        self.assertIn(b"knows no tools", self.expect(1, "run", plain, "hello", "--tools", tools, "--tool-choice", "required", stdin=None).stderr)
        tools.write_text('[{"name": "f", "parameters": {"properties": {"a": {"type": "array", "uniqueItems": true}}}}]')
        done = self.expect(2, "run", self.with_template(HERMES), "hello", "--tools", tools, "--tool-choice", "f", stdin=None)
        self.assertRegex(done.stderr.decode(), r"tools\.json.*uniqueItems")

    def test_tool_09_texts_of_several_bytes_come_whole(self):
        schema = json.dumps({"enum": ["서울", "부산", "😀"]}, ensure_ascii=False)
        for seed in range(4):
            done = self.expect(0, "run", self.tiny, "--raw", "hello", "--temp", "2", "--seed", seed, "--json-schema", schema, stdin=None)
            self.assertIn(json.loads(done.stdout), ("서울", "부산", "😀"))

    def test_qual_03_temperature_zero_is_the_likeliest_token(self):
        run = ("run", self.tiny, "--raw", "1 1 1 1 1 1", "--temp", "0", "-n", "12", "--json", "--logprobs", "1")
        plain = json.loads(self.expect(0, *run, stdin=None).stdout)
        odd = json.loads(self.expect(0, *run, "--repeat-penalty", "2", "--presence-penalty", "5", "--top-k", "3", "--top-p", "0.1", stdin=None).stdout)
        self.assertEqual(odd["ids"], plain["ids"])
        self.assertEqual([entry["top_logprobs"][0]["id"] for entry in plain["logprobs"]], plain["ids"])


if __name__ == "__main__":
    main()
