# SPDX-License-Identifier: Apache-2.0
"""Writes tests/golden/minilm.json: what all-MiniLM-L6-v2 makes of some sentences.

    minilm_vectors.py all-minilm-l6-v2-f16.gguf [--data tests/data] [--golden tests/golden]

The file's weights, as floats, in transformers' BertModel; ids from the tokenizers library with the file's vocabulary; the mean of
all states in float64, of length 1.
"""

import json
from pathlib import Path

import gguf
import numpy as np
import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertModel

from origin import origin
from tiny import parse_options

# Neighbours mean the same; no two others do.
SENTENCES = [
    "The cat sleeps on the sofa.",
    "A kitten is napping on the couch.",
    "Interest rates rose again this quarter.",
    "The central bank has raised the cost of borrowing once more.",
    "How do I reset my password?",
    "I forgot my login and cannot get into my account.",
    "Zwei Züge fahren um 8:15 Uhr nach Köln, 你好!",
    "",
]


def read_tokenizer(tokens, types):
    plain = lambda t, kind: t if kind == gguf.TokenType.CONTROL else t[1:] if t.startswith("▁") else "##" + t
    vocabulary = {plain(t, kind): i for i, (t, kind) in enumerate(zip(tokens, types))}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[(t, vocabulary[t]) for t in ("[CLS]", "[SEP]")])
    return tokenizer


def read_model(reader, value):
    config = BertConfig(
        vocab_size=len(value("tokenizer.ggml.tokens")), hidden_size=value("bert.embedding_length"),
        num_hidden_layers=value("bert.block_count"), num_attention_heads=value("bert.attention.head_count"),
        intermediate_size=value("bert.feed_forward_length"), max_position_embeddings=value("bert.context_length"),
        layer_norm_eps=value("bert.attention.layer_norm_epsilon"))
    model = BertModel(config, add_pooling_layer=False).eval()
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.BERT, config.num_hidden_layers)
    weights = {tensor.name: np.array(tensor.data, np.float32) for tensor in reader.tensors}
    state = {name: torch.from_numpy(weights[names.get_name(name, try_suffixes=(".weight", ".bias"))])
             for name, _ in model.named_parameters()}
    model.load_state_dict(state, strict=False)
    return model.double()


@torch.no_grad()
def main():
    arguments = parse_options(__doc__, "file")
    path = Path(arguments.file[0])
    reader = gguf.GGUFReader(path)
    value = lambda key: reader.fields[key].contents()
    tokenizer, model = read_tokenizer(value("tokenizer.ggml.tokens"), value("tokenizer.ggml.token_type")), read_model(reader, value)
    sentences = []
    for text in SENTENCES:
        ids = tokenizer.encode(text).ids
        mean = model(torch.tensor([ids])).last_hidden_state[0].mean(0)
        vector = torch.nn.functional.normalize(mean, dim=0)
        sentences.append({"text": text, "ids": ids, "vector": [round(v, 6) for v in vector.tolist()]})
    result = {"origin": origin(model=path.name), "sentences": sentences}
    (arguments.golden / "minilm.json").write_text(json.dumps(result, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
