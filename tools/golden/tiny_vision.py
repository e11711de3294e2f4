# SPDX-License-Identifier: Apache-2.0
"""Writes tiny random vision-language models, pictures, and what the models make of them.

    tiny_vision.py [NAME ...] [--data tests/data] [--golden tests/golden]

Of each family: its text model tests/data/vision/tiny-<name>.gguf, its vision file mmproj-tiny-<name>.gguf, and
tests/golden/vision-<name>.json. Each is made by transformers, with random weights that halves hold exactly; expected
values are in float64. The modules vision_<name>.py say how each family prepares pictures and writes its files.

A case of the JSON file: `pictures`; `question`, the user's text after them; `tiles`, what the tower sees of each picture as
the SHA-256 of its RGB bytes; `ids` of the whole prompt, -1 at rows of pictures; `positions` [3, T] where the model has more
than one per token; `rows`, the base64 of little-endian float32 [row_count, row_width], as the text model gets them;
`last_logits`; `greedy`, the ids that follow, and `greedy_margin`, the smallest lead of one of them.
"""

import json

import torch
from transformers.utils import logging

import vision_common
import vision_pictures
from tiny import parse_options
from vision_gemma3 import Gemma3
from vision_idefics3 import Idefics3
from vision_llava import Llava
from vision_llava_onevision import LlavaOnevision
from vision_minicpmv import MiniCpmV46, MiniCpmV46By4
from vision_qwen import Qwen3, Qwen25

logging.set_verbosity_error()
FAMILIES = [Idefics3, MiniCpmV46, MiniCpmV46By4, LlavaOnevision, Gemma3, Qwen25, Qwen3, Llava]


def main():
    arguments = parse_options(__doc__, "names")
    folder = arguments.data / "vision"
    vision_pictures.write(folder)
    for kind in FAMILIES:
        if arguments.names and kind.name not in arguments.names:
            continue
        family = kind()
        model = family.build()
        text, vision = folder / f"tiny-{family.text_name()}.gguf", folder / f"mmproj-tiny-{family.name}.gguf"
        family.write_text(text, model)
        family.write_vision(vision, model)
        result = vision_common.expected(family, model, arguments.data)
        target = arguments.golden / f"vision-{family.name}.json"
        target.write_text(json.dumps(result, separators=(",", ":")) + "\n")
        sizes = ", ".join(f"{path.name} {path.stat().st_size}" for path in (text, vision, target))
        print(f"{family.name}: {sizes}", flush=True)


if __name__ == "__main__":
    main()
