#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Pictures beside llama.cpp on the same files, cores and minute: the two programs run in turn, A B A B ..., and the ratios of medians
and of bests are printed, with our share of what the machine could do.

  bench/peer_vision.py --program build/release/nanomind [--peer FOLDER] --image FILE [-r 5] [-t 2] [--write docs/numbers.md]
      --model MODEL VISION...

MODEL is a GGUF file or a name that `nanomind show` knows, VISION a file with a tower and a projector for it (bench/random_vision.py makes
some). The peer is the llama-mtmd-cli of --peer, of PATH or of build/peer, as in peer.py.

encode       all tiles of the picture, from pixels to rows
first token  ours from the picture's file to the first token; the peer's is the sum of what it says of encoding and of reading the
             prompt, without decoding and cutting the picture, which it does not say
memory       the most that the whole program had resident, mapped files included, while it answered with one token

--write puts the table between the markers "peer vision" of a Markdown file. Where other programs are about, who waits for its other
thread is hit hardest: --cpu compares the processor time that one picture more takes on one thread (cutting, encoding and reading its
rows), which they hardly change.
"""
import argparse
import json
import os
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import marked
import peer

CONTEXT = 8192  # tokens: what ours takes where it is not told
QUESTION = "What is in the picture?"


def ours(options, vision):
    command = [options.program, "bench", options.model, "--mmproj", vision, "--image", options.image, "--json", "-r", "1", "-p", "1",
               "-n", "1", "-t", str(options.threads)]  # fmt: skip
    return json.loads(peer.run(command))["picture"]


def their_command(options, program, vision):
    return [program[0], "-m", options.model, "--mmproj", vision, "--image", options.image, "-p", QUESTION, "-n", "1", "-t",
            str(options.threads), "-c", str(CONTEXT), "--temp", "0", "-lv", "4"]  # fmt: skip


def theirs(options, program, vision):
    """{encode_ms, first_token_ms}"""
    done = subprocess.run(their_command(options, program, vision), env=program[1], stdin=subprocess.DEVNULL, capture_output=True, text=True)
    text = done.stdout + done.stderr
    encode = [int(ms) for ms in re.findall(r"(?:batch encoding done|slice encoded) in (\d+) ms", text)]
    prompt = re.search(r"prompt eval time = +([\d.]+) ms", text)
    if done.returncode != 0 or not encode or not prompt:
        sys.exit(f"{' '.join(their_command(options, program, vision))} failed or said nothing of times:\n{text[-3000:]}")
    return {"encode_ms": sum(encode), "first_token_ms": sum(encode) + float(prompt[1])}


def ratio(mine, others, what):
    """As times faster: (of medians, of bests)"""
    values = [[turn[what] for turn in turns] for turns in (others, mine)]
    return statistics.median(values[0]) / statistics.median(values[1]), min(values[0]) / min(values[1])


def compare(options, program, vision):
    """Prints lines, and returns the cells of a table's row."""
    mine, others = [], []
    for turn in range(options.repetitions + 1):
        pair = ours(options, vision), theirs(options, program, vision)
        if turn > 0:  # the first pair packs the weights and warms the page cache
            mine, others = [*mine, pair[0]], [*others, pair[1]]
    name = re.sub(r"^mmproj-|\.gguf$", "", pathlib.Path(vision).name)
    tiles = mine[0]["tiles"]
    cells = [name, f"{len(tiles)} of {tiles[0]['width']} x {tiles[0]['height']}"]
    for what in ("encode_ms", "first_token_ms"):
        medians, bests = ratio(mine, others, what)
        own, other = (statistics.median(turn[what] for turn in turns) for turns in (mine, others))
        cells.append(f"{medians:.2f} ({bests:.2f}), {own:.0f} ms")
        print(f"{name:28} {what:16} ours {own:8.1f} ({min(t[what] for t in mine):.1f} best)  peer {other:8.1f} "
              f"({min(t[what] for t in others):.1f} best)  ratio of medians {medians:.2f}, of bests {bests:.2f}", flush=True)  # fmt: skip
    share = statistics.median(turn["share"] for turn in mine)
    own = peer.peak_mb([options.program, "run", options.model, QUESTION, "--mmproj", vision, "--image", options.image, "--no-picture-cache", "--ctx", str(CONTEXT),
                        "-n", "1", "-t", str(options.threads)], None)  # fmt: skip
    other = peer.peak_mb(their_command(options, program, vision), program[1])
    print(f"{name:28} {share:.0%} of the limit; memory: ours {own:.0f} MB, peer {other:.0f} MB", flush=True)
    return [*cells, f"{share:.0%}".replace("%", " %"), f"{own:.0f} to {other:.0f}"]


