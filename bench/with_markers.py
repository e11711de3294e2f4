#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""A language model whose vocabulary has the markers of pictures, for vision files of random weights (random_vision.py).

  bench/with_markers.py MODEL.gguf OUT.gguf

The last tokens of the vocabulary, which are the rarest, get the markers' names and become control tokens; all else is copied.
Needs the packages gguf and numpy.
"""
import argparse
import pathlib
import sys

import gguf

sys.path.append(str(pathlib.Path(__file__).resolve().parent.parent / "tools" / "golden"))
from dequantise import copy_field  # noqa: E402  (of tools/golden)

TILES = 6  # of a side, at most
MARKERS = ["<start_of_image>", "<end_of_image>", "<image>", "<fake_token_around_image>", "<global-img>",
           *(f"<row_{row}_col_{column}>" for row in range(1, TILES + 1) for column in range(1, TILES + 1))]  # fmt: skip
TOKENS, TYPES, MERGES = (f"tokenizer.ggml.{name}" for name in ("tokens", "token_type", "merges"))


def renamed(keys):
    """Of the three lists, with markers in place of the last tokens."""
    tokens, types = list(keys[TOKENS]), list(keys[TYPES])
    normal = [i for i, kind in enumerate(types) if kind == gguf.TokenType.NORMAL]
    gone = set()
    for i, marker in zip(reversed(normal), MARKERS):
        gone.add(tokens[i])
        tokens[i], types[i] = marker, int(gguf.TokenType.CONTROL)
    merges = [merge for merge in keys[MERGES] if not gone & {merge.replace(" ", ""), *merge.split(" ")}]
    return {TOKENS: tokens, TYPES: types, MERGES: merges}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("out")
    options = parser.parse_args()
    reader = gguf.GGUFReader(options.model)
    fields = {name: field for name, field in reader.fields.items() if not name.startswith("GGUF.")}
    keys = {name: field.contents() for name, field in fields.items()}
    writer = gguf.GGUFWriter(options.out, keys.pop("general.architecture"))
    keys |= renamed(keys)
    for name, value in keys.items():
        copy_field(writer, fields[name], value)
    for tensor in reader.tensors:
        writer.add_tensor(tensor.name, tensor.data, raw_dtype=tensor.tensor_type)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


if __name__ == "__main__":
    main()
