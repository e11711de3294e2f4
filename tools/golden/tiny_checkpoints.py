# SPDX-License-Identifier: Apache-2.0
"""Saves the tiny models of tiny_architectures.py and tiny_hybrids.py as their publishers would, converts each with
nanomind, and compares every key and tensor with the GGUF file that those tools wrote.

    tiny_checkpoints.py PROGRAM [NAME ...]     convert and compare; exits with 1 where anything differs
    tiny_checkpoints.py --write FOLDER NAME    only save NAME's checkpoint there (tests/data/checkpoint is llama3's)

Exits with 77 where Python lacks what this needs (requirements.txt).
"""

import json
import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path

try:
    import gguf
    import numpy as np

    import tiny_gemma3n
    import tiny_hybrids
    from architecture_configs import ARCHITECTURES
    from tiny_architectures import make_model
    from tiny_models import byte_characters
    from tokenizer_words import QWEN2
except ImportError as missing:
    print(f"skipped: {missing}")
    sys.exit(77)

DATA = Path(__file__).resolve().parents[2] / "tests/data"
CONVERTED = ["gemma2", "gemma3n", "granite", "lfm2", "llama3", "llama-linear", "llama-yarn", "mistral", "mixtral", "phi3", "qwen3",
             "qwen35", "qwen3moe", "smollm3"]
# What files of the tools do not say, or say of the model's name.
OURS_ALONE = {"general.file_type", "general.quantization_version", "general.type", "tokenizer.ggml.add_eos_token",
              "tokenizer.ggml.padding_token_id"}
OURS_ALONE_ENDINGS = (".vocab_size", ".rope.dimension_count", ".rope.freq_base_swa")
UNCOMPARED = {"general.license", "general.name", "GGUF.version", "GGUF.tensor_count", "GGUF.kv_count"}
# The tools call one token unused, which a tokenizer.json cannot say.
UNUSED, NORMAL = 5, 1


def models():
    """(name, model) of all."""
    for seed, case in enumerate(ARCHITECTURES, start=100):
        if case.name in CONVERTED:
            yield case.name, partial(make_model, case, seed)
    for seed, (arch, model_type, config, *_) in enumerate(tiny_hybrids.cases(), start=300):
        yield arch, partial(tiny_hybrids.make_model, model_type, config, seed)
    yield "gemma3n", partial(tiny_gemma3n.make_model, tiny_gemma3n.CONFIG, tiny_gemma3n.SEED)


def save(model, folder):
    model.half().save_pretrained(folder)
    tokens = [byte_characters()[b] for b in range(256)] + ["th", "<|unused|>"]
    bytes_only = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": False, "use_regex": False}
    split = {"type": "Split", "pattern": {"Regex": QWEN2}, "behavior": "Isolated", "invert": False}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [{"id": 258, "content": "<|start|>", "special": True},
                         {"id": 259, "content": "<|end|>", "special": True}],
        "normalizer": {"type": "NFC"},
        "pre_tokenizer": {"type": "Sequence", "pretokenizers": [split, bytes_only]},
        "model": {"type": "BPE", "vocab": {token: i for i, token in enumerate(tokens)}, "merges": ["t h"]},
    }
    settings = {"bos_token": "<|start|>", "eos_token": {"content": "<|end|>"}, "add_bos_token": False}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer, ensure_ascii=False) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")


def is_same(ours, theirs):
    if isinstance(theirs, float):
        return abs(ours - theirs) <= 1e-6 * abs(theirs)
    return ours == theirs


def differences(ours_path, theirs_path):
    ours, theirs = gguf.GGUFReader(ours_path), gguf.GGUFReader(theirs_path)
    for key in sorted(set(ours.fields) | set(theirs.fields)):
        if key in UNCOMPARED:
            continue
        if key not in theirs.fields:
            if key not in OURS_ALONE and not key.endswith(OURS_ALONE_ENDINGS):
                yield f"{key} is not in {theirs_path.name}"
        elif key not in ours.fields:
            yield f"{key} is missing"
        else:
            a, b = ours.fields[key].contents(), theirs.fields[key].contents()
            if key == "tokenizer.ggml.token_type":
                b = [NORMAL if kind == UNUSED else kind for kind in b]
            if not is_same(a, b):
                yield f"{key} is {str(a)[:80]}, not {str(b)[:80]}"
    ours, theirs = ({t.name: t for t in file.tensors} for file in (ours, theirs))
    for name in sorted(set(ours) | set(theirs)):
        if name not in ours or name not in theirs:
            yield f"{name} is {'missing' if name in theirs else 'too much'}"
            continue
        a, b = ours[name], theirs[name]
        if a.tensor_type != b.tensor_type or list(a.shape) != list(b.shape):
            yield f"{name} is {a.tensor_type.name} {list(a.shape)}, not {b.tensor_type.name} {list(b.shape)}"
        # Tables that are computed may differ in the last bits of a float; copies may not at all.
        elif not np.allclose(a.data, b.data, rtol=1e-6 if name.startswith("rope_") or name.endswith("ssm_a") else 0, atol=0):
            yield f"{name} has other numbers"


def main():
    if sys.argv[1] == "--write":
        folder, wanted = Path(sys.argv[2]), sys.argv[3]
        save(dict(models())[wanted](), folder)
        return 0
    program, names, bad = sys.argv[1], sys.argv[2:] or CONVERTED, 0
    for name, make in models():
        if name not in names:
            continue
        with tempfile.TemporaryDirectory() as scratch:
            folder, target = Path(scratch) / "checkpoint", Path(scratch) / "out.gguf"
            save(make(), folder)
            subprocess.run([program, "convert", folder, "-o", target, "--type", "f16"], check=True, capture_output=True)
            found = list(differences(target, DATA / f"tiny-{name}.gguf"))
        bad += len(found)
        print(f"{name}: {'same' if not found else '; '.join(found)}", flush=True)
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
