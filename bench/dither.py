#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Takes the weights of a dequantised model off the lattice that they lie on, for a fair comparison of quantisers.

  bench/dither.py LATTICE.gguf OUT.gguf [--seed N]

Weights that came from a quantised file are whole multiples of few scales, which some types can say again exactly and
some cannot. This adds uniform noise of one step (half a step to each side), which is what the first quantisation lost,
to every matrix of F32 or F16. A step is the least difference of two of the 32 weights of a block, of those above 1/1000
of the largest. The same seed gives the same file. Needs the package gguf.
"""

import argparse
import shutil

import gguf
import numpy as np

BLOCK = 32
AT_ONCE = 1 << 24  # weights
LEAST_STEP = 1e-3  # of the largest of its block


def dithered(weights, random):
    x = weights.astype(np.float32).reshape(-1, BLOCK)
    gaps = np.diff(np.sort(x, axis=1), axis=1)
    gaps[gaps < LEAST_STEP * np.abs(x).max(axis=1, keepdims=True)] = np.inf
    step = gaps.min(axis=1, keepdims=True)
    step[~np.isfinite(step)] = 0
    return x + step * (random.random(x.shape, dtype=np.float32) - np.float32(0.5))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("lattice")
    parser.add_argument("out")
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    shutil.copy(arguments.lattice, arguments.out)
    random = np.random.default_rng(arguments.seed)
    floats = (gguf.GGMLQuantizationType.F32, gguf.GGMLQuantizationType.F16)
    for tensor in gguf.GGUFReader(arguments.out, "r+").tensors:
        if len(tensor.shape) < 2 or tensor.tensor_type not in floats:
            continue
        flat = tensor.data.reshape(-1)
        for at in range(0, flat.size, AT_ONCE):
            part = flat[at : at + AT_ONCE]
            part[:] = dithered(part, random).reshape(-1)


if __name__ == "__main__":
    main()
