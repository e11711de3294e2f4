# SPDX-License-Identifier: Apache-2.0
"""Writes one tiny random model for each decoder architecture, and the logits that it must give.

    tiny_architectures.py [NAME ...] [--data tests/data] [--golden tests/golden]

Each model is made by transformers from a configuration below, with random weights that halves hold exactly; its logits in
float64 are the expected values. The same weights are written as a GGUF file, under the names of gguf's own tensor map.
Files are below 200 kB and hold halves (matrices) and floats (vectors and routers).
"""

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM
from transformers.utils import logging

from architecture_configs import ARCHITECTURES
from tiny import add_keys, begin, expectations, finish, parse_options, store
from tiny_models import byte_characters

logging.set_verbosity_error()
PROMPT_TOKENS, VOCABULARY = 24, 260
SIZES = dict(
    hidden_size=64,
    intermediate_size=64,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=VOCABULARY,
    max_position_embeddings=256,
    bos_token_id=VOCABULARY - 2,
    eos_token_id=VOCABULARY - 1,
    pad_token_id=VOCABULARY - 1,
)


def make_model(case, seed):
    """The model with random weights: matrices of unit gain, norms about their neutral value, biases about 0."""
    config = AutoConfig.for_model(case.model_type, **SIZES | case.config)
    config._experts_implementation = "eager"
    model = AutoModelForCausalLM.from_config(config, attn_implementation="eager").eval()
    random = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=random)
        if weight.ndim == 1:
            is_norm = name.endswith("weight") and "norm" in name or "ln_" in name and name.endswith("weight")
            values = 0.2 * values + (0.0 if not is_norm or case.norms_hold_one_less else 1.0)
        else:
            gain = 1.0 if name.endswith("embed_tokens.weight") else case.gain
            values *= gain / weight.shape[-1] ** (0.0 if name.endswith("embed_tokens.weight") else 0.5)
        weight.data = values.half().float()
    return model


def neighbours(rows, heads):
    """Rows of q or k in the order in which rotated pairs are neighbours: i and i + half of each head side by side."""
    return rows.reshape(heads, 2, rows.shape[0] // heads // 2, *rows.shape[1:]).swapaxes(1, 2).reshape(rows.shape)


def tensors(model, case):
    """(GGUF name, values) of every tensor of the file."""
    config = model.config
    names = gguf.get_tensor_name_map(case.gguf_arch(), config.num_hidden_layers)
    for name, weight in model.named_parameters():
        values = case.reorder(name, weight.detach().numpy(), config)
        if case.pairs_are_neighbours and ("q_proj" in name or "k_proj" in name):
            is_query = "q_proj" in name
            values = neighbours(values, config.num_attention_heads if is_query else config.num_key_value_heads)
        if case.norms_hold_one_less and name.endswith("norm.weight"):
            values = values + 1
        if name.endswith("experts.gate_up_proj"):
            block = f"blk.{name.split('.')[2]}."
            half = values.shape[1] // 2
            yield block + "ffn_gate_exps.weight", values[:, :half]
            yield block + "ffn_up_exps.weight", values[:, half:]
        elif name.endswith("experts.down_proj"):
            yield f"blk.{name.split('.')[2]}.ffn_down_exps.weight", values
        else:
            target = case.rename(name) or names.get_name(name, try_suffixes=(".weight", ".bias"))
            if target is None:
                raise SystemExit(f"{case.name}: no GGUF name for {name}.")
            is_row = values.ndim == 2 and values.shape[0] == 1  # which files keep as a vector
            yield target, values[0] if is_row else values
    yield from case.extra(model)


def add_tokenizer(writer):
    tokens = [byte_characters()[b] for b in range(256)] + ["th", "<|unused|>", "<|start|>", "<|end|>"]
    types = [gguf.TokenType.NORMAL] * 257 + [gguf.TokenType.UNUSED] + [gguf.TokenType.CONTROL] * 2
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("qwen2")
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(VOCABULARY - 2)
    writer.add_eos_token_id(VOCABULARY - 1)
    writer.add_add_bos_token(False)


def write(path, model, case):
    config = model.config
    writer = begin(path, case.arch, case.name, config, config.max_position_embeddings)
    writer.add_head_count_kv(config.num_key_value_heads)
    if getattr(config, "head_dim", None):
        writer.add_key_length(config.head_dim)
        writer.add_value_length(config.head_dim)
    if hasattr(config, "rms_norm_eps"):
        writer.add_layer_norm_rms_eps(config.rms_norm_eps)
    for name in ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"):
        if hasattr(config, name):
            writer.add_layer_norm_eps(getattr(config, name))
            break
    rope = getattr(config, "rope_parameters", None) or {}
    if "rope_theta" in rope and "rope.freq_base" not in case.keys:
        writer.add_rope_freq_base(rope["rope_theta"])
    add_keys(writer, case.arch, case.keys)
    add_tokenizer(writer)
    for name, values in tensors(model, case):
        values = np.asarray(values)
        is_matrix = values.ndim > 1 and "ffn_gate_inp" not in name
        writer.add_tensor(name, np.ascontiguousarray(values, np.float16 if is_matrix else np.float32))
    finish(writer)


@torch.no_grad()
def expected(path, model, seed):
    ids = np.random.default_rng(seed).integers(0, VOCABULARY, PROMPT_TOKENS).tolist()
    single = model(torch.tensor([ids])).logits[0]
    logits = model.double()(torch.tensor([ids])).logits[0]
    return expectations(path, ids, single, logits)


def main():
    arguments = parse_options(__doc__, "names")
    for seed, case in enumerate(ARCHITECTURES, start=100):
        if arguments.names and case.name not in arguments.names:
            continue
        model = make_model(case, seed)
        path = arguments.data / f"tiny-{case.name}.gguf"
        write(path, model, case)
        store(arguments.golden, path, expected(path, model, seed))


if __name__ == "__main__":
    main()
