# SPDX-License-Identifier: Apache-2.0
"""The models of tiny_architectures.py: configurations for transformers, and what a GGUF file says of each."""

import math
from dataclasses import dataclass, field

import gguf
import torch


@dataclass
class Case:
    name: str  # of the files
    arch: str  # general.architecture
    model_type: str  # of transformers
    config: dict = field(default_factory=dict)  # beside the common sizes
    keys: dict = field(default_factory=dict)  # "<arch>.<key>" beside the common ones
    pairs_are_neighbours: bool = False  # rows of q and k are in the order of "adjacent" rotary pairs
    norms_hold_one_less: bool = False  # in transformers; a file has the one added
    gain: float = 1.0  # of matrices but the embedding
    names: dict = field(default_factory=dict)  # last parts of transformers' names -> last parts of the file's
    extra: callable = lambda model: ()  # further tensors
    reorder: callable = lambda name, values, config: values  # of a tensor, as converters do

    def gguf_arch(self):
        return next(arch for arch, name in gguf.MODEL_ARCH_NAMES.items() if name == self.arch)

    def rename(self, name):
        for old, new in self.names.items():
            if name.endswith(old):
                layer = name.split(".")[2]
                return f"blk.{layer}.{new}" if layer.isdigit() else new
        return None


def rope_factors(model):
    """Llama 3.1: how much longer the wave of each pair became, as the model itself computed it."""
    config, rotary = model.config, model.model.rotary_emb
    base, width = config.rope_parameters["rope_theta"], 2 * len(rotary.inv_freq)
    yield "rope_freqs.weight", [base ** (-2 * i / width) / f.item() for i, f in enumerate(rotary.inv_freq)]


def long_factors(model):
    rope = model.config.rope_parameters
    yield "rope_factors_long.weight", rope["long_factor"]
    yield "rope_factors_short.weight", rope["short_factor"]


def joined_heads(name, values, config):
    """GPT-NeoX: the rows q, k, v of one head after the other become all of q, all of k, all of v."""
    if "query_key_value" not in name:
        return values
    rest = values.shape[1:]
    return values.reshape(config.num_attention_heads, 3, -1, *rest).swapaxes(0, 1).reshape(-1, *rest)


def transposed(name, values, config):
    """GPT-2 keeps its matrices as [in, out]."""
    return values.T if ".c_" in name and values.ndim == 2 else values


def part(width, rope_type="default", **more):
    return dict(rope_type=rope_type, rope_theta=10000.0, partial_rotary_factor=width, **more)


def selection_bias(model):
    """Random biases that help to choose experts, where transformers keeps them apart from the parameters."""
    random = torch.Generator().manual_seed(5)
    for name, values in model.named_buffers():
        if name.endswith("e_score_correction_bias"):
            values.copy_(0.2 * torch.randn(values.shape, generator=random))
            yield f"blk.{name.split('.')[2]}.exp_probs_b.bias", values.numpy()


