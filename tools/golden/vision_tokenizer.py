# SPDX-License-Identifier: Apache-2.0
"""Small byte-level BPE vocabularies with the control tokens of a model family, for transformers and for a GGUF file."""

import gguf
from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers
from tokenizers import Regex
from transformers import PreTrainedTokenizerFast

from tiny_models import byte_characters
from tokenizer_words import RULES


class ByteLevelVocabulary:
    """256 bytes, one token per merge, and then `controls`. `pre` names the rule that cuts text into words."""

    def __init__(self, pre, merges, controls, bos, eos, template):
        self.pre, self.merges, self.controls, self.template = pre, merges, controls, template
        self.pieces = [byte_characters()[b] for b in range(256)] + ["".join(pair.split(" ")) for pair in merges]
        self.tokens = self.pieces + controls
        self.bos, self.eos = bos, eos

    def id(self, token):
        return self.tokens.index(token)

    def control_ids(self):
        return range(len(self.pieces), len(self.tokens))

    def __len__(self):
        return len(self.tokens)

    def tokenizer(self):
        """What transformers makes ids with."""
        vocabulary = {piece: i for i, piece in enumerate(self.pieces)}
        inner = Tokenizer(models.BPE(vocabulary, [tuple(pair.split(" ")) for pair in self.merges]))
        steps = [
            pre_tokenizers.Split(Regex(step), "isolated") if isinstance(step, str) else step for step in RULES[self.pre]
        ]
        if not isinstance(steps[-1], pre_tokenizers.ByteLevel):
            steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
        inner.pre_tokenizer = pre_tokenizers.Sequence(steps)
        inner.decoder = decoders.ByteLevel()
        inner.add_special_tokens([AddedToken(token, normalized=False, special=True) for token in self.controls])
        sample = "Two words,\n1 é"
        if [self.tokens[i] for i in inner.encode(sample).ids] != [byte_characters()[b] for b in sample.encode()]:
            raise SystemExit(f"The vocabulary of {self.pre} does not take a text for its bytes.")
        return PreTrainedTokenizerFast(
            tokenizer_object=inner, bos_token=self.bos, eos_token=self.eos, pad_token=self.eos
        )

    def write(self, writer):
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre(self.pre)
        writer.add_token_list(self.tokens)
        kinds = [gguf.TokenType.NORMAL] * len(self.pieces) + [gguf.TokenType.CONTROL] * len(self.controls)
        writer.add_token_types(kinds)
        writer.add_token_merges(self.merges)
        writer.add_bos_token_id(self.id(self.bos))
        writer.add_eos_token_id(self.id(self.eos))
        writer.add_add_bos_token(False)
        writer.add_chat_template(self.template)
