#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What the default precision costs a picture's rows: their cosines with those of `--precision high`, the worst and the mean.

  bench/picture_precision.py --program build/release/nanomind --image FILE --model MODEL VISION...

MODEL is a GGUF file or a name that `nanomind show` knows, VISION a file with a tower and a projector for it (bench/random_vision.py makes
some). Rows are read from the cache that `run` leaves of the pictures that it encoded. Needs numpy.
"""
import argparse
import json
import os
import pathlib
import tempfile

import numpy

import peer

HEADER_BYTES = 88  # of a file of src/runtime/picture_cache.cc


def rows(options, vision, precision, width):
    """[rows, width]"""
    with tempfile.TemporaryDirectory() as cache:
        peer.run([options.program, "run", options.model, "--mmproj", vision, "--precision", precision, "-i", options.image, "-n", "1",
                  "--temp", "0", "?"], env={**os.environ, "XDG_CACHE_HOME": cache})  # fmt: skip
        file, = pathlib.Path(cache).rglob("*.rows")
        return numpy.frombuffer(file.read_bytes()[HEADER_BYTES:], numpy.float32).reshape(-1, width).astype(float)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--image", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("vision", nargs="+", metavar="VISION")
    options = parser.parse_args()
    width = json.loads(peer.run([options.program, "show", options.model, "--json"]))["width"]
    for vision in options.vision:
        exact, fast = (rows(options, vision, precision, width) for precision in ("high", "fast"))
        cosines = (exact * fast).sum(1) / numpy.sqrt((exact**2).sum(1) * (fast**2).sum(1))
        print(f"{pathlib.Path(vision).stem:40} {len(exact):5} rows, cosine {cosines.min():.6f} at worst, {cosines.mean():.6f} in the mean",
              flush=True)


if __name__ == "__main__":
    main()
