# SPDX-License-Identifier: Apache-2.0
"""Vectors of texts and the order of documents, as scripts read them."""
import base64
import json
import math
import struct

from program import ROOT, ProgramTest, main, stored_model

TEXTS = ("a bad cab", "deaf bee", "")
LONG = "a " * 200  # for a model of 40 tokens


def tiny(name):
    return ROOT / f"tests/data/tiny-{name}.gguf"


def golden(name):
    return json.loads((ROOT / f"tests/golden/{name}.json").read_text(encoding="utf-8"))


def rounded(numbers):
    """As the nearest floats, which is what every format has."""
    return struct.unpack(f"<{len(numbers)}f", struct.pack(f"<{len(numbers)}f", *numbers))


def dot(a, b):
    return sum(x * y for x, y in zip(a, b, strict=True))


def cosine(a, b):
    return dot(a, b) / math.sqrt(dot(a, a) * dot(b, b))


def expect_refusal(test, code, said, *arguments):
    done = test.expect(code, *arguments)
    test.assertIn(said, done.stderr)
    test.assertEqual(done.stdout, b"")


class Embed(ProgramTest):
    def vectors(self, *arguments, model=tiny("bert"), **options):
        lines = self.expect(0, "embed", model, *arguments, **options).stdout.decode().splitlines()
        return [rounded([float(number) for number in line.split()]) for line in lines]

    def test_formats_agree(self):
        vectors = self.vectors(*TEXTS)
        self.assertEqual([len(vector) for vector in vectors], [64] * len(TEXTS))
        for flag, read in (("--json", rounded), ("--base64", lambda text: struct.unpack("<64f", base64.b64decode(text)))):
            answer = json.loads(self.expect(0, "embed", tiny("bert"), *TEXTS, flag).stdout)
            self.assertEqual((answer["object"], answer["model"]), ("list", "tiny-bert"))
            self.assertEqual([(entry["object"], entry["index"]) for entry in answer["data"]],
                             [("embedding", i) for i in range(len(TEXTS))])
            self.assertEqual([read(entry["embedding"]) for entry in answer["data"]], vectors)

    def test_npy_is_numpys_matrix(self):
        data = self.expect(0, "embed", tiny("bert"), *TEXTS, "--npy").stdout
        self.assertEqual(data[:8], b"\x93NUMPY\x01\x00")
        start = 10 + struct.unpack("<H", data[8:10])[0]
        self.assertEqual(start % 64, 0)
        header = data[10:start].decode()
        self.assertTrue(header.endswith("\n"))
        self.assertIn("'descr': '<f4', 'fortran_order': False, 'shape': (3, 64)", header)
        self.assertEqual(struct.unpack("<192f", data[start:]), sum(self.vectors(*TEXTS), ()))

    def test_texts_do_not_depend_on_each_other(self):
        together = self.vectors(*TEXTS)
        self.assertEqual(together, [self.vectors(text)[0] for text in TEXTS])
        self.assertEqual(len(set(together)), len(TEXTS))
        for vector in together:
            self.assertAlmostEqual(dot(vector, vector), 1, places=5)

    def test_without_texts_every_line_of_input_is_one(self):
        given = self.vectors("a bad cab", "", "deaf bee")
        for stdin in ("a bad cab\n\ndeaf bee\n", "a bad cab\n\ndeaf bee"):
            self.assertEqual(self.vectors(stdin=stdin), given)
        self.assertEqual(self.vectors("deaf bee", stdin="a bad cab\n"), given[2:])  # texts that are given come alone

    def test_what_cannot_be_done_is_said_and_nothing_printed(self):
        for code, said, *arguments in (
                (2, b"no text", tiny("bert")),
                (2, b"excludes", tiny("bert"), "a", "--json", "--npy"),
                (1, b"writes text", tiny("llama"), "a"),
                (1, b"nanomind rerank", tiny("xlm-roberta"), "a"),
                (1, b"402 tokens, but the model takes 40", tiny("bert"), "a", LONG + LONG),
                (1, b"no model 'nothing'", "nothing", "a")):
            expect_refusal(self, code, said, "embed", *arguments)

    def test_a_converted_checkpoint_gives_the_references_vectors(self):
        model = self.home / "embedding.gguf"
        self.expect(0, "convert", ROOT / "tests/data/embedders/qwen3-embedding", "-o", model)
        for expected in golden("embedders")["embedders"]["qwen3-embedding"]:
            self.assertGreater(cosine(self.vectors(expected["text"], model=model)[0], expected["vector"]), 0.9999)


