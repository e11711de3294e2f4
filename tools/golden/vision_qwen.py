# SPDX-License-Identifier: Apache-2.0
"""Tiny models of the Qwen-VL family: pictures of any size, positions of three numbers.

A picture is resized (bicubic) to multiples of patch_size * 2 a side that keep its aspect, and between two areas. llama.cpp
has limits of its own for these models; files may say them under keys that it knows from others:

    clip.vision.image_min_pixels   absent: 3136 (Qwen2.5-VL), 65536 (Qwen3-VL)
    clip.vision.image_max_pixels   absent: 12845056 (Qwen2.5-VL), 16777216 (Qwen3-VL)

Patches are taken in blocks of 2 x 2, and a block becomes one row, in reading order. The two kernels of the first convolution
(v.patch_embd.weight and .weight.1) both see the picture, as it is a film of two equal frames. Each patch's query and key are
turned by its row (first half of the pairs) and by its column (second half), with the base 10000.

In the text model a row of the picture has the position (p, p + its line, p + its column), where p follows the token before;
the token after it continues at p + the larger side in rows. Text has three times the same number. Markers:
    <|vision_start|> rows <|vision_end|>
"""

import gguf
import torch
from transformers import (
    Qwen2_5_VLConfig,
    Qwen2_5_VLForConditionalGeneration,
    Qwen3VLConfig,
    Qwen3VLForConditionalGeneration,
)
from transformers.image_utils import SizeDict
from transformers.models.qwen2_vl.image_processing_pil_qwen2_vl import Qwen2VLImageProcessorPil

import vision_common as common
from tiny import finish
from vision_tokenizer import ByteLevelVocabulary

PATCH, MERGE = 4, 2
SYSTEM = "{% if messages[0]['role'] != 'system' %}<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n{% endif %}"
TURNS = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>", "<|video_pad|>"]


