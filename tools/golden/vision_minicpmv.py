# SPDX-License-Identifier: Apache-2.0
"""A tiny MiniCPM-V 4.6: slices, a window merger inside the tower, another after it, a qwen35.

`clip.vision.image_size` is the side of the square whose area a slice has (448 in the published model). The table of
positions has another side, the root of its row count, and patch (i, j) of h x w takes row floor(side * i / h), column
floor(side * j / w). `clip.vision.wa_layer_indexes` holds one number, the block after which the window merger stands.
`clip.vision.projector.scale_factor` is 4, or 2 where the window merger and its tensors are absent ("4x").

Two keys that llama.cpp does not know, with what holds where they are absent:
    clip.vision.preproc_max_tiles   9      the most slices of one picture, its overview not counted
    clip.vision.use_image_id        true   whether <image_id>N</image_id> stands before the N-th picture of a prompt, from 0

Markers, where rows of slices are lines of text, without a line end after the last:
    <image_id>0</image_id><image> rows </image><slice> rows </slice><slice> rows </slice> "\\n" <slice> ...
"""

import numpy as np
from transformers import MiniCPMV4_6Config, MiniCPMV4_6ForConditionalGeneration
from transformers.models.minicpmv4_6.image_processing_pil_minicpmv4_6 import MiniCPMV4_6ImageProcessorPil
from transformers.models.minicpmv4_6.processing_minicpmv4_6 import MiniCPMV4_6Processor

import tiny_hybrids
import vision_common as common
from tiny import finish
from vision_tokenizer import ByteLevelVocabulary

SLICE, PATCH, TABLE, MAX_SLICES, INSERT = 32, 4, 10, 6, 1
TEMPLATE = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n\n</think>\n\n{% endif %}"
)
MARKS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "<|vision_start|>", "<|vision_end|>", "<|image_pad|>",
         "<|video_pad|>", "<image>", "</image>", "<slice>", "</slice>", "<image_id>", "</image_id>", "<think>",
         "</think>"]  # fmt: skip
ARCH, TEXT_TYPE, TEXT, TEXT_TENSORS, TEXT_KEYS = next(tiny_hybrids.cases())


class TextHalf:
    """What tiny_hybrids.py asks of a text model."""

    def __init__(self, module):
        self.config, self.module = module.config, module

    def named_parameters(self):
        for name, weight in self.module.named_parameters():
            yield "model." + name, weight


def gain(name, weight):
    """Embeddings are the head too, so small ones keep a token from being its own best successor."""
    return 0.3 if "embed_tokens" in name else common.sharper_attention(name, weight)


def centre(name):
    is_zero = "language_model" in name and name.endswith("norm.weight") and "linear_attn" not in name
    return 0.0 if is_zero else 1.0 if name.endswith("A_log") else common.about_one(name)


