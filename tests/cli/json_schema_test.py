# SPDX-License-Identifier: Apache-2.0
"""Answers to JSON schemas at temperature 1: every one must parse and meet its schema.

Needs a real model (see program.py). NANOMIND_TEST_SCHEMAS says how many answers to draw (default: one of each schema).
"""
import itertools
import json
import os
import tempfile
import unittest

from program import ProgramTest, main, real_model

try:
    import jsonschema
except ImportError:
    jsonschema = None

PERSON = {"type": "object", "properties": {"name": {"type": "string", "maxLength": 20}, "age": {"type": "integer", "minimum": 0, "maximum": 120}},
          "required": ["name", "age"], "additionalProperties": False}


def tree(depth):
    """Trees of at most so many levels below the first; None: of any."""
    def node(children):
        return {"type": "object", "properties": {"name": {"type": "string", "maxLength": 12}, "children": children},
                "required": ["name", "children"], "additionalProperties": False}
    def list_of(name):
        return {"type": "array", "items": {"$ref": f"#/$defs/{name}"}, "maxItems": 2}
    if depth is None:
        return {"$ref": "#/$defs/node", "$defs": {"node": node(list_of("node"))}}
    levels = {f"level{i}": node(list_of(f"level{i + 1}")) for i in range(depth)}
    return {"$ref": "#/$defs/level0", "$defs": levels | {f"level{depth}": node({"const": []})}}


SCHEMAS = [
    PERSON,
    {"type": "array", "items": PERSON, "minItems": 1, "maxItems": 3},
    {"enum": ["red", "green", "blue", 7, None, {"a": 1}]},
    {"type": "object", "properties": {"x": {"type": "number"}, "y": {"type": "number", "minimum": -1, "maximum": 1}},
     "required": ["x"], "additionalProperties": False},
    {"type": "object", "properties": {"date": {"type": "string", "pattern": "^[0-9]{4}-[01][0-9]-[0-3][0-9]$"}},
     "required": ["date"], "additionalProperties": False},
    {"$defs": {"leaf": {"type": "object", "properties": {"value": {"type": "integer"}}, "required": ["value"],
                        "additionalProperties": False}},
     "type": "object", "properties": {"left": {"$ref": "#/$defs/leaf"}, "right": {"$ref": "#/$defs/leaf"}},
     "required": ["left", "right"], "additionalProperties": False},
    {"$defs": {"item": {"allOf": [{"$ref": "#/$defs/base"}]}, "base": {"enum": ["a", "b"]}},
     "type": "array", "items": {"type": "array", "items": {"$ref": "#/$defs/item"}, "maxItems": 3}, "maxItems": 3},
    {"anyOf": [{"type": "boolean"}, {"type": "string", "maxLength": 5}, {"type": "null"}]},
    {"type": "object", "properties": {"kind": {"const": "weather"}, "city": {"type": "string", "minLength": 1, "maxLength": 12},
                                      "unit": {"enum": ["C", "F"]}, "days": {"type": "array", "items": {"type": "integer"},
                                                                              "minItems": 2, "maxItems": 2}},
     "required": ["kind", "city", "unit", "days"], "additionalProperties": False},
    {"type": "array", "prefixItems": [{"type": "string", "maxLength": 4}, {"type": "boolean"}], "items": False, "minItems": 2},
    {"type": "integer", "minimum": 10, "maximum": 99},
    {"type": "object", "properties": {"서울": {"enum": ["맑음", "비", "😀"]}}, "required": ["서울"], "additionalProperties": False},
    {"type": "object", "additionalProperties": {"type": "boolean"}, "minProperties": 1, "maxProperties": 2},
    tree(2),
]


@unittest.skipUnless(jsonschema, "the Python package jsonschema is missing")
class JsonSchema(ProgramTest):
    def setUp(self):
        super().setUp()
        self.model = real_model()
        if not self.model:
            self.skipTest("there is no real model")

    def answer(self, schema, seed, tokens):
        packed = {"NANOMIND_PACKED": os.environ.get("NANOMIND_PACKED", os.path.join(tempfile.gettempdir(), "nanomind-test-packed"))}
        done = self.expect(0, "run", self.model, "--json", "--temp", "1", "--seed", seed, "-n", tokens, "--json-schema", json.dumps(schema),
                           "Give an example in JSON.", stdin=None, environment=packed)
        return json.loads(done.stdout)

    def test_every_answer_meets_its_schema(self):
        count = int(os.environ.get("NANOMIND_TEST_SCHEMAS", len(SCHEMAS)))
        for seed, schema in zip(range(count), itertools.cycle(SCHEMAS)):
            with self.subTest(seed=seed, schema=schema):
                answer = self.answer(schema, seed, 1000)
                self.assertEqual(answer["finish_reason"], "stop", answer["text"])
                jsonschema.validate(json.loads(answer["text"]), schema)

    def test_a_schema_without_a_bound_ends_with_the_tokens(self):
        """Small models rarely end a tree of any depth: an answer that is cut says so."""
        for seed in range(2):
            answer = self.answer(tree(None), seed, 200)
            if answer["finish_reason"] == "stop":
                jsonschema.validate(json.loads(answer["text"]), tree(None))
            else:
                self.assertEqual(answer["finish_reason"], "length")
                self.assertRegex(answer["text"], r'^\s*\{\s*"name"\s*:')
                self.assertRaises(ValueError, json.loads, answer["text"])


if __name__ == "__main__":
    main()