class Qwen(common.Family):
    """What the members share."""

    picture_mark = "<|vision_start|><|image_pad|><|vision_end|>"
    cases = [
        (["100x40.png"], "What is on the left?"),
        (["200x150.png"], "Which 3 colours?"),
        (["37x23.png", "30x90.png"], "Compare these."),
        (["5x3.png"], "Is it dark?"),
    ]

    @staticmethod
    def gain(name, weight):
        """The joined queries, keys and values get sharper queries and keys."""
        if name.endswith("qkv.weight"):
            return torch.tensor([1.6, 1.6, 1.0]).repeat_interleave(len(weight) // 3)[:, None]
        return common.sharper_attention(name, weight)

    def text_model(self, model):
        return model.model.language_model

    def positions(self, called_with):
        return called_with["position_ids"][-3:, 0].tolist()

    def inputs(self, pictures, text):
        processed = self.images(pictures, return_tensors="pt")
        head, *rest = text.split("<|image_pad|>")
        counts = processed["image_grid_thw"].prod(-1) // MERGE**2
        text = head + "".join("<|image_pad|>" * count + after for count, after in zip(counts.tolist(), rest))
        ids = self.vocabulary.tokenizer()(text, return_tensors="pt")
        token = self.vocabulary.id("<|image_pad|>")
        inputs = dict(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"],
                      mm_token_type_ids=(ids["input_ids"] == token).int(),
                      pixel_values=processed["pixel_values"], image_grid_thw=processed["image_grid_thw"])  # fmt: skip
        return inputs, token, list(self.tiles(pictures))

    def tiles(self, pictures):
        for i, picture in enumerate(pictures):
            pixels = self.images.process_image(picture, do_convert_rgb=True)
            resized = self.images.resize(pixels, SizeDict(**dict(self.images.size)), self.images.resample, PATCH * MERGE)
            yield i, resized.transpose(1, 2, 0)

    def pixel_limits(self):
        return {"vision.image_min_pixels": self.images.size["shortest_edge"],
                "vision.image_max_pixels": self.images.size["longest_edge"]}  # fmt: skip


def split_tower(tower, names, fixed):
    """(GGUF name, values) of a tower: blocks' parts by `names`, others by `fixed`; both kernels, and q, k, v apart."""
    for name, values in common.parameters(tower):
        part, kind = name.rsplit(".", 1)
        if name == "patch_embed.proj.weight":
            yield "v.patch_embd.weight", values[:, :, 0]
            yield "v.patch_embd.weight.1", values[:, :, 1]
        elif part.startswith("blocks."):
            _, layer, inner = part.split(".", 2)
            yield f"v.blk.{layer}.{names[inner]}.{kind}", values
        else:
            yield f"{fixed[part]}.{kind}", values


class Qwen25(Qwen):
    """Qwen2.5-VL. Beside what llama.cpp writes, clip.vision.window_size (absent: 112) is the side of the windows in pixels;
    every clip.vision.n_wa_pattern-th block sees all of the picture. Norms are without means, v.post_ln is the merger's, and
    the merger's GELU is the one of the error function."""

    name, seed = "qwen2_5_vl", 547
    vocabulary = ByteLevelVocabulary("qwen2", ["Ċ Ċ"], MARKS, "<|endoftext|>", "<|im_end|>", SYSTEM + TURNS)
    images = Qwen2VLImageProcessorPil(patch_size=PATCH, merge_size=MERGE, size={"shortest_edge": 256, "longest_edge": 5120})

    def build(self):
        config = Qwen2_5_VLConfig(
            image_token_id=self.vocabulary.id("<|image_pad|>"),
            video_token_id=self.vocabulary.id("<|video_pad|>"),
            vision_start_token_id=self.vocabulary.id("<|vision_start|>"),
            vision_end_token_id=self.vocabulary.id("<|vision_end|>"),
            tie_word_embeddings=False,
            vision_config=dict(depth=4, hidden_size=48, intermediate_size=64, num_heads=3, patch_size=PATCH,
                               window_size=16, out_hidden_size=48, fullatt_block_indexes=[1, 3]),
            text_config=dict(hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                             num_key_value_heads=1, vocab_size=len(self.vocabulary), max_position_embeddings=2048,
                             rms_norm_eps=1e-6, tie_word_embeddings=False, bos_token_id=None, eos_token_id=None,
                             rope_parameters=dict(rope_type="default", rope_theta=1000000.0, mrope_section=[2, 3, 3])),
        )  # fmt: skip
        config._attn_implementation = "eager"
        model = Qwen2_5_VLForConditionalGeneration(config)
        return common.hush(common.randomise(model, self.seed, self.gain), self.vocabulary)

    def write_text(self, path, model):
        config = model.config.text_config
        rope = config.rope_parameters
        writer = common.text_writer(path, "qwen2vl", self.name, config, self.vocabulary,
                                    {"rope.freq_base": rope["rope_theta"],
                                     "rope.dimension_sections": [*rope["mrope_section"], 0]})  # fmt: skip
        common.add_tensors(writer, common.text_tensors(model, gguf.MODEL_ARCH.QWEN2VL, config))
        finish(writer)

    def write_vision(self, path, model):
        c = model.config.vision_config
        tower = dict(image_size=560, patch_size=PATCH, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
                     layers=c.depth, heads=c.num_heads, eps=1e-6)  # fmt: skip
        writer = common.vision_writer(
            path, self.name, "qwen2.5vl_merger", tower, c.out_hidden_size, list(self.images.image_mean),
            list(self.images.image_std),
            {"use_silu": True, "vision.n_wa_pattern": c.fullatt_block_indexes[0] + 1,
             "vision.window_size": c.window_size} | self.pixel_limits(),
        )  # fmt: skip
        names = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.gate_proj": "ffn_gate",
                 "mlp.up_proj": "ffn_up", "mlp.down_proj": "ffn_down", "attn.qkv": "attn_qkv"}  # fmt: skip
        others = {"merger.ln_q": "v.post_ln", "merger.mlp.0": "mm.0", "merger.mlp.2": "mm.2"}

        def tensors():
            for name, values in split_tower(model.model.visual, names, others):
                if ".attn_qkv." not in name:
                    yield name, values
                    continue
                third = len(values) // 3
                for i, part in enumerate("qkv"):
                    yield name.replace("qkv", part), values[i * third : (i + 1) * third]

        common.add_tensors(writer, tensors())
        finish(writer)


