#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Vision files of the shapes that published models have, with random weights: what they cost is real, what they say is not.

  bench/random_vision.py [--width 576] [--type f16 q8_0] [--shape b16-224 b16-512 b16-512-tiles so400m-448] FOLDER

Needs the packages gguf and numpy (tools/setup/golden.txt). The files go with any language model of the width (576: SmolLM2-135M) and
are the same for the same version of numpy, if its vocabulary has the markers of pictures: with_markers.py gives them to a copy. As in
published files, matrices are of the type, but for those whose rows are not whole blocks of it and those that no program reads in it.
"""
import argparse
import dataclasses
import pathlib

import gguf
import numpy as np

SEED = 1


@dataclasses.dataclass
class Shape:
    """A tower of SigLIP, and the projector behind it."""
    size: int     # pixels of a tile's side
    patch: int
    width: int
    blocks: int
    heads: int
    feed_forward: int
    projector: str
    join: int = 1     # patches of a side that become one row
    longest: int = 0  # pixels that pictures are enlarged to before they are cut; 0: they are not cut

    def patches(self):
        return (self.size // self.patch) ** 2


SHAPES = {
    "b16-224": Shape(224, 16, 768, 12, 12, 3072, "mlp"),
    "b16-512": Shape(512, 16, 768, 12, 12, 3072, "gemma3", join=4),
    "b16-512-tiles": Shape(512, 16, 768, 12, 12, 3072, "idefics3", join=4, longest=2048),  # SmolVLM 256M and 500M
    "so400m-448": Shape(448, 14, 1152, 27, 16, 4304, "gemma3", join=4),
}
TYPES = {"f16": gguf.GGMLQuantizationType.F16, "q8_0": gguf.GGMLQuantizationType.Q8_0}


class Weights:
    def __init__(self, writer, kind):
        self.writer, self.kind, self.random = writer, kind, np.random.default_rng(SEED)

    def normal(self, shape, deviation):
        return self.random.standard_normal(shape, np.float32) * np.float32(deviation)

    def matrix(self, name, rows, columns, fixed=None):
        """[rows, columns] of gain 1, with a bias."""
        self.product(name, (rows, columns), columns, fixed)
        self.vector(f"{name}.bias", rows, 0)

    def product(self, name, shape, inputs, fixed=None):
        """fixed: its type, whatever that of the file is."""
        whole = shape[-1] % gguf.GGML_QUANT_SIZES[self.kind][0] == 0
        kind = fixed if fixed is not None else self.kind if whole else gguf.GGMLQuantizationType.F16
        values = gguf.quantize(self.normal(shape, inputs**-0.5), kind)
        self.writer.add_tensor(f"{name}.weight", values, raw_dtype=kind)

    def vector(self, name, length, centre):
        self.writer.add_tensor(name, centre + self.normal(length, 0.1))

    def norm(self, name, width):
        self.vector(f"{name}.weight", width, 1)
        self.vector(f"{name}.bias", width, 0)


def add_keys(writer, shape, width):
    writer.add_type(gguf.GGUFType.MMPROJ)
    writer.add_bool("clip.has_vision_encoder", True)
    writer.add_string("clip.projector_type", shape.projector)
    writer.add_bool("clip.use_gelu", True)
    writer.add_vision_projection_dim(width)
    writer.add_vision_image_size(shape.size)
    writer.add_vision_patch_size(shape.patch)
    writer.add_vision_embedding_length(shape.width)
    writer.add_vision_feed_forward_length(shape.feed_forward)
    writer.add_vision_block_count(shape.blocks)
    writer.add_vision_head_count(shape.heads)
    writer.add_vision_attention_layernorm_eps(1e-6)
    writer.add_vision_image_mean([0.5] * 3)
    writer.add_vision_image_std([0.5] * 3)
    if shape.projector == "mlp":
        writer.add_array("clip.vision.feature_layer", [shape.blocks])
    if shape.join > 1:
        writer.add_vision_projector_scale_factor(shape.join)
    if shape.longest:
        writer.add_uint32("clip.vision.preproc_image_size", shape.longest)


def add_tower(weights, shape):
    half = gguf.GGMLQuantizationType.F16
    weights.product("v.patch_embd", (shape.width, 3, shape.patch, shape.patch), 3 * shape.patch**2, half)
    weights.vector("v.patch_embd.bias", shape.width, 0)
    weights.product("v.position_embd", (shape.patches(), shape.width), 1, gguf.GGMLQuantizationType.F32)
    for i in range(shape.blocks):
        block = f"v.blk.{i}"
        for norm in ("ln1", "ln2"):
            weights.norm(f"{block}.{norm}", shape.width)
        for part in ("attn_q", "attn_k", "attn_v", "attn_out"):
            weights.matrix(f"{block}.{part}", shape.width, shape.width)
        weights.matrix(f"{block}.ffn_up", shape.feed_forward, shape.width)
        weights.matrix(f"{block}.ffn_down", shape.width, shape.feed_forward)
    weights.norm("v.post_ln", shape.width)


def add_projector(weights, shape, width):
    if shape.projector == "mlp":
        weights.matrix("mm.0", width, shape.width)
        weights.matrix("mm.2", width, width)
    elif shape.projector == "idefics3":
        weights.product("mm.model.fc", (width, shape.width * shape.join**2), shape.width * shape.join**2)
    else:  # gemma3, whose matrix is the other way round
        weights.product("mm.input_projection", (shape.width, width), shape.width, gguf.GGMLQuantizationType.F16)
        weights.vector("mm.soft_emb_norm.weight", shape.width, 1)


def write(path, name, shape, kind, width):
    writer = gguf.GGUFWriter(path, "clip")
    writer.add_name(f"random SigLIP {name}, {shape.projector}")
    writer.add_file_type(gguf.LlamaFileType.MOSTLY_F16 if kind == "f16" else gguf.LlamaFileType.MOSTLY_Q8_0)
    add_keys(writer, shape, width)
    weights = Weights(writer, TYPES[kind])
    add_tower(weights, shape)
    add_projector(weights, shape, width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--width", type=int, default=576, help="of the language model's embeddings")
    parser.add_argument("--type", nargs="+", choices=TYPES, default=list(TYPES))
    parser.add_argument("--shape", nargs="+", choices=SHAPES, default=list(SHAPES))
    parser.add_argument("folder", type=pathlib.Path)
    options = parser.parse_args()
    options.folder.mkdir(parents=True, exist_ok=True)
    for name in options.shape:
        for kind in options.type:
            path = options.folder / f"mmproj-siglip-{name}-{kind}.gguf"
            write(path, name, SHAPES[name], kind, options.width)
            print(path, f"{path.stat().st_size / 1e6:.0f} MB", flush=True)


if __name__ == "__main__":
    main()
