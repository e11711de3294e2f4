# SPDX-License-Identifier: Apache-2.0
"""Writes the expected values of one real model: tests/golden/<name>.json, and the full logits for kl.py.

    golden.py MODEL.gguf [--name NAME] [--logits DIR] [--engine transformers|float_reference] [--threads N]

Greedy answers with their margins, the perplexity of tests/data/text_en.txt, log-probabilities of its first 512 tokens.
--logits also writes DIR/<name>.logits.f32 and DIR/<name>.ids.json, too large to be kept in the repository.
"""

import argparse
import hashlib
import json
import math
from pathlib import Path

import numpy as np
import torch
from transformers import DynamicCache

from float_reference import Cache, FloatModel
from origin import origin
from tokenizer_reference import ReferenceTokenizer
from transformers_reference import load_transformers

ROOT = Path(__file__).resolve().parents[2]
CONTEXT, GREEDY_TOKENS = 512, 64


class Transformers:
    def __init__(self, path):
        self.model = load_transformers(path)

    @torch.no_grad()
    def continuations(self, prompts):
        """Greedy ids [prompts, GREEDY_TOKENS] and margins, all prompts together, padded on the left."""
        longest = max(map(len, prompts))
        ids = torch.tensor([[0] * (longest - len(p)) + p for p in prompts])
        mask = torch.tensor([[0] * (longest - len(p)) + [1] * len(p) for p in prompts])
        state, steps, margins = DynamicCache(config=self.model.config), [], []
        for _ in range(GREEDY_TOKENS):
            position = (mask.cumsum(-1) - 1).clamp(min=0)[:, -ids.shape[1] :]
            out = self.model(
                ids, attention_mask=mask, position_ids=position, cache=state, use_cache=True, logits_to_keep=1
            )
            best = out.logits[:, -1].topk(2)
            ids = best.indices[:, :1]
            mask = torch.cat([mask, torch.ones_like(ids)], 1)
            steps.append(ids[:, 0])
            margins.append(best.values[:, 0] - best.values[:, 1])
        return torch.stack(steps, 1).tolist(), torch.stack(margins, 1).tolist()

    @torch.no_grad()
    def logits(self, ids, first):
        """Logits at positions first … of a fresh sequence."""
        return self.model(torch.tensor([ids]), use_cache=False, logits_to_keep=len(ids) - first).logits[0]


class Own:
    def __init__(self, path):
        self.model = FloatModel(path)

    def continuations(self, prompts):
        """Greedy ids [prompts, GREEDY_TOKENS] and margins, one prompt after the other."""
        steps, margins = [], []
        for prompt in prompts:
            cache, ids, gaps, feed = Cache(self.model.layers), [], [], prompt
            for _ in range(GREEDY_TOKENS):
                best = self.model.forward(feed, cache, last_only=True)[0].topk(2)
                feed = best.indices[:1].tolist()
                ids += feed
                gaps.append((best.values[0] - best.values[1]).item())
            steps.append(ids)
            margins.append(gaps)
        return steps, margins

    def logits(self, ids, first):
        return self.model.forward(ids)[first:]


def token_digests(tokenizer):
    """Digests of the ids of whole files (the beginning token first where the model adds one) and their first ids."""
    result = {}
    for name in ("tests/data/text_en.txt", "tests/data/tokenizer_corpus.txt"):
        data = (ROOT / name).read_bytes()
        ids = tokenizer.encode(data.decode())
        result[name] = {
            "sha256": hashlib.sha256(data).hexdigest(),
            "tokens": len(ids),
            "ids_sha256": hashlib.sha256(" ".join(map(str, ids)).encode()).hexdigest(),
            "first": ids[:200],
        }
    return result


def answers(engine, tokenizer):
    """Greedy answers, cut after an ending token, with best minus second logit at each step."""
    prompts = json.loads((ROOT / "tests/data/prompts.json").read_text())
    rows = [{"kind": "raw", "prompt": text, "prompt_ids": tokenizer.encode(text)} for text in prompts["raw"]]
    for text in prompts["chat"] if tokenizer.template else []:
        rendered = tokenizer.render([{"role": "user", "content": text}])
        ids = tokenizer.encode(rendered, recognise_control=True)
        rows.append({"kind": "chat", "prompt": text, "rendered": rendered, "prompt_ids": ids})
    for row, ids, margins in zip(rows, *engine.continuations([row["prompt_ids"] for row in rows])):
        ends = [i for i, token in enumerate(ids) if token in tokenizer.ends]
        length = ends[0] + 1 if ends else len(ids)
        row.update(ids=ids[:length], margins=[round(m, 4) for m in margins[:length]], ended=bool(ends))
    return rows