class MiniCpmV46(common.Family):
    name, seed, picture_mark, mode = "minicpmv4_6", 514, "<|image_pad|>", "16x"
    cases = [
        (["100x40.png"], "What is on the left?"),
        (["200x150.png"], "Which 3 colours?\n\nName them."),
        (["37x23.png", "30x90.png"], "Compare these."),
        (["5x3.png"], "Is it dark?"),
    ]
    vocabulary = ByteLevelVocabulary("qwen35", ["Ċ Ċ"], MARKS, "<|endoftext|>", "<|im_end|>", TEMPLATE)

    def __init__(self):
        self.images = MiniCPMV4_6ImageProcessorPil(scale_resolution=SLICE, patch_size=PATCH, max_slice_nums=MAX_SLICES,
                                                   downsample_mode=self.mode)  # fmt: skip
        self.processor = MiniCPMV4_6Processor.__new__(MiniCPMV4_6Processor)
        self.processor.slice_mode = True
        self.processor.image_token = self.picture_mark
        for kind in ("image", "slice", "image_id"):
            setattr(self.processor, f"{kind}_start_token", f"<{kind}>")
            setattr(self.processor, f"{kind}_end_token", f"</{kind}>")

    def text_name(self):
        return MiniCpmV46.name

    def build(self):
        config = MiniCPMV4_6Config(
            image_token_id=self.vocabulary.id(self.picture_mark),
            video_token_id=self.vocabulary.id("<|video_pad|>"),
            tie_word_embeddings=True,
            downsample_mode=self.mode,
            insert_layer_id=INSERT,
            image_size=SLICE,
            vision_config=dict(hidden_size=32, intermediate_size=64, num_hidden_layers=4, num_attention_heads=2,
                               image_size=TABLE * PATCH, patch_size=PATCH),
            text_config=dict(model_type=TEXT_TYPE, hidden_size=64, intermediate_size=64, vocab_size=len(self.vocabulary),
                             max_position_embeddings=2048, pad_token_id=None,
                             bos_token_id=self.vocabulary.id("<|endoftext|>"),
                             eos_token_id=self.vocabulary.id("<|im_end|>")) | TEXT,
        )  # fmt: skip
        config._attn_implementation = "eager"
        model = MiniCPMV4_6ForConditionalGeneration(config)
        return common.randomise(model, self.seed, gain, centre)

    def text_model(self, model):
        return model.model.language_model

    def inputs(self, pictures, text):
        processed = self.images(pictures, return_tensors="pt")
        divisor = 4 if self.mode == "4x" else 16
        parts = [self.processor.replace_image_token(processed, i, image_token_divisor=divisor) for i in range(len(pictures))]
        parts = self.processor._prepend_local_ids([text], parts, self.picture_mark)
        head, *rest = text.split(self.picture_mark)
        text = head + "".join(part + after for part, after in zip(parts, rest))
        ids = self.vocabulary.tokenizer()(text, return_tensors="pt")
        inputs = dict(input_ids=ids["input_ids"], attention_mask=ids["attention_mask"],
                      pixel_values=processed["pixel_values"], target_sizes=processed["target_sizes"])  # fmt: skip
        return inputs, self.vocabulary.id(self.picture_mark), list(self.tiles(pictures))

    def tiles(self, pictures):
        """Strips of patches, put together again."""
        plain = self.images(pictures, do_rescale=False, do_normalize=False, return_tensors="np")
        owners = np.repeat(np.arange(len(pictures)), plain["num_patches_per_image"])
        start = 0
        for owner, (rows, columns) in zip(owners, plain["target_sizes"]):
            end = start + rows * columns * PATCH
            strip = plain["pixel_values"][0, :, :, start:end].reshape(3, PATCH, rows, columns, PATCH)
            yield int(owner), strip.transpose(2, 1, 3, 4, 0).reshape(rows * PATCH, columns * PATCH, 3)
            start = end

    def write_text(self, path, model):
        half = TextHalf(model.model.language_model)
        keys = TEXT_KEYS | {"rope.freq_base": half.config.rope_parameters["rope_theta"]}
        keys = {k: v for k, v in keys.items() if k not in ("attention.head_count_kv", "attention.layer_norm_rms_epsilon")}
        writer = common.text_writer(path, ARCH, self.text_name(), half.config, self.vocabulary, keys)
        common.add_tensors(writer, TEXT_TENSORS(half), single=lambda name: "conv1d" in name)
        finish(writer)

    def write_vision(self, path, model):
        c = model.config.vision_config
        tower = dict(image_size=SLICE, patch_size=PATCH, hidden_size=c.hidden_size, intermediate_size=c.intermediate_size,
                     layers=c.num_hidden_layers, heads=c.num_attention_heads, eps=c.layer_norm_eps)  # fmt: skip
        writer = common.vision_writer(
            path, self.name, "minicpmv4_6", tower, model.config.text_config.hidden_size,
            list(self.images.image_mean), list(self.images.image_std),
            {"vision.projector.scale_factor": 2 if self.mode == "4x" else 4, "vision.wa_layer_indexes": [INSERT],
             "use_gelu": True, "vision.preproc_max_tiles": MAX_SLICES, "vision.use_image_id": True},
        )  # fmt: skip
        common.add_tensors(writer, self.vision_tensors(model))
        finish(writer)

    def vision_tensors(self, model):
        yield from common.siglip_tensors(model.model.vision_tower)
        parts = {"layer_norm1": "ln1", "self_attn.q_proj": "attn_q", "self_attn.k_proj": "attn_k",
                 "self_attn.v_proj": "attn_v", "self_attn.out_proj": "attn_out", "pre_norm": "ds_ln",
                 "linear_1": "ds_ffn_up", "linear_2": "ds_ffn_down"}  # fmt: skip
        if self.mode != "4x":
            for name, values in common.parameters(model.model.vision_tower.vit_merger):
                part, kind = name.rsplit(".", 1)
                yield f"v.vit_merger.{parts[part]}.{kind}", values
        last = {"pre_norm": "mm.input_norm", "linear_1": "mm.up", "linear_2": "mm.down"}
        for name, values in common.parameters(model.model.merger.mlp[0]):
            part, kind = name.rsplit(".", 1)
            yield f"{last[part]}.{kind}", values


class MiniCpmV46By4(MiniCpmV46):
    """The same model without its window merger: four times the rows."""

    name, mode = "minicpmv4_6-4x", "4x"
    cases = [(["100x40.png"], "What is on the left?"), (["37x23.png", "30x90.png"], "Compare these.")]
