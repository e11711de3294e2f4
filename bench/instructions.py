#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Instructions per token of the tiny models, held against ceilings: catches a slower program where clocks are too noisy to.

  bench/instructions.py --program build/release/nanomind [--update]

Valgrind counts the instructions of two runs that differ only in their numbers of tokens; the difference belongs to the tokens. One
thread, and kernels that valgrind can run, so that counts repeat exactly. Ceilings are in tests/instructions.json, 5 % above what
was counted when they were written; --update writes them again.
"""
import argparse
import json
import os
import pathlib
import platform
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
CEILINGS = ROOT / "tests" / "instructions.json"
MODELS = ("tiny-llama", "tiny-qwen2", "tiny-gemma3")
ISAS = {"x86_64": "avx2", "aarch64": "neon"}  # valgrind 3.19 knows no AVX-512
MARGIN = 0.05
SHORT, LONG = 64, 128  # tokens, of answers and prompts; the longer prompt has twice the words of the shorter


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--program", required=True)
    parser.add_argument("--update", action="store_true", help="write the ceilings from what is counted now")
    options = parser.parse_args()
    isa = ISAS.get(platform.machine())
    if isa is None:
        print(f"skipped: there are no ceilings for {platform.machine()}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        environment = {"PATH": os.environ["PATH"], "HOME": folder, "NANOMIND_PACKED": folder, "NANOMIND_ISA": isa}
        counted = {model: count_model(options.program, model, environment) for model in MODELS}
    if options.update:
        stored = json.loads(CEILINGS.read_text()) if CEILINGS.exists() else {}
        stored[isa] = {model: {what: round(count * (1 + MARGIN)) for what, count in counts.items()} for model, counts in counted.items()}
        CEILINGS.write_text(json.dumps(stored, indent=2) + "\n")
    ceilings = json.loads(CEILINGS.read_text()).get(isa)
    if ceilings is None:
        print(f"skipped: there are no ceilings for {isa}; write them with --update")
        return 0
    wrong = 0
    for model, counts in counted.items():
        for what, count in counts.items():
            ceiling = ceilings[model][what]
            verdict = "OVER" if count > ceiling else "ok" if count > ceiling / 2 else "UNDER"
            wrong += verdict != "ok"
            print(f"{verdict:4} {model:12} {isa} {what:15} {count:8.0f} instructions, ceiling {ceiling} ({count / ceiling - 1:+.1%})")
    if wrong:
        print("The instructions per token have changed: more of them (OVER), or less than half (UNDER: a leap, or an answer that ended\n"
              "early and was not measured). Where that is as wanted, set the ceilings anew and commit tests/instructions.json:\n"
              f"  bench/instructions.py --program {options.program} --update", file=sys.stderr)
    return wrong > 0


def count_model(program, model, environment):
    path = ROOT / "tests" / "data" / f"{model}.gguf"
    words = (ROOT / "tests" / "data" / "text_en.txt").read_text().split()
    prompts = [" ".join((words[:24] * 2)[:24 * times]) for times in (1, 2)]
    tokens = [len(json.loads(subprocess.run([program, "tokenize", path, "--json"], input=prompt, env=environment, check=True,
                                            capture_output=True, text=True).stdout)["ids"]) for prompt in prompts]

    def count(prompt, answer):
        command = [program, "run", path, prompt, "--raw", "-t", "1", "--temp", "0", "--ctx", "256", "-n", str(answer)]
        subprocess.run(command, env=environment, check=True, capture_output=True)  # packs, the first time
        report = subprocess.run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null", *command], env=environment,
                                check=True, capture_output=True).stderr.decode(errors="replace")
        return int(re.search(r"Collected : (\d+)", report).group(1))

    return {"answer token": (count(words[0], LONG) - count(words[0], SHORT)) / (LONG - SHORT),
            "prompt token": (count(prompts[1], 1) - count(prompts[0], 1)) / (tokens[1] - tokens[0])}


if __name__ == "__main__":
    sys.exit(main())
