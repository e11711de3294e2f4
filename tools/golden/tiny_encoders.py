# SPDX-License-Identifier: Apache-2.0
"""Writes tiny random encoders, and the hidden states or scores that they must give.

    tiny_encoders.py [--data tests/data] [--golden tests/golden]

As tiny_architectures.py, for models whose result is no logits: BERT, Nomic Embed, and XLM-RoBERTa with a classifier, whose
positions begin at 2 (a GGUF file leaves those two rows out).
"""

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModel, AutoModelForSequenceClassification

from tiny import add_keys, begin, expectations, finish, parse_options, store

VOCABULARY, PROMPT_TOKENS = 60, 24
NOMIC = {
    "post_attention_layernorm": "attn_output_norm",
    "post_mlp_layernorm": "layer_output_norm",
    "gate_proj": "ffn_gate",
    "up_proj": "ffn_up",
    "down_proj": "ffn_down",
    "o_proj": "attn_output",
}
COMMON = dict(
    hidden_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    intermediate_size=96,
    vocab_size=VOCABULARY,
    max_position_embeddings=40,
    hidden_dropout_prob=0.0,
    attention_probs_dropout_prob=0.0,
)


def make_model(kind, model_type, config, seed):
    model = kind.from_config(AutoConfig.for_model(model_type, **COMMON | config), attn_implementation="eager").eval()
    random = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=random)
        if weight.ndim == 1:
            values = 0.2 * values + (1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0)
        elif "embedding" not in name:
            values /= weight.shape[-1] ** 0.5
        weight.data = values.half().float()
    return model


def add_tokenizer(writer):
    letters = [chr(ord("a") + i) for i in range(26)]
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]"] + ["▁" + c for c in letters] + letters
    tokens += [f"[unused{i}]" for i in range(VOCABULARY - len(tokens))]
    writer.add_tokenizer_model("bert")
    writer.add_token_list(tokens)
    writer.add_token_types([gguf.TokenType.CONTROL] * 4 + [gguf.TokenType.NORMAL] * (VOCABULARY - 4))
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(3)
    writer.add_unk_token_id(1)
    writer.add_sep_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_eos_token(True)


def tensors(model, arch, skip):
    names = gguf.get_tensor_name_map(
        gguf.MODEL_ARCH.BERT if arch == "bert" else gguf.MODEL_ARCH.NOMIC_BERT, model.config.num_hidden_layers
    )
    if arch == "nomic-bert":
        for i, layer in enumerate(model.layers):
            joined = torch.cat([getattr(layer.self_attn, f"{part}_proj").weight for part in "qkv"])
            yield f"blk.{i}.attn_qkv.weight", joined.detach().numpy()
    for name, weight in model.named_parameters():
        if "pooler" in name or arch == "nomic-bert" and any(f"{part}_proj" in name for part in "qkv"):
            continue
        values = weight.detach().numpy()
        if arch == "nomic-bert" and name.startswith("layers."):
            _, i, *rest, suffix = name.split(".")
            yield f"blk.{i}.{NOMIC[rest[-1]]}.{suffix}", values
            continue
        name = name.removeprefix("roberta.").removeprefix("bert.")
        target = {"classifier.dense.weight": "cls.weight", "classifier.dense.bias": "cls.bias",
                  "classifier.out_proj.weight": "cls.output.weight",
                  "classifier.out_proj.bias": "cls.output.bias"}.get(name) or names.get_name(
                      name, try_suffixes=(".weight", ".bias"))
        if target is None:
            raise SystemExit(f"{arch}: no GGUF name for {name} {weight.shape}")
        yield target, values[skip:] if target == "position_embd.weight" else values


def write(path, arch, model, skip, pooling, keys):
    c = model.config
    writer = begin(path, arch, path.stem, c, c.max_position_embeddings - skip)
    writer.add_layer_norm_eps(c.layer_norm_eps)
    writer.add_causal_attention(False)
    writer.add_pooling_type(pooling)
    add_keys(writer, arch, keys)
    add_tokenizer(writer)
    for name, values in tensors(model, arch, skip):
        writer.add_tensor(name, np.ascontiguousarray(values, np.float16 if values.ndim > 1 else np.float32))
    finish(writer)


@torch.no_grad()
def expected(path, model, seed):
    ids = np.random.default_rng(seed).integers(4, VOCABULARY, PROMPT_TOKENS).tolist()
    run = lambda m: m(torch.tensor([ids]))
    if hasattr(model, "classifier"):  # a score of each token's state, though only the first one's is ever used
        states = lambda m: m.classifier(m.roberta(torch.tensor([ids])).last_hidden_state.transpose(0, 1))
    else:
        states = lambda m: run(m).last_hidden_state[0]
    single = states(model)
    double = states(model.double())
    return expectations(path, ids, single.reshape(PROMPT_TOKENS, -1), double.reshape(PROMPT_TOKENS, -1))


def main():
    arguments = parse_options(__doc__)
    mean, rank = gguf.PoolingType.MEAN, gguf.PoolingType.RANK
    cases = [
        ("bert", "bert", AutoModel, "bert", {}, 0, mean, {}),
        ("xlm-roberta", "bert", AutoModelForSequenceClassification, "xlm-roberta",
         dict(num_labels=1, type_vocab_size=1, pad_token_id=0), 1, rank, {}),
        ("nomic-bert", "nomic-bert", AutoModel, "nomic_bert", dict(type_vocab_size=2), 0, mean, {"rope.freq_base": 1000.0}),
    ]
    for seed, (name, arch, kind, model_type, config, skip, pooling, keys) in enumerate(cases, start=400):
        model = make_model(kind, model_type, config, seed)
        path = arguments.data / f"tiny-{name}.gguf"
        write(path, arch, model, skip, pooling, keys)
        store(arguments.golden, path, expected(path, model, seed))


if __name__ == "__main__":
    main()
