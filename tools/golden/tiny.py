# SPDX-License-Identifier: Apache-2.0
"""What the makers of tiny random models share: their options, both ends of a GGUF file, and the form of expected values."""

import argparse
import json
from pathlib import Path

import gguf
import torch

from origin import origin


def parse_options(description, *positionals):
    root = Path(__file__).resolve().parents[2]
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    for name in positionals:
        parser.add_argument(name, nargs="*")
    parser.add_argument("--data", type=Path, default=root / "tests/data")
    parser.add_argument("--golden", type=Path, default=root / "tests/golden")
    torch.set_num_threads(1)
    return parser.parse_args()


def begin(path, arch, name, config, positions):
    """A writer with what files of all architectures say."""
    writer = gguf.GGUFWriter(path, arch)
    writer.add_name(f"tiny random {name}")
    writer.add_license("Apache-2.0")
    writer.add_context_length(positions)
    writer.add_embedding_length(config.hidden_size)
    writer.add_block_count(config.num_hidden_layers)
    writer.add_feed_forward_length(config.intermediate_size)
    writer.add_head_count(config.num_attention_heads)
    return writer


def add_keys(writer, arch, keys):
    add = {str: writer.add_string, float: writer.add_float32, int: writer.add_uint32, bool: writer.add_bool,
           list: writer.add_array}
    for key, value in keys.items():
        add[type(value)](f"{arch}.{key}", value)


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def expectations(path, ids, single, exact):
    """Expected values: `exact` is the result [T, N] in float64, `single` the same in float32."""
    return {
        "origin": origin(model="tests/data/" + path.name, against_float32=(single - exact).abs().max().item()),
        "ids": ids,
        "logits_spread": exact.std().item(),
        "first_logits": [[round(v, 6) for v in row[:8].tolist()] for row in exact],
        "last_logits": [round(v, 6) for v in exact[-1].tolist()],
    }


def store(folder, path, result):
    """Writes the expected values of the model at `path`, and says what became of it."""
    (folder / f"{path.stem}.json").write_text(json.dumps(result, separators=(",", ":")) + "\n")
    print(
        f"{path.name}: {path.stat().st_size} bytes, spread {result['logits_spread']:.2f}, "
        f"float32 differs by {result['origin']['against_float32']:.1e}",
        flush=True,
    )
