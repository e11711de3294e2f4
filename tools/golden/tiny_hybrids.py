# SPDX-License-Identifier: Apache-2.0
"""Writes tiny random models of architectures that mix attention with recurrent layers, and the logits that they must give.

    tiny_hybrids.py [--data tests/data] [--golden tests/golden]

As tiny_architectures.py, for what its tables cannot say: kinds of layers, states, and the changes that a GGUF file makes to
their weights (decay as -exp(A_log), value heads in tiled order, convolutions without their middle axis).
"""

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tiny import add_keys, begin, finish, parse_options, store
from tiny_architectures import SIZES, VOCABULARY, add_tokenizer, expected

QWEN35 = dict(
    num_hidden_layers=3,
    layer_types=["linear_attention", "full_attention", "linear_attention"],
    head_dim=32,
    num_attention_heads=2,
    num_key_value_heads=1,
    linear_num_key_heads=2,
    linear_num_value_heads=4,
    linear_key_head_dim=16,
    linear_value_head_dim=16,
    linear_conv_kernel_dim=4,
    rope_parameters=dict(rope_type="default", rope_theta=1e7, partial_rotary_factor=0.25, mrope_section=[2, 1, 1]),
    tie_word_embeddings=True,
)
LFM2 = dict(
    num_hidden_layers=3,
    layer_types=["conv", "full_attention", "conv"],
    conv_L_cache=3,
    norm_eps=1e-5,
    block_auto_adjust_ff_dim=False,
    rope_parameters=dict(rope_type="default", rope_theta=1e6),
    tie_word_embeddings=True,
)


def make_model(model_type, config, seed):
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model(model_type, **SIZES | config), attn_implementation="eager"
    ).eval()
    random = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=random)
        if weight.ndim == 1:
            plain_norm = name.endswith("norm.weight") and (model_type == "lfm2" or "linear_attn" in name)
            values = 0.2 * values + (1.0 if plain_norm or name.endswith("A_log") else 0.0)
        elif "conv" in name and weight.ndim == 3:
            values *= 0.5
        elif not name.endswith("embed_tokens.weight"):
            values /= weight.shape[-1] ** 0.5
        weight.data = values.half().float()
    return model


def tiled(rows, key_heads, value_heads):
    """Rows of value heads, neighbours of which share a key head, in the order in which head h has key head h % K."""
    each = value_heads // key_heads
    return rows.reshape(key_heads, each, -1, *rows.shape[1:]).swapaxes(0, 1).reshape(rows.shape)


def qwen35_tensors(model):
    c = model.config
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.QWEN35, c.num_hidden_layers)
    k, v = c.linear_num_key_heads, c.linear_num_value_heads
    keys = 2 * k * c.linear_key_head_dim
    for name, weight in model.named_parameters():
        values = weight.detach().numpy()
        block = f"blk.{name.split('.')[2]}." if ".layers." in name else ""
        last = name.split("linear_attn.")[-1]
        if last == "in_proj_qkv.weight":
            values = np.concatenate([values[:keys], tiled(values[keys:], k, v)])
            yield block + "attn_qkv.weight", values
        elif last == "conv1d.weight":
            values = values.squeeze(1)
            yield block + "ssm_conv1d.weight", np.concatenate([values[:keys], tiled(values[keys:], k, v)])
        elif last == "out_proj.weight":
            yield block + "ssm_out.weight", np.ascontiguousarray(tiled(values.T, k, v).T)
        elif last in ("in_proj_z.weight", "in_proj_a.weight", "in_proj_b.weight", "dt_bias", "A_log"):
            target = {"in_proj_z.weight": "attn_gate.weight", "in_proj_a.weight": "ssm_alpha.weight",
                      "in_proj_b.weight": "ssm_beta.weight", "dt_bias": "ssm_dt.bias", "A_log": "ssm_a"}[last]
            yield block + target, tiled(-np.exp(values) if last == "A_log" else values, k, v)
        elif last == "norm.weight":
            yield block + "ssm_norm.weight", values
        elif name.endswith("post_attention_layernorm.weight"):
            yield block + "post_attention_norm.weight", values + 1
        else:
            yield names.get_name(name, try_suffixes=(".weight", ".bias")), values + 1 if "norm" in name else values


def lfm2_tensors(model):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.LFM2, model.config.num_hidden_layers)
    for name, weight in model.named_parameters():
        values = weight.detach().numpy()
        if name.endswith("conv.conv.weight"):
            values = values.squeeze(1)
        yield names.get_name(name, try_suffixes=(".weight", ".bias")), values


def write(path, arch, model, tensors, keys):
    c = model.config
    writer = begin(path, arch, arch, c, c.max_position_embeddings)
    writer.add_rope_freq_base(c.rope_parameters["rope_theta"])
    add_keys(writer, arch, keys)
    add_tokenizer(writer)
    for name, values in tensors(model):
        small = values.ndim == 1 or "conv1d" in name or "shortconv.conv" in name
        writer.add_tensor(name, np.ascontiguousarray(values, np.float32 if small else np.float16))
    finish(writer)


def cases():
    yield "qwen35", "qwen3_5_text", QWEN35, qwen35_tensors, {
        "attention.head_count_kv": 1,
        "attention.key_length": 32,
        "attention.value_length": 32,
        "attention.layer_norm_rms_epsilon": 1e-6,
        "rope.dimension_count": 8,
        "rope.dimension_sections": [2, 1, 1, 0],
        "ssm.conv_kernel": 4,
        "ssm.state_size": 16,
        "ssm.group_count": 2,
        "ssm.time_step_rank": 4,
        "ssm.inner_size": 64,
        "full_attention_interval": 2,
    }
    yield "lfm2", "lfm2", LFM2, lfm2_tensors, {
        "attention.head_count_kv": [0, 2, 0],
        "attention.layer_norm_rms_epsilon": 1e-5,
        "shortconv.l_cache": 3,
    }


def main():
    arguments = parse_options(__doc__)
    for seed, (arch, model_type, config, tensors, keys) in enumerate(cases(), start=300):
        model = make_model(model_type, config, seed)
        path = arguments.data / f"tiny-{arch}.gguf"
        write(path, arch, model, tensors, keys)
        store(arguments.golden, path, expected(path, model, seed))


if __name__ == "__main__":
    main()
