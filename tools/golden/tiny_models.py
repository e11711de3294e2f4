# SPDX-License-Identifier: Apache-2.0
"""Writes the tiny random models that the runtime's tests run, and the logits that they must give.

    tiny_models.py [NAME ...] [--data tests/data] [--golden tests/golden]

Each model is a complete GGUF file (tokenizer included) below 200 kB that mixes weight types on purpose. The logits come
from transformers on the same dequantised weights; float_reference.py in float64 must agree, or nothing is written.
"""

import argparse
import json
import os
from pathlib import Path

import gguf
import numpy as np
import torch
from gguf import GGMLQuantizationType as Q

from float_reference import FloatModel, round_to_int8_blocks
from origin import origin
from tiny import finish
from transformers_reference import load_transformers

PROMPT_TOKENS = 20
WIDTH = 64
VOCABULARY = 300  # vocabulary size of every tiny model


def byte_characters():
    """GPT-2's printable stand-in for each byte value."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    table, spare = {}, 256
    for byte in range(256):
        table[byte] = chr(byte) if byte in printable else chr(spare)
        spare += byte not in printable
    return table


def add_byte_level_tokenizer(writer, pre, merges, special):
    tokens = [byte_characters()[b] for b in range(256)]
    tokens += ["".join(pair.split(" ")) for pair in merges]
    tokens += [f"<|unused_{i}|>" for i in range(VOCABULARY - len(tokens) - len(special))] + special
    unused = [gguf.TokenType.UNUSED if t.startswith("<|unused") else gguf.TokenType.NORMAL for t in tokens]
    types = unused[: len(tokens) - len(special)] + [gguf.TokenType.CONTROL] * len(special)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list(tokens)
    writer.add_token_types(types)
    writer.add_token_merges(merges)
    writer.add_bos_token_id(tokens.index(special[0]))
    writer.add_eos_token_id(tokens.index(special[1]))
    writer.add_add_bos_token(False)
    template = (
        "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
        "{% endfor %}"
        "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
    )
    writer.add_chat_template(template)


def add_sentencepiece_tokenizer(writer):
    tokens = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{b:02X}>" for b in range(256)]
    types = [gguf.TokenType.CONTROL] * 3 + [gguf.TokenType.UNKNOWN] + [gguf.TokenType.BYTE] * 256
    pieces = ["▁t", "he", "▁the", "in", "er", "an", "▁a", "on", "▁", *"etaoinsrhldcumfpgwybv", "é", "中", ".", ",", "\n"]
    pieces = pieces[: VOCABULARY - len(tokens)]
    pieces += [f"<unused{i}>" for i in range(VOCABULARY - len(tokens) - len(pieces))]
    types += [gguf.TokenType.UNUSED if p.startswith("<unused") else gguf.TokenType.NORMAL for p in pieces]
    writer.add_tokenizer_model("llama")
    writer.add_tokenizer_pre("default")
    writer.add_token_list(tokens + pieces)
    writer.add_token_scores([-1000.0] * len(tokens) + [-float(i) for i in range(len(pieces))])
    writer.add_token_types(types)
    writer.add_bos_token_id(2)
    writer.add_eos_token_id(1)
    writer.add_unk_token_id(3)
    writer.add_pad_token_id(0)
    writer.add_add_bos_token(True)
    writer.add_add_space_prefix(False)


# Types that gguf reads but cannot write: where the half floats of a block are, and by how much random codes and scales
# make them wider.
HALVES = {
    Q.Q2_K: [(80, 11), (82, 7.5)],
    Q.Q3_K: [(108, 43)],
    Q.Q4_K: [(0, 220), (2, 29)],
    Q.Q5_K: [(0, 450), (2, 29)],
    Q.Q6_K: [(208, 1300)],
    Q.IQ4_NL: [(0, 68)],
    Q.IQ4_XS: [(0, 1250)],
}


def random_blocks(random, rows, columns, kind, scale):
    """Random blocks of a type of HALVES whose values are about `scale` wide."""
    block, size = gguf.GGML_QUANT_SIZES[kind]
    data = random.integers(0, 256, (rows, columns // block, size), dtype=np.uint8)
    for offset, width in HALVES[kind]:
        value = scale / width
        values = (value * random.uniform(0.5, 1.5, (rows, columns // block))).astype(np.float16)
        data[..., offset : offset + 2] = values[..., None].view(np.uint8)
    return data.reshape(rows, -1)


class Builder:
    """Adds random tensors to a writer: `matrix` [out, in] with unit gain, `vector` for biases and norms."""

    def __init__(self, writer, seed):
        self.writer = writer
        self.random = np.random.default_rng(seed)

    def matrix(self, name, out, width, kind, gain=1.0):
        scale = gain / np.sqrt(width)
        if kind in HALVES:
            data = random_blocks(self.random, out, width, kind, scale)
        else:
            values = self.random.normal(0, scale, (out, width)).astype(np.float32)
            data = gguf.quants.quantize(values, kind)
        self.writer.add_tensor(name + ".weight", data, raw_dtype=kind)

    def vector(self, name, width, centre=1.0, spread=0.2):
        self.writer.add_tensor(name, self.random.normal(centre, spread, width).astype(np.float32))


def begin(path, arch, seed, **sizes):
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(f"tiny random {arch}")
    writer.add_license("Apache-2.0")
    writer.add_context_length(256)
    writer.add_embedding_length(WIDTH)
    writer.add_block_count(sizes["layers"])
    writer.add_feed_forward_length(sizes["ffn"])
    writer.add_head_count(sizes["heads"])
    writer.add_head_count_kv(sizes["kv_heads"])
    writer.add_rope_freq_base(sizes["base"])
    writer.add_layer_norm_rms_eps(sizes["epsilon"])
    writer.add_vocab_size(VOCABULARY)
    return writer, Builder(writer, seed)


def add_layer(build, layer, arch, heads, kv_heads, head_width, ffn, kinds):
    prefix = f"blk.{layer}."
    build.vector(prefix + "attn_norm.weight", WIDTH)
    build.matrix(prefix + "attn_q", heads * head_width, WIDTH, kinds["q"])
    build.matrix(prefix + "attn_k", kv_heads * head_width, WIDTH, kinds["k"])
    build.matrix(prefix + "attn_v", kv_heads * head_width, WIDTH, kinds["v"])
    build.matrix(prefix + "attn_output", WIDTH, heads * head_width, kinds["o"])
    build.vector(prefix + "ffn_norm.weight", WIDTH)
    build.matrix(prefix + "ffn_gate", ffn, WIDTH, kinds["gate"])
    build.matrix(prefix + "ffn_up", ffn, WIDTH, kinds["up"])
    build.matrix(prefix + "ffn_down", WIDTH, ffn, kinds["down"])
    if arch == "qwen2":
        build.vector(prefix + "attn_q.bias", heads * head_width, 0.0, 0.5)
        build.vector(prefix + "attn_k.bias", kv_heads * head_width, 0.0, 0.5)
        build.vector(prefix + "attn_v.bias", kv_heads * head_width, 0.0, 0.5)
    if arch == "gemma3":
        build.vector(prefix + "attn_q_norm.weight", head_width)
        build.vector(prefix + "attn_k_norm.weight", head_width)
        build.vector(prefix + "post_attention_norm.weight", WIDTH)
        build.vector(prefix + "post_ffw_norm.weight", WIDTH)


def write_llama(path):
    """Two layers, 4 heads of 16 over 2, feed-forward 96, the older types; tied embedding in F16."""
    sizes = dict(layers=2, ffn=96, heads=4, kv_heads=2, base=100000.0, epsilon=1e-5)
    writer, build = begin(path, "llama", 1, **sizes)
    writer.add_rope_dimension_count(16)
    merges = ["t h", "th e", "h e", "Ġ t", "Ġt he", "i n", "e r"]
    add_byte_level_tokenizer(writer, "smollm", merges, ["<|im_start|>", "<|im_end|>"])
    build.matrix("token_embd", VOCABULARY, WIDTH, Q.F16, 3.0)
    kinds = [
        dict(q=Q.F32, k=Q.F16, v=Q.Q8_0, o=Q.Q4_0, gate=Q.Q4_1, up=Q.Q5_0, down=Q.Q5_0),
        dict(q=Q.Q4_0, k=Q.Q4_1, v=Q.Q5_0, o=Q.Q5_0, gate=Q.Q8_0, up=Q.BF16, down=Q.F32),
    ]
    for layer in range(2):
        add_layer(build, layer, "llama", 4, 2, 16, 96, kinds[layer])
    build.vector("output_norm.weight", WIDTH)
    finish(writer)


def write_qwen2(path):
    """Two layers, 2 heads of 32 over 1, feed-forward 256 for the K-quants, biases, an output matrix of its own."""
    writer, build = begin(path, "qwen2", 2, layers=2, ffn=256, heads=2, kv_heads=1, base=1000000.0, epsilon=1e-6)
    add_byte_level_tokenizer(
        writer, "qwen2", ["i n", "Ġ t", "t h", "h e", "th e", "Ġt he", "Ġ a"], ["<|im_start|>", "<|im_end|>"]
    )
    build.matrix("token_embd", VOCABULARY, WIDTH, Q.Q5_0, 3.0)
    kinds = [
        dict(q=Q.Q8_0, k=Q.Q5_0, v=Q.Q8_0, o=Q.Q5_0, gate=Q.Q5_0, up=Q.Q4_0, down=Q.Q4_K),
        dict(q=Q.Q4_0, k=Q.Q8_0, v=Q.F16, o=Q.Q8_0, gate=Q.Q4_0, up=Q.Q8_0, down=Q.Q6_K),
    ]
    for layer in range(2):
        add_layer(build, layer, "qwen2", 2, 1, 32, 256, kinds[layer])
    build.vector("output_norm.weight", WIDTH)
    build.matrix("output", VOCABULARY, WIDTH, Q.Q8_0, 3.0)
    finish(writer)


def write_types(path):
    """A llama of two layers in the types that the others lack; 8 heads of 32, so that two matrices have rows of 256."""
    writer, build = begin(path, "llama", 4, layers=2, ffn=256, heads=8, kv_heads=2, base=10000.0, epsilon=1e-5)
    writer.add_rope_dimension_count(32)
    writer.add_key_length(32)
    writer.add_value_length(32)
    merges = ["t h", "th e", "h e", "Ġ t", "Ġt he", "i n", "e r"]
    add_byte_level_tokenizer(writer, "smollm", merges, ["<|im_start|>", "<|im_end|>"])
    build.matrix("token_embd", VOCABULARY, WIDTH, Q.IQ4_NL, 3.0)
    kinds = [
        dict(q=Q.Q5_1, k=Q.IQ4_NL, v=Q.MXFP4, o=Q.Q5_K, gate=Q.MXFP4, up=Q.Q5_1, down=Q.Q3_K),
        dict(q=Q.MXFP4, k=Q.Q5_1, v=Q.IQ4_NL, o=Q.Q2_K, gate=Q.IQ4_NL, up=Q.MXFP4, down=Q.IQ4_XS),
    ]
    for layer in range(2):
        add_layer(build, layer, "llama", 8, 2, 32, 256, kinds[layer])
    build.vector("output_norm.weight", WIDTH)
    build.matrix("output", VOCABULARY, WIDTH, Q.Q5_1, 3.0)
    finish(writer)


def write_gemma3(path):
    """Six layers, one of them global; 4 heads of 32 over 1 (wider than the model), window 8, tied embedding in Q8_0."""
    writer, build = begin(path, "gemma3", 3, layers=6, ffn=64, heads=4, kv_heads=1, base=1000000.0, epsilon=1e-6)
    writer.add_key_length(32)
    writer.add_value_length(32)
    writer.add_sliding_window(8)
    add_sentencepiece_tokenizer(writer)
    build.matrix("token_embd", VOCABULARY, WIDTH, Q.Q8_0, 3.0)
    first = dict(q=Q.Q5_0, k=Q.Q5_0, v=Q.Q8_0, o=Q.Q4_0, gate=Q.Q4_0, up=Q.Q5_0, down=Q.Q8_0)
    second = dict(q=Q.Q4_0, k=Q.Q8_0, v=Q.F16, o=Q.Q8_0, gate=Q.Q5_0, up=Q.Q4_1, down=Q.Q5_0)
    for layer in range(6):
        add_layer(build, layer, "gemma3", 4, 1, 32, 64, second if layer % 2 else first)
    build.vector("output_norm.weight", WIDTH)
    finish(writer)


def expected(path):
    """Reference logits of one prompt, with the tolerances that the two kinds of runtime arithmetic deserve."""
    ids = np.random.default_rng(20).integers(4, VOCABULARY, PROMPT_TOKENS).tolist()
    model = load_transformers(path)
    with torch.no_grad():
        logits = model(torch.tensor([ids])).logits[0]
    exact = FloatModel(path, torch.float64).forward(ids)
    error = (logits - exact).abs().max().item()
    if error > 1e-3:
        raise SystemExit(f"{path.name}: the two references differ by {error}: find out which is wrong.")
    rounded = FloatModel(path, torch.float32, round_to_int8_blocks).forward(ids)
    lost = rounded - logits
    top = logits.topk(2, -1).values
    return {
        "origin": origin(model="tests/data/" + path.name, against_float64=error),
        "ids": ids,
        # Float arithmetic in another order: twenty times what float32 loses here. Int8 activations, one scale per 32
        # values: the largest and the root-mean-square error may be three and two times what that rounding alone gives.
        "tolerance_float": max(20 * error, 1e-4),
        "tolerance_int8_activations": 3 * lost.abs().max().item(),
        "tolerance_int8_activations_rms": 2 * lost.pow(2).mean().sqrt().item(),
        "logits_spread": logits.std().item(),
        "first_logits": [[round(v, 5) for v in row[:8].tolist()] for row in logits],
        "sum_of_squares": [round(row.double().pow(2).sum().item(), 3) for row in logits],
        "argmax": logits.argmax(-1).tolist(),
        "margin": [round((a - b).item(), 4) for a, b in top],
        "last_logits": [round(v, 5) for v in logits[-1].tolist()],
    }


MODELS = {"llama": write_llama, "qwen2": write_qwen2, "gemma3": write_gemma3, "types": write_types}


def main():
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help="default: all of " + ", ".join(MODELS))
    parser.add_argument("--data", type=Path, default=root / "tests/data")
    parser.add_argument("--golden", type=Path, default=root / "tests/golden")
    arguments = parser.parse_args()
    torch.set_num_threads(1)
    for name in arguments.names or MODELS:
        path = arguments.data / f"tiny-{name}.gguf"
        MODELS[name](path)
        result = expected(path)
        (arguments.golden / f"tiny-{name}.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
        print(
            f"{path.name}: {os.path.getsize(path)} bytes, logits spread {result['logits_spread']:.2f}, "
            f"tolerances {result['tolerance_float']:.1e} and {result['tolerance_int8_activations']:.1e}"
        )


if __name__ == "__main__":
    main()
