# SPDX-License-Identifier: Apache-2.0
"""What the documentation says of real models that takes them to show: calls of tools, what constraints cost, what guesses bring.

NANOMIND_TEST_MODELS names a folder with NAME.gguf of each (`./dev real` makes it). Speeds are ratios of medians of turns A B A B.
"""
import json
import os
import pathlib
import statistics
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path += [str(ROOT / "tests/cli"), str(ROOT / "bench")]
import draft  # noqa: E402  (of bench)
from program import ProgramTest, main  # noqa: E402

MODELS = pathlib.Path(os.environ["NANOMIND_TEST_MODELS"])
TURNS = 5


def tool(name, what, **parameters):
    properties = {key: {"type": "string", "description": value} for key, value in parameters.items()}
    return {"type": "function", "function": {"name": name, "description": what, "parameters": {
        "type": "object", "properties": properties, "required": list(parameters)}}}


class Claims(ProgramTest):
    def setUp(self):
        super().setUp()
        self.environment["NANOMIND_PACKED"] = str(MODELS / "packed")

    def ask(self, model, question, *flags):
        path = MODELS / f"{model}.gguf"
        return json.loads(self.expect(0, "run", path, question, "--json", "--temp", "0", *flags, stdin=None).stdout)

    def speeds(self, model, question, plain, other):
        """Medians of tokens per second with the flags of either, and the last answers."""
        answers = [(self.ask(model, question, *plain), self.ask(model, question, *other)) for _ in range(TURNS)]
        medians = [statistics.median(answer["timings"]["decode_tok_s"] for answer in column) for column in zip(*answers)]
        return medians, answers[-1]

    def test_calls_of_tools_are_read(self):
        tools = self.home / "tools.json"
        tools.write_text(json.dumps([tool("get_weather", "The weather of a city now.", city="name of the city"),
                                     tool("get_time", "The time of a city now.", city="name of the city")]))
        cases = (("What is the weather in Oslo?", [("get_weather", "Oslo")]),
                 ("What time is it in Lima?", [("get_time", "Lima")]),
                 ("What is the weather in Paris and in Rome? Call the tool once for each.", [("get_weather", "Paris"), ("get_weather", "Rome")]))
        for question, expected in cases:
            with self.subTest(question=question):
                answer = self.ask("qwen2.5-coder-1.5b", question, "--tools", tools)
                self.assertEqual([(call["name"], call["arguments"]["city"]) for call in answer["tool_calls"]], expected)

    def test_constraints_cost_less_than_a_sixth(self):
        entry = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer"}},
                 "required": ["name", "age"], "additionalProperties": False}
        schema = json.dumps({"type": "array", "items": entry, "minItems": 12, "maxItems": 12})
        for model in ("smollm2-135m", "qwen2.5-coder-0.5b"):
            with self.subTest(model=model):
                (free, constrained), (_, answer) = self.speeds(model, "List twelve people as JSON, each with name and age.",
                                                               ["-n", "200"], ["-n", "400", "--json-schema", schema])
                self.assertEqual(len(json.loads(answer["text"])), 12)
                print(f"{model}: with a schema {constrained / free:.2f} of the speed without")
                self.assertGreaterEqual(constrained / free, 0.85)

    def test_guesses_pay_where_text_is_copied(self):
        for model in ("smollm2-135m", "qwen2.5-coder-1.5b"):
            with self.subTest(model=model):
                (plain, guessed), answers = self.speeds(model, draft.COPY_HEAVY, ["-n", "200"], ["-n", "200", "--draft", "lookup"])
                self.assertEqual(answers[0]["text"], answers[1]["text"])
                print(f"{model}: {guessed / plain:.2f} times as fast with guesses")
                self.assertGreaterEqual(guessed / plain, 1.3)


if __name__ == "__main__":
    main()
