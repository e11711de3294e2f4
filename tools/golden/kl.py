# SPDX-License-Identifier: Apache-2.0
"""Compares a program's logits with the reference's: Kullback-Leibler divergence, and how often the tops agree.

    kl.py REFERENCE.logits.f32 OURS.logits.f32 [--json]

Both files are bare float32 rows [scored positions, vocabulary]: of each chunk of ctx tokens of the same text the
positions ctx/2 … ctx-2, chunk after chunk (255 rows a chunk for ctx 512), as `golden.py --logits` and `nanomind
perplexity --logits` write them; ours may have fewer chunks. The vocabulary is read from REFERENCE.ids.json. Logits or
log-probabilities: a constant per row cancels.
"""

import argparse
import json
from pathlib import Path

import numpy as np

ROWS = 64  # rows in memory at a time


def log_softmax(rows):
    rows = rows.astype(np.float64)
    rows -= rows.max(-1, keepdims=True)
    return rows - np.log(np.exp(rows).sum(-1, keepdims=True))


def compare(reference, ours):
    """Divergence KL(reference || ours) in nats of each row of ours, and whether the most likely token is the same."""
    divergence, same = [], []
    for at in range(0, len(ours), ROWS):
        q = log_softmax(ours[at : at + ROWS])
        p = log_softmax(reference[at : at + len(q)])
        divergence.append((np.exp(p) * (p - q)).sum(-1))
        same.append(p.argmax(-1) == q.argmax(-1))
    return np.concatenate(divergence), np.concatenate(same)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("reference", type=Path)
    parser.add_argument("ours", type=Path)
    parser.add_argument("--json", action="store_true")
    arguments = parser.parse_args()
    facts = json.loads(Path(str(arguments.reference).replace(".logits.f32", ".ids.json")).read_text())
    width = facts["vocabulary"]
    for path in (arguments.reference, arguments.ours):
        if path.stat().st_size == 0 or path.stat().st_size % (4 * width):
            raise SystemExit(f"{path} has {path.stat().st_size} bytes, which is no number of float32 rows of {width}.")
    reference = np.memmap(arguments.reference, np.float32, "r").reshape(-1, width)
    ours = np.memmap(arguments.ours, np.float32, "r").reshape(-1, width)
    if len(ours) > len(reference):
        raise SystemExit(f"{arguments.ours} has {len(ours)} rows, the reference only {len(reference)}: another text?")
    divergence, same = compare(reference, ours)
    result = {
        "positions": len(ours),
        "mean_kl": float(divergence.mean()),
        "median_kl": float(np.median(divergence)),
        "p99_kl": float(np.quantile(divergence, 0.99)),
        "max_kl": float(divergence.max()),
        "same_top": float(same.mean()),
    }
    if arguments.json:
        print(json.dumps(result))
    else:
        print(
            f"{result['positions']} positions of {len(reference)}: mean KL {result['mean_kl']:.6f}, median "
            f"{result['median_kl']:.6f}, 99 % {result['p99_kl']:.6f}, max {result['max_kl']:.6f}; "
            f"same top {100 * result['same_top']:.2f} %"
        )


if __name__ == "__main__":
    main()
