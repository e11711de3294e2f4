# SPDX-License-Identifier: Apache-2.0
"""Turns the reference logits into a base file of llama-perplexity: llama.cpp measured with our ruler.

    llama_base.py REFERENCE.logits.f32 OUT.base
    llama-perplexity -m MODEL.gguf --kl-divergence --kl-divergence-base OUT.base -c 512

The format: "_logits_", then int32 ctx, vocabulary and chunks, the token ids, and per row a float32 scale and minimum
followed by one uint16 code per token (padded to an even count): log-probability = scale * code + minimum, floored 16
nats below the top, which makes the perplexity it prints for the base a little low on rare tokens.
"""

import argparse
import json
from pathlib import Path

import numpy as np

from kl import log_softmax


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("out", type=Path)
    arguments = parser.parse_args()
    facts = json.loads(Path(str(arguments.reference).replace(".logits.f32", ".ids.json")).read_text())
    width, context = facts["vocabulary"], facts["context"]
    ids = np.array(facts["ids"], np.int32)
    rows = np.memmap(arguments.reference, np.float32, "r").reshape(-1, width)
    with arguments.out.open("wb") as file:
        file.write(b"_logits_")
        np.array([context, width, len(ids) // context], np.int32).tofile(file)
        ids.tofile(file)
        for row in rows:
            values = log_softmax(row[None])[0]
            top = values.max()
            low = max(values.min(), top - 16)
            scale = (top - low) / 65535
            codes = np.zeros(4 + width + width % 2, np.uint16)
            codes[:4] = np.array([scale, low], np.float32).view(np.uint16)
            codes[4 : 4 + width] = np.where(values > low, np.round((values - low) / scale), 0)
            codes.tofile(file)


if __name__ == "__main__":
    main()
