# SPDX-License-Identifier: Apache-2.0
"""A plain float forward pass of the text models, straight from a GGUF file.

The second opinion beside transformers: it shares no code with it except the `gguf` package's dequantisation, reads
every parameter from the file's own keys, and keeps the file's row order (llama's rotary pairs are neighbours there).
Formulas: "LLaMA" (arXiv 2302.13971), "RoFormer" (2104.09864), "Qwen2" (2407.10671), "Gemma 3" (2503.19786).

    float_reference.py MODEL.gguf ID [ID ...]      prints the five likeliest next tokens
"""

import argparse
import math

import gguf
import torch
import torch.nn.functional as F

# Gemma 3: five local layers, then a global one; local layers rotate with base 10000 (2503.19786, section 2).
GEMMA3_PATTERN = 6
GEMMA3_LOCAL_BASE = 10000.0


def round_to_int8_blocks(x):
    """x with each 32 consecutive values of the last axis rounded to int8 codes times one scale (absmax / 127)."""
    width = x.shape[-1]
    padded = F.pad(x, (0, -width % 32)).unflatten(-1, (-1, 32))
    scale = padded.abs().amax(-1, keepdim=True) / 127
    codes = torch.where(scale > 0, padded / scale, torch.zeros_like(padded)).round()
    return (codes * scale).flatten(-2)[..., :width]


class Cache:
    """Keys and values of the tokens seen so far, per layer: [kv heads, tokens, head width]."""

    def __init__(self, layers):
        self.keys = [None] * layers
        self.values = [None] * layers
        self.length = 0

    def append(self, layer, key, value):
        if self.keys[layer] is not None:
            key = torch.cat([self.keys[layer], key], dim=1)
            value = torch.cat([self.values[layer], value], dim=1)
        self.keys[layer], self.values[layer] = key, value
        return key, value