def cpu_ms(command, environment):
    child = subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(child.pid, 0)
    child.returncode = os.waitstatus_to_exitcode(status)
    if child.returncode != 0:
        sys.exit(f"{' '.join(command)} failed with {child.returncode}")
    return 1000 * (usage.ru_utime + usage.ru_stime)


def compare_cpu(options, program, vision):
    """Of a question about two pictures, less that of a question about one."""
    with tempfile.TemporaryDirectory() as folder:
        pictures = [options.image, str(pathlib.Path(folder) / pathlib.Path(options.image).name)]
        content = pathlib.Path(options.image).read_bytes()
        pathlib.Path(pictures[1]).write_bytes(content + b"\0")  # the same picture in another file, so that it is read anew

        def one_more(command, environment):
            return cpu_ms(command(pictures), environment) - cpu_ms(command(pictures[:1]), environment)

        def own(images):
            files = [word for image in images for word in ("--image", image)]
            return [options.program, "run", options.model, QUESTION, "--mmproj", vision, *files, "--no-picture-cache", "-n", "1", "-t", "1"]

        def other(images):
            return [program[0], "-m", options.model, "--mmproj", vision, "--image", ",".join(images), "-p", QUESTION, "-n", "1", "-t", "1",
                    "-c", str(CONTEXT), "--temp", "0", "--no-warmup"]  # fmt: skip

        cpu_ms(own(pictures[:1]), None)  # packs the weights
        pairs = [(one_more(own, None), one_more(other, program[1])) for _ in range(options.repetitions)]
    mine, others = zip(*pairs, strict=True)
    medians, bests = statistics.median(others) / statistics.median(mine), min(others) / min(mine)
    print(f"{pathlib.Path(vision).name:40} processor time: ours {statistics.median(mine):.0f} ms, peer {statistics.median(others):.0f} ms, "
          f"ratio of medians {medians:.2f}, of bests {bests:.2f}", flush=True)  # fmt: skip


def write_table(path, rows):
    titles = ["file", "tiles", "encode", "first token", "share", "MB"]
    lines = ["| " + " | ".join(cells) + " |" for cells in (titles, *rows)]
    lines.insert(1, "|---|---|" + "--:|" * (len(titles) - 2))
    marked.write(path, "peer vision", lines)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--peer", help="a llama-mtmd-cli program, or a folder that has it")
    parser.add_argument("--image", required=True, metavar="FILE")
    parser.add_argument("--model", required=True)
    parser.add_argument("-r", "--repetitions", type=int, default=5)
    parser.add_argument("-t", "--threads", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--cpu", action="store_true", help="compare processor time of one thread instead")
    parser.add_argument("--write", metavar="FILE", help="Markdown file with a table between markers")
    parser.add_argument("vision", nargs="+", metavar="VISION")
    options = parser.parse_args()
    program = peer.find_peer(options.peer, "llama-mtmd-cli")
    options.model = peer.model_path(options.program, options.model)
    if options.cpu:
        for vision in options.vision:
            compare_cpu(options, program, vision)
        return
    rows = [compare(options, program, vision) for vision in options.vision]
    if options.write:
        write_table(options.write, rows)


if __name__ == "__main__":
    main()
