# SPDX-License-Identifier: Apache-2.0
"""Writes a tiny random Gemma 3n (its text half), and the logits that it must give.

    tiny_gemma3n.py [--data tests/data] [--golden tests/golden]

As tiny_architectures.py, for an architecture with kinds of tensors of its own. Of five layers the last two take keys and values
from the last ones of their kind, the first two have thresholds, and the feed-forwards differ in width.
"""

import gguf
import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from tiny import begin, finish, parse_options, store
from tiny_architectures import SIZES, add_tokenizer, expected

SEED = 400
CONFIG = dict(
    hidden_size=32,
    num_hidden_layers=5,
    num_attention_heads=4,
    num_key_value_heads=2,
    head_dim=16,
    intermediate_size=[64, 32, 32, 64, 32],
    layer_types=["sliding_attention", "full_attention", "sliding_attention", "full_attention", "sliding_attention"],
    sliding_window=8,
    num_kv_shared_layers=2,
    activation_sparsity_pattern=[0.95, 0.5, 0.0, 0.0, 0.0],
    hidden_size_per_layer_input=8,
    vocab_size_per_layer_input=SIZES["vocab_size"],
    altup_num_inputs=4,
    altup_active_idx=1,
    laurel_rank=8,
    final_logit_softcapping=3.0,
    tie_word_embeddings=True,
)


def make_model(config, seed):
    """Matrices of unit gain, norms and factors about 1, and routers whose results use the range of their tanh."""
    model = AutoModelForCausalLM.from_config(
        AutoConfig.for_model("gemma3n_text", **SIZES | config), attn_implementation="eager"
    ).eval()
    random = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=random)
        if weight.ndim == 1:
            values = 1 + 0.2 * values
        else:
            values /= weight.shape[-1] ** 0.5
        if "modality_router" in name:
            values *= model.config.hidden_size / 4
        if "embed_tokens_per_layer" in name:
            values *= (weight.shape[-1] / model.config.hidden_size_per_layer_input) ** 0.5
        weight.data = values.half().float()
    return model


def tensors(model):
    names = gguf.get_tensor_name_map(gguf.MODEL_ARCH.GEMMA3N, model.config.num_hidden_layers)
    for stack, target in (("altup_projections", "altup_proj"), ("altup_unembed_projections", "altup_unembd_proj")):
        yield f"{target}.weight", np.stack([m.weight.detach().numpy() for m in getattr(model.model, stack)])
    for name, weight in model.named_parameters():
        if not name.startswith(("model.altup_projections", "model.altup_unembed")):
            target = names.get_name(name, try_suffixes=(".weight",))
            yield target if target.endswith(".weight") else target + ".weight", weight.detach().numpy()


def write(path, model):
    c = model.config
    writer = begin(path, "gemma3n", "gemma3n", c, c.max_position_embeddings)
    writer.add_head_count_kv(c.num_key_value_heads)
    writer.add_key_length(c.head_dim)
    writer.add_value_length(c.head_dim)
    writer.add_layer_norm_rms_eps(c.rms_norm_eps)
    writer.add_rope_freq_base(c.rope_parameters["full_attention"]["rope_theta"])
    writer.add_sliding_window(c.sliding_window)
    writer.add_sliding_window_pattern([kind == "sliding_attention" for kind in c.layer_types])
    writer.add_shared_kv_layers(c.num_kv_shared_layers)
    writer.add_altup_num_inputs(c.altup_num_inputs)
    writer.add_altup_active_idx(c.altup_active_idx)
    writer.add_embedding_length_per_layer_input(c.hidden_size_per_layer_input)
    normal = torch.distributions.Normal(0, 1)
    writer.add_activation_sparsity_scale([normal.icdf(torch.tensor(s)).item() for s in c.activation_sparsity_pattern])
    writer.add_final_logit_softcapping(c.final_logit_softcapping)
    add_tokenizer(writer)
    for name, values in tensors(model):
        is_matrix = values.ndim > 1 and "altup_router" not in name and "_coef" not in name
        writer.add_tensor(name, np.ascontiguousarray(values, np.float16 if is_matrix else np.float32))
    finish(writer)


def main():
    arguments = parse_options(__doc__)
    model = make_model(CONFIG, SEED)
    path = arguments.data / "tiny-gemma3n.gguf"
    write(path, model)
    store(arguments.golden, path, expected(path, model, SEED))


if __name__ == "__main__":
    main()
