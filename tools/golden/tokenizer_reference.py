# SPDX-License-Identifier: Apache-2.0
"""The reference tokenizer of a GGUF file, with what prompts need besides: control tokens, beginning, template.

The ids of plain text come from tokenizer_ids.py, that is from the libraries that the models' authors used. The GGUF
import of transformers is not used for tokens: it does not look at tokenizer.ggml.pre.
"""

import re

import gguf
import jinja2

from tokenizer_ids import CONTROL, bpe_encoder, sentencepiece_encoder

ENDING = {"<|im_end|>", "<|endoftext|>", "<eos>", "<end_of_turn>"}


class ReferenceTokenizer:
    def __init__(self, path):
        fields = gguf.GGUFReader(path).fields
        read = lambda key: fields[f"tokenizer.{key}"].contents() if f"tokenizer.{key}" in fields else None
        self.tokens, types = read("ggml.tokens"), read("ggml.token_type")
        self.template = read("chat_template")
        self.beginning = read("ggml.bos_token_id") if read("ggml.add_bos_token") else None
        self.control = {t: i for i, (t, kind) in enumerate(zip(self.tokens, types)) if kind == CONTROL}
        self.ends = sorted(i for t, i in self.control.items() if t in ENDING)
        longest_first = sorted(self.control, key=len, reverse=True)
        self.split = re.compile("(" + "|".join(map(re.escape, longest_first)) + ")")
        if read("ggml.model") == "gpt2":
            self.plain = bpe_encoder(self.tokens, types, read("ggml.merges"), read("ggml.pre"))
        else:
            self.plain = sentencepiece_encoder(self.tokens, types, read("ggml.scores"))

    def encode(self, text, recognise_control=False, beginning=True):
        """Ids of text; control tokens' spellings are text unless recognise_control."""
        ids = [self.beginning] if beginning and self.beginning is not None else []
        for part in self.split.split(text) if recognise_control else [text]:
            ids += [self.control[part]] if recognise_control and part in self.control else self.plain(part)
        return ids

    def render(self, messages):
        """The chat template's text, ready for the answer."""
        environment = jinja2.Environment(trim_blocks=True, lstrip_blocks=True)
        ending = self.tokens[self.ends[-1]]
        return environment.from_string(self.template).render(
            messages=messages, add_generation_prompt=True, bos_token="", eos_token=ending
        )