class Rerank(ProgramTest):
    documents = ("a bad cab", "deaf bee", "")

    def rank(self, *arguments, model=tiny("xlm-roberta"), query="abba"):
        return self.expect(0, "rerank", model, "--query", query, *arguments).stdout.decode()

    def test_the_best_comes_first_in_both_formats(self):
        answer = json.loads(self.rank(*self.documents, "--json"))
        self.assertEqual((answer["object"], answer["model"]), ("list", "tiny-xlm-roberta"))
        scores = [entry["relevance_score"] for entry in answer["results"]]
        self.assertEqual(scores, sorted(scores, reverse=True))
        self.assertEqual(sorted(entry["index"] for entry in answer["results"]), [0, 1, 2])
        self.assertEqual(self.rank(*self.documents), "".join(
            f"{entry['relevance_score']:.4f}\t{entry['index']}\t{self.documents[entry['index']]}\n" for entry in answer["results"]))

    def test_top_cuts_the_list(self):
        every = self.rank(*self.documents).splitlines()
        self.assertEqual(self.rank(*self.documents, "--top", 2).splitlines(), every[:2])
        self.assertEqual(self.rank(*self.documents, "--top", 9).splitlines(), every)

    def test_equal_documents_keep_their_order(self):
        lines = self.rank("deaf bee", "deaf bee", "deaf bee").splitlines()
        self.assertEqual([line.split("\t")[1] for line in lines], ["0", "1", "2"])

    def test_what_cannot_be_done_is_said_and_nothing_printed(self):
        ranker = tiny("xlm-roberta")
        for code, said, *arguments in (
                (2, b"document is required", ranker, "--query", "a"),
                (2, b"--query is required", ranker, "a"),
                (2, b"--top", ranker, "--query", "a", "b", "--top", "0"),
                (1, b"nanomind embed", tiny("bert"), "--query", "a", "b"),
                (1, b"writes text", tiny("llama"), "--query", "a", "b"),
                (1, b"the model takes", ranker, "--query", "a", "b", LONG)):
            expect_refusal(self, code, said, "rerank", *arguments)

    def test_a_converted_checkpoint_gives_the_references_scores(self):
        model = self.home / "ranker.gguf"
        self.expect(0, "convert", ROOT / "tests/data/embedders/qwen3-reranker", "-o", model)
        for expected in golden("embedders")["rankers"]["qwen3-reranker"]:
            answer = json.loads(self.rank(expected["document"], "--json", model=model, query=expected["query"]))
            self.assertAlmostEqual(answer["results"][0]["relevance_score"], expected["score"], delta=2e-3)


class MiniLm(ProgramTest):
    """The real model: the vectors that transformers computes of the same file (tools/golden/minilm_vectors.py)."""

    def setUp(self):
        super().setUp()
        self.model = stored_model("minilm")
        if self.model is None:
            self.skipTest("needs the model minilm: nanomind pull minilm")
        self.sentences = golden("minilm")["sentences"]
        answer = self.expect(0, "embed", self.model, "--json", *(sentence["text"] for sentence in self.sentences)).stdout
        self.vectors = [entry["embedding"] for entry in json.loads(answer)["data"]]

    def test_vectors_are_the_references(self):
        for sentence, vector in zip(self.sentences, self.vectors, strict=True):
            self.assertGreaterEqual(cosine(vector, sentence["vector"]), 0.99999, sentence["text"])

    def test_what_means_the_same_is_nearest(self):
        for i in range(6):  # the others have no partner
            likeness = {j: cosine(self.vectors[i], vector) for j, vector in enumerate(self.vectors) if j != i}
            self.assertEqual(max(likeness, key=likeness.get), i ^ 1, self.sentences[i]["text"])


if __name__ == "__main__":
    main()