SMALL = dict(hidden_size=32, intermediate_size=32, num_hidden_layers=1, tie_word_embeddings=True)
SMALL_EXPERTS = SMALL | dict(num_experts=4, num_experts_per_tok=2)
SIGMOID_EXPERTS = dict(
    num_hidden_layers=2,
    head_dim=8,
    n_routed_experts=4,
    num_experts_per_tok=2,
    moe_intermediate_size=32,
    n_shared_experts=1,
    first_k_dense_replace=1,
    n_group=1,
    topk_group=1,
    routed_scaling_factor=1.5,
)
SIGMOID_KEYS = {
    "expert_count": 4,
    "expert_used_count": 2,
    "expert_feed_forward_length": 32,
    "expert_shared_count": 1,
    "expert_gating_func": 2,
    "expert_weights_scale": 1.5,
}
LLAMA3_ROPE = dict(
    rope_type="llama3",
    rope_theta=10000.0,
    factor=8.0,
    low_freq_factor=1.0,
    high_freq_factor=4.0,
    original_max_position_embeddings=32,
)
YARN_ROPE = dict(rope_type="yarn", rope_theta=10000.0, factor=8.0, original_max_position_embeddings=32)
LONG_ROPE = dict(
    rope_type="longrope",
    rope_theta=10000.0,
    partial_rotary_factor=0.75,
    short_factor=[1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    long_factor=[1.0, 1.5, 2.0, 4.0, 6.0, 8.0],
)
GRANITE = dict(embedding_multiplier=6.0, attention_multiplier=0.2, residual_multiplier=0.4, logits_scaling=3.0)
GRANITE_KEYS = {"embedding_scale": 6.0, "attention.scale": 0.2, "residual_scale": 0.4, "logit_scale": 3.0}
FOUR_EXPERTS = {"expert_count": 4, "expert_used_count": 2}

ARCHITECTURES = [
    Case("qwen3", "qwen3", "qwen3", dict(head_dim=32, num_attention_heads=3, num_key_value_heads=1)),
    # Llama 3.1: stretched positions, biases, heads wider than the model's width says, a head matrix of its own.
    Case(
        "llama3",
        "llama",
        "llama",
        dict(head_dim=24, attention_bias=True, mlp_bias=True, rope_parameters=LLAMA3_ROPE, num_hidden_layers=1),
        pairs_are_neighbours=True,
        extra=rope_factors,
    ),
    Case(
        "llama-yarn",
        "llama",
        "llama",
        dict(rope_parameters=YARN_ROPE, tie_word_embeddings=True, num_hidden_layers=1),
        {"rope.scaling.type": "yarn", "rope.scaling.factor": 8.0, "rope.scaling.original_context_length": 32},
        pairs_are_neighbours=True,
    ),
    Case(
        "llama-linear",
        "llama",
        "llama",
        dict(
            rope_parameters=dict(rope_type="linear", rope_theta=10000.0, factor=4.0),
            tie_word_embeddings=True,
            num_hidden_layers=1,
        ),
        {"rope.scaling.type": "linear", "rope.scaling.factor": 4.0},
        pairs_are_neighbours=True,
    ),
    Case(
        "mistral",
        "llama",
        "mistral",
        dict(sliding_window=8, tie_word_embeddings=True, num_hidden_layers=1),
        {"attention.sliding_window": 8},
        pairs_are_neighbours=True,
    ),
    Case(
        "mixtral",
        "llama",
        "mixtral",
        dict(num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True, num_hidden_layers=1),
        FOUR_EXPERTS,
        pairs_are_neighbours=True,
    ),
    # Beyond the original context of 16 tokens, so the long factors hold.
    Case(
        "phi3",
        "phi3",
        "phi3",
        dict(rope_parameters=LONG_ROPE, original_max_position_embeddings=16, sliding_window=12),
        {
            "rope.dimension_count": 12,
            "rope.scaling.original_context_length": 16,
            "rope.scaling.attn_factor": math.sqrt(1 + math.log(256 / 16) / math.log(16)),
            "attention.sliding_window": 12,
        },
        extra=long_factors,
    ),
    Case("granite", "granite", "granite", dict(**GRANITE, tie_word_embeddings=True), GRANITE_KEYS, True),
    Case("smollm3", "smollm3", "smollm3", dict(num_hidden_layers=4, tie_word_embeddings=True), {}, True),
    # Large scores and logits, so that the caps matter.
    Case(
        "gemma2",
        "gemma2",
        "gemma2",
        dict(head_dim=16, query_pre_attn_scalar=16, sliding_window=8, attn_logit_softcapping=5.0,
             final_logit_softcapping=12.0),
        {
            "attention.sliding_window": 8,
            "attn_logit_softcapping": 5.0,
            "final_logit_softcapping": 12.0,
        },
        norms_hold_one_less=True,
    ),
    Case(
        "qwen3moe",
        "qwen3moe",
        "qwen3_moe",
        dict(num_experts=4, num_experts_per_tok=2, moe_intermediate_size=32, head_dim=16, norm_topk_prob=True),
        FOUR_EXPERTS | {"expert_feed_forward_length": 32},
    ),
    Case(
        "granitemoe",
        "granitemoe",
        "granitemoe",
        dict(**GRANITE, num_local_experts=4, num_experts_per_tok=2, tie_word_embeddings=True, num_hidden_layers=1),
        GRANITE_KEYS | FOUR_EXPERTS,
        True,
        names={"block_sparse_moe.router.weight": "ffn_gate_inp.weight"},
    ),
    # InternLM2 and EXAONE 3 have no class in transformers; they compute what Llama computes.
    Case("internlm2", "internlm2", "llama", SMALL, {}, True),
    Case("exaone", "exaone", "llama", SMALL),
    # MiniCPM neither; its factors are Granite's, and its scores are scaled as usual.
    Case(
        "minicpm",
        "minicpm",
        "granite",
        SMALL
        | dict(num_hidden_layers=2, embedding_multiplier=12.0, attention_multiplier=8**-0.5)
        | dict(residual_multiplier=1.4 / 2**0.5, logits_scaling=0.125),
        {},
        True,
    ),
    Case("gemma", "gemma", "gemma", SMALL | dict(head_dim=16), norms_hold_one_less=True),
    Case("arcee", "arcee", "arcee", SMALL, {}, True),
    Case("ernie4_5", "ernie4_5", "ernie4_5", SMALL | dict(head_dim=8)),
    Case("seed_oss", "seed_oss", "seed_oss", SMALL | dict(head_dim=8)),
    Case(
        "hunyuan-dense",
        "hunyuan-dense",
        "hunyuan_v1_dense",
        SMALL | dict(head_dim=8, rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=4.0, factor=1.0)),
        {"rope.freq_base": 10000.0 * 4.0 ** (8 / 6)},
        names={"query_layernorm.weight": "attn_q_norm.weight", "key_layernorm.weight": "attn_k_norm.weight"},
    ),
    Case("chatglm", "chatglm", "glm", SMALL | dict(head_dim=8), {"rope.dimension_count": 4}),
    Case("glm4", "glm4", "glm4", SMALL | dict(head_dim=8), {"rope.dimension_count": 4}),
    Case(
        "exaone4",
        "exaone4",
        "exaone4",
        SMALL | dict(num_hidden_layers=4, sliding_window=8, sliding_window_pattern=4),
        {"attention.sliding_window": 8},
    ),
    Case("olmo2", "olmo2", "olmo2", SMALL),
    Case(
        "olmo3",
        "olmo2",
        "olmo3",
        SMALL
        | dict(
            num_hidden_layers=4,
            sliding_window=8,
            rope_parameters={
                "sliding_attention": dict(rope_type="default", rope_theta=10000.0),
                "full_attention": YARN_ROPE,
            },
        ),
        {
            "attention.sliding_window": 8,
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 32,
        },
    ),
    Case("olmoe", "olmoe", "olmoe", SMALL_EXPERTS, FOUR_EXPERTS),
    Case(
        "qwen2moe",
        "qwen2moe",
        "qwen2_moe",
        SMALL_EXPERTS | dict(moe_intermediate_size=32, shared_expert_intermediate_size=48),
        FOUR_EXPERTS | {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 48},
    ),
    # An original context of 8 tokens, so that queries grow within the prompt.
    Case(
        "mistral3",
        "mistral3",
        "ministral3",
        SMALL
        | dict(
            head_dim=8,
            rope_parameters=YARN_ROPE
            | dict(type="yarn", original_max_position_embeddings=8, mscale=1.0, mscale_all_dim=1.0)
            | dict(llama_4_scaling_beta=0.5, max_position_embeddings=256, beta_fast=32.0, beta_slow=1.0),
        ),
        {
            "rope.scaling.type": "yarn",
            "rope.scaling.factor": 8.0,
            "rope.scaling.original_context_length": 8,
            "attention.temperature_scale": 0.5,
        },
        True,
    ),
    Case("command-r", "command-r", "cohere", SMALL | dict(logit_scale=0.5), {"logit_scale": 0.5}),
    Case(
        "cohere2",
        "cohere2",
        "cohere2",
        SMALL | dict(num_hidden_layers=4, sliding_window=8, logit_scale=0.5),
        {"logit_scale": 0.5, "attention.sliding_window": 8},
    ),
    Case(
        "stablelm",
        "stablelm",
        "stablelm",
        SMALL | dict(use_qkv_bias=True, rope_parameters=part(0.5)),
        {"rope.dimension_count": 4},
    ),
    Case("starcoder2", "starcoder2", "starcoder2", SMALL | dict(sliding_window=8), {"attention.sliding_window": 8}),
    Case(
        "gptneox",
        "gptneox",
        "gpt_neox",
        SMALL | dict(num_key_value_heads=4, rope_parameters=part(0.5)),
        {"rope.dimension_count": 4, "use_parallel_residual": True},
        reorder=joined_heads,
    ),
    Case("gpt2", "gpt2", "gpt2", SMALL | dict(num_key_value_heads=4, n_inner=64, intermediate_size=64),
         reorder=transposed),
    Case(
        "nemotron",
        "nemotron",
        "nemotron",
        SMALL | dict(rope_parameters=part(0.5)),
        {"rope.dimension_count": 4},
        norms_hold_one_less=True,
    ),
    Case(
        "phi2",
        "phi2",
        "phi",
        SMALL | dict(tie_word_embeddings=False, rope_parameters=part(0.5)),
        {"rope.dimension_count": 4},
    ),
    Case(
        "ernie4_5-moe",
        "ernie4_5-moe",
        "ernie4_5_moe",
        SMALL
        | dict(num_hidden_layers=2, moe_num_experts=4, moe_k=2, moe_intermediate_size=32, moe_num_shared_experts=1)
        | dict(head_dim=8),
        FOUR_EXPERTS | {"expert_feed_forward_length": 32},
        names={"e_score_correction_bias": "exp_probs_b.bias"},
    ),
    Case(
        "dots1",
        "dots1",
        "dots1",
        SMALL | SIGMOID_EXPERTS | dict(norm_topk_prob=False),
        SIGMOID_KEYS | {"expert_weights_norm": False},
        extra=selection_bias,
    ),
    Case(
        "glm4moe",
        "glm4moe",
        "glm4_moe",
        SMALL | SIGMOID_EXPERTS | dict(use_qk_norm=True, attention_bias=True, rope_parameters=part(0.5)),
        SIGMOID_KEYS | {"rope.dimension_count": 4},
        extra=selection_bias,
    ),
    Case(
        "hunyuan-moe",
        "hunyuan-moe",
        "hunyuan_v1_moe",
        SMALL
        | dict(head_dim=8, num_experts=4, moe_topk=2)
        | dict(rope_parameters=dict(rope_type="dynamic", rope_theta=10000.0, alpha=4.0, factor=1.0)),
        FOUR_EXPERTS | {"rope.freq_base": 10000.0 * 4.0 ** (8 / 6)},
        names={
            "query_layernorm.weight": "attn_q_norm.weight",
            "key_layernorm.weight": "attn_k_norm.weight",
            "gate.wg.weight": "ffn_gate_inp.weight",
        },
    ),
]