class FloatModel:
    """The model of one GGUF file, weights dequantised to `dtype`.

    round_activations, when given, is applied to the input of every matrix product: it shows what a runtime that
    quantises activations must be allowed to differ by.
    """

    def __init__(self, path, dtype=torch.float32, round_activations=None):
        reader = gguf.GGUFReader(path)
        self.fields = {key: field for key, field in reader.fields.items()}
        self.arch = self._field("general.architecture")
        if self.arch not in ("llama", "qwen2", "gemma3"):
            raise SystemExit(f"{path} holds the architecture {self.arch}; llama, qwen2 and gemma3 are known here.")
        self.round = round_activations or (lambda x: x)
        self.weights = {
            t.name: torch.from_numpy(gguf.dequantize(t.data, t.tensor_type).copy()).to(dtype) for t in reader.tensors
        }
        self.layers = self._key("block_count")
        self.width = self._key("embedding_length")
        self.heads = self._key("attention.head_count")
        self.kv_heads = self._key("attention.head_count_kv", self.heads)
        self.head_width = self._key("attention.key_length", self.width // self.heads)
        self.epsilon = self._key("attention.layer_norm_rms_epsilon")
        self.rope_base = self._key("rope.freq_base", 10000.0)
        self.window = self._key("attention.sliding_window", None)
        self.vocabulary = self.weights["token_embd.weight"].shape[0]
        self.head = self.weights.get("output.weight", self.weights["token_embd.weight"])

    def _field(self, name, *default):
        if name not in self.fields and default:
            return default[0]
        return self.fields[name].contents()

    def _key(self, name, *default):
        return self._field(f"{self.arch}.{name}", *default)

    def _is_local(self, layer):
        return self.arch == "gemma3" and (layer + 1) % GEMMA3_PATTERN != 0

    def _linear(self, x, name):
        y = self.round(x) @ self.weights[name + ".weight"].T
        bias = self.weights.get(name + ".bias")
        return y if bias is None else y + bias

    def _norm(self, x, name):
        # Gemma's converter has already added the one to its zero-centred weights.
        return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.epsilon) * self.weights[name + ".weight"]

    def _rotate(self, x, first, layer):
        """Rotary embedding of x [heads, tokens, head width], tokens at positions first, first + 1, …"""
        width = x.shape[-1]
        base = GEMMA3_LOCAL_BASE if self._is_local(layer) else self.rope_base
        # In float64 whatever the model's type: angles of large positions need it.
        frequency = base ** (-torch.arange(0, width, 2, dtype=torch.float64) / width)
        angle = torch.arange(first, first + x.shape[1], dtype=torch.float64)[:, None] * frequency
        cos, sin = angle.cos().to(x.dtype), angle.sin().to(x.dtype)
        if self.arch == "llama":
            even, odd = x[..., 0::2], x[..., 1::2]
            return torch.stack([even * cos - odd * sin, even * sin + odd * cos], dim=-1).flatten(-2)
        low, high = x[..., : width // 2], x[..., width // 2 :]
        return torch.cat([low * cos - high * sin, low * sin + high * cos], dim=-1)

    def _attention(self, x, layer, cache):
        tokens, prefix = x.shape[0], f"blk.{layer}."
        split = lambda y, heads: y.view(tokens, heads, self.head_width).transpose(0, 1)
        query = split(self._linear(x, prefix + "attn_q"), self.heads)
        key = split(self._linear(x, prefix + "attn_k"), self.kv_heads)
        value = split(self._linear(x, prefix + "attn_v"), self.kv_heads)
        if self.arch == "gemma3":
            query = self._norm(query, prefix + "attn_q_norm")
            key = self._norm(key, prefix + "attn_k_norm")
        query = self._rotate(query, cache.length, layer)
        key, value = cache.append(layer, self._rotate(key, cache.length, layer), value)

        group = self.heads // self.kv_heads
        key, value = key.repeat_interleave(group, 0), value.repeat_interleave(group, 0)
        scores = query @ key.transpose(1, 2) / math.sqrt(self.head_width)
        at = torch.arange(cache.length, cache.length + tokens)[:, None]
        back = at - torch.arange(key.shape[1])[None, :]
        visible = back >= 0
        if self._is_local(layer):
            visible &= back < self.window
        scores = scores.masked_fill(~visible, -torch.inf)
        mixed = (scores.softmax(-1) @ value).transpose(0, 1).reshape(tokens, self.heads * self.head_width)
        return self._linear(mixed, prefix + "attn_output")

    def _feed_forward(self, x, layer):
        prefix = f"blk.{layer}."
        gate = self._linear(x, prefix + "ffn_gate")
        gate = F.gelu(gate, approximate="tanh") if self.arch == "gemma3" else F.silu(gate)
        return self._linear(gate * self._linear(x, prefix + "ffn_up"), prefix + "ffn_down")

    @torch.no_grad()
    def forward(self, ids, cache=None, last_only=False):
        """Logits [tokens, vocabulary] after each of `ids`; only of the last when last_only. The cache is extended."""
        cache = cache or Cache(self.layers)
        x = self.weights["token_embd.weight"][torch.as_tensor(ids)]
        if self.arch == "gemma3":
            x = x * math.sqrt(self.width)
        for layer in range(self.layers):
            prefix = f"blk.{layer}."
            y = self._attention(self._norm(x, prefix + "attn_norm"), layer, cache)
            x = x + (self._norm(y, prefix + "post_attention_norm") if self.arch == "gemma3" else y)
            y = self._feed_forward(self._norm(x, prefix + "ffn_norm"), layer)
            x = x + (self._norm(y, prefix + "post_ffw_norm") if self.arch == "gemma3" else y)
        cache.length += len(ids)
        x = self._norm(x[-1:] if last_only else x, "output_norm")
        return self.round(x) @ self.head.T


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("ids", type=int, nargs="+")
    arguments = parser.parse_args()
    model = FloatModel(arguments.model)
    top = model.forward(arguments.ids, last_only=True)[0].log_softmax(-1).topk(5)
    pieces = model.fields["tokenizer.ggml.tokens"].contents()
    for value, index in zip(top.values.tolist(), top.indices.tolist()):
        print(f"{index:7d} {value:9.4f} {pieces[index]!r}")


if __name__ == "__main__":
    main()