class Qwen3(Qwen):
    """Qwen3-VL. The table of positions (a square of v.position_embd's rows) is stretched over the picture's patches, bilinearly
    with its corners on theirs. Blocks of clip.vision.is_deepstack_layers have mergers of their own, which norm the four patches
    together: `rows` of the expected values are, as llama.cpp has them, the last merger's, then those of these blocks in turn.
    The text model adds the i-th of them to what its block i gives (`n_deepstack_layers` of them). v.post_ln is the last
    merger's and norms patch by patch; mergers' GELU is the one of the error function. M-RoPE's pairs take turns: pair i is
    turned by the height if i % 3 == 1 and i < 3 * sections[1], by the width if i % 3 == 2 and i < 3 * sections[2], or else
    by the time."""

    name, seed = "qwen3_vl", 554
    vocabulary = ByteLevelVocabulary("qwen2", ["Ċ Ċ"], MARKS, "<|endoftext|>", "<|im_end|>", TURNS)
    images = Qwen2VLImageProcessorPil(patch_size=PATCH, merge_size=MERGE, size={"shortest_edge": 256, "longest_edge": 5120},
                                      image_mean=[0.5] * 3, image_std=[0.5] * 3)  # fmt: skip

    def build(self):
        config = Qwen3VLConfig(
            image_token_id=self.vocabulary.id("<|image_pad|>"),
            video_token_id=self.vocabulary.id("<|video_pad|>"),
            vision_start_token_id=self.vocabulary.id("<|vision_start|>"),
            vision_end_token_id=self.vocabulary.id("<|vision_end|>"),
            tie_word_embeddings=False,
            vision_config=dict(depth=4, hidden_size=32, intermediate_size=64, num_heads=2, patch_size=PATCH,
                               num_position_embeddings=36, out_hidden_size=48, deepstack_visual_indexes=[0, 2]),
            text_config=dict(hidden_size=48, intermediate_size=96, num_hidden_layers=3, num_attention_heads=3,
                             num_key_value_heads=1, head_dim=16, vocab_size=len(self.vocabulary),
                             max_position_embeddings=2048, rms_norm_eps=1e-6, tie_word_embeddings=False,
                             rope_parameters=dict(rope_type="default", rope_theta=5000000.0, mrope_section=[3, 3, 2],
                                                  mrope_interleaved=True)),
        )  # fmt: skip
        config._attn_implementation = "eager"
        model = common.randomise(Qwen3VLForConditionalGeneration(config), self.seed, self.gain)
        return common.hush(model, self.vocabulary)

    def rows(self, rows, called_with):
        return torch.cat([rows, *called_with["deepstack_visual_embeds"]], dim=1).numpy()

    def write_text(self, path, model):
        config = model.config.text_config
        rope = config.rope_parameters
        writer = common.text_writer(path, "qwen3vl", self.name, config, self.vocabulary, {
            "attention.key_length": config.head_dim,
            "attention.value_length": config.head_dim,
            "rope.freq_base": rope["rope_theta"],
            "rope.dimension_sections": [*rope["mrope_section"], 0],
            "n_deepstack_layers": len(model.config.vision_config.deepstack_visual_indexes),
        })  # fmt: skip
        common.add_tensors(writer, common.text_tensors(model, gguf.MODEL_ARCH.QWEN3VL, config))
        finish(writer)

    def write_vision(self, path, model):
        c = model.config.vision_config
        tower = dict(image_size=6 * PATCH, patch_size=PATCH, hidden_size=c.hidden_size, layers=c.depth, heads=c.num_heads,
                     intermediate_size=c.intermediate_size, eps=model.config.text_config.rms_norm_eps)  # fmt: skip
        deep = c.deepstack_visual_indexes
        writer = common.vision_writer(
            path, self.name, "qwen3vl_merger", tower, c.out_hidden_size, list(self.images.image_mean),
            list(self.images.image_std),
            {"use_gelu": True, "vision.spatial_merge_size": MERGE,
             "vision.is_deepstack_layers": [i in deep for i in range(c.depth)]} | self.pixel_limits(),
        )  # fmt: skip
        names = {"norm1": "ln1", "norm2": "ln2", "attn.proj": "attn_out", "mlp.linear_fc1": "ffn_up",
                 "mlp.linear_fc2": "ffn_down", "attn.qkv": "attn_qkv"}  # fmt: skip
        others = {"patch_embed.proj": "v.patch_embd", "pos_embed": "v.position_embd", "merger.norm": "v.post_ln",
                  "merger.linear_fc1": "mm.0", "merger.linear_fc2": "mm.2"}  # fmt: skip
        for i, layer in enumerate(deep):
            others |= {f"deepstack_merger_list.{i}.{part}": f"v.deepstack.{layer}.{part.replace('linear_', '')}"
                       for part in ("norm", "linear_fc1", "linear_fc2")}  # fmt: skip
        common.add_tensors(writer, split_tower(model.model.visual, names, others))
        finish(writer)