def perplexity(engine, tokenizer, text, chunks, logits_file):
    """As llama-perplexity: positions ctx/2 … ctx-2 of each chunk predict the tokens ctx/2+1 … ctx-1."""
    ids = tokenizer.encode(text)
    half, losses = CONTEXT // 2, []
    chunks = min(chunks, len(ids) // CONTEXT)
    for chunk in range(chunks):
        part = ids[chunk * CONTEXT : (chunk + 1) * CONTEXT]
        if tokenizer.beginning is not None:
            part[0] = tokenizer.beginning
        logits = engine.logits(part, half)[:-1]
        if logits_file:
            logits.numpy().astype(np.float32).tofile(logits_file)
        chosen = logits.double().log_softmax(-1).gather(1, torch.tensor(part[half + 1 :])[:, None])
        losses += (-chosen[:, 0]).tolist()
        print(f"  chunk {chunk + 1}: perplexity {math.exp(sum(losses) / len(losses)):.4f}", flush=True)
    return ids[: CONTEXT * chunks], losses


def log_probabilities(engine, ids):
    logits = engine.logits(ids[:CONTEXT], 0)[:-1].double().log_softmax(-1)
    return logits.gather(1, torch.tensor(ids[1:CONTEXT])[:, None])[:, 0].tolist()


def write(path, result):
    path.write_text(json.dumps(result, separators=(",", ":"), ensure_ascii=False) + "\n")
    print(f"{path.relative_to(ROOT)}: {path.stat().st_size} bytes, perplexity {result['perplexity']['value']}")


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path)
    parser.add_argument("--name")
    parser.add_argument("--logits", type=Path)
    parser.add_argument("--chunks", type=int, default=8, help="chunks of text for the perplexity")
    parser.add_argument("--engine", choices=("transformers", "float_reference"), default="transformers")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--only", choices=("texts", "answers"), help="renew this part of an existing file")
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    name = arguments.name or arguments.model.stem
    tokenizer = ReferenceTokenizer(arguments.model)
    path = ROOT / "tests/golden" / f"{name}.json"
    if arguments.only == "texts":
        return write(path, json.loads(path.read_text()) | {"texts": token_digests(tokenizer)})
    if arguments.only == "answers":
        engine = Transformers(arguments.model)
        return write(path, json.loads(path.read_text()) | {"answers": answers(engine, tokenizer)})
    text = (ROOT / "tests/data/text_en.txt").read_text()
    with arguments.model.open("rb") as file:
        digest = hashlib.file_digest(file, "sha256").hexdigest()

    probe = tokenizer.encode(text)[:64]
    other = FloatModel(arguments.model).forward(probe)
    engine = Transformers(arguments.model) if arguments.engine == "transformers" else Own(arguments.model)
    disagreement = (engine.logits(probe, 0) - other).abs().max().item()
    del other
    print(f"{name}: transformers and float_reference.py differ by at most {disagreement:.2e} on 64 tokens", flush=True)
    if disagreement > 0.01:
        raise SystemExit("The two references disagree: find out which is wrong before you write expected values.")

    logits_file = None
    if arguments.logits:
        arguments.logits.mkdir(parents=True, exist_ok=True)
        logits_file = (arguments.logits / f"{name}.logits.f32").open("wb")
    ids, losses = perplexity(engine, tokenizer, text, arguments.chunks, logits_file)
    if logits_file:
        logits_file.close()
        facts = {"context": CONTEXT, "vocabulary": len(tokenizer.tokens), "scored": len(losses), "ids": ids}
        (arguments.logits / f"{name}.ids.json").write_text(json.dumps(facts))

    result = {
        "origin": origin(model=name, sha256=digest, references_differ_by=disagreement, engine=arguments.engine),
        "text": "tests/data/text_en.txt",
        "texts": token_digests(tokenizer),
        "perplexity": {
            "context": CONTEXT,
            "chunks": len(ids) // CONTEXT,
            "value": round(math.exp(sum(losses) / len(losses)), 5),
            "log_probabilities": [round(-loss, 4) for loss in losses],
        },
        "first_512": {"ids": ids[:CONTEXT], "log_probabilities": [round(v, 4) for v in log_probabilities(engine, ids)]},
        "answers": answers(engine, tokenizer),
    }
    write(path, result)


if __name__ == "__main__":
    main()
