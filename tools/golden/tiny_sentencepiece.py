# SPDX-License-Identifier: Apache-2.0
"""Trains a small SentencePiece BPE on the project's text, and writes its files and what the sentencepiece package makes of texts.

    tiny_sentencepiece.py [FOLDER]     default: tests/data/sentencepiece

tokenizer.model is as Llama 2 has it (bytes, no normalisation, a space before the text), tokenizer.json the same as transformers
saves it, ids.json a list of texts with their ids.
"""

import json
import sys
import tempfile
from pathlib import Path

import sentencepiece
from transformers import LlamaTokenizer

DATA = Path(__file__).resolve().parents[2] / "tests/data"
HARD = [
    "", " ", "  two  spaces ", "\ttab\tand\n", "naïve café 中文 🦙🏽", "1234567890", "a▁b", "<0x41> stays text", "ends with a space ",
    " begins with one", "xxxxxxxxxxxxxxxx", "no\u00a0break", "e\u0301", "مرحبا", "don't", "one\n\ntwo\n", "the<tool>of", "</s> is text",
]  # fmt: skip


def train(folder):
    with tempfile.TemporaryDirectory() as scratch:
        sentencepiece.SentencePieceTrainer.train(
            input=DATA / "text_en.txt",
            model_prefix=Path(scratch) / "tokenizer",
            model_type="bpe",
            vocab_size=420,
            byte_fallback=True,
            normalization_rule_name="identity",
            remove_extra_whitespaces=False,
            split_digits=True,
            allow_whitespace_only_pieces=True,
            user_defined_symbols=["<tool>"],
            minloglevel=2,
        )
        (folder / "tokenizer.model").write_bytes((Path(scratch) / "tokenizer.model").read_bytes())
        LlamaTokenizer.from_pretrained(folder).save_pretrained(scratch)
        saved = json.loads((Path(scratch) / "tokenizer.json").read_text())
        (folder / "tokenizer.json").write_text(json.dumps(saved, ensure_ascii=False, separators=(",", ":")) + "\n")


def main():
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else DATA / "sentencepiece"
    folder.mkdir(parents=True, exist_ok=True)
    train(folder)
    model = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    lines = [line for line in (DATA / "text_en.txt").read_text().splitlines() if line][:12]
    texts = [{"text": text, "ids": model.encode(text)} for text in HARD + lines]
    (folder / "ids.json").write_text(json.dumps(texts, ensure_ascii=False, separators=(",", ":")) + "\n")
    print(f"{model.vocab_size()} pieces, {sum(len(t['ids']) for t in texts)} ids")


if __name__ == "__main__":
    main()
