# SPDX-License-Identifier: Apache-2.0
"""Saves tiny random models that embed or rank as their publishers do, and what they must give for some texts.

    tiny_embedders.py [--data tests/data] [--golden tests/golden]

Writes tests/data/embedders/<name>, folders with all that a publisher has beside the weights, and tests/golden/embedders.json:
ids from the tokenizers library; vectors of length 1 and scores from transformers in float64, of weights that halves hold
exactly. tests/golden/embedders_test.cc converts the folders and compares what the engine makes of the texts.
"""

import io
import json
import shutil
import tempfile
from pathlib import Path

import numpy as np
import sentencepiece as spm
import torch
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import AutoConfig, AutoModel, AutoModelForCausalLM, AutoModelForSequenceClassification
from transformers.utils import logging

from origin import origin
from tiny import parse_options
from tiny_models import byte_characters
from tokenizer_words import QWEN2

logging.set_verbosity_error()
logging.disable_progress_bar()
LETTERS = [chr(ord("a") + i) for i in range(26)]
TEXTS = ["a bad cab", "Deaf\tbee!", "Ｆull  width, and a much longer text of more words than the others have", "é"]
PAIRS = [("abba", "a bad cab"), ("abba", "deaf bee"), ("fade", "deaf bee"), ("who is it?", "no, yes")]
QUESTION = (
    '<|im_start|>system\nJudge whether the Document meets the requirements based on the Query and the Instruct provided. '
    'Note that the answer can only be "yes" or "no".<|im_end|>\n<|im_start|>user\n<Instruct>: Given a web search query, '
    "retrieve relevant passages that answer the query\n<Query>: {}\n<Document>: {}<|im_end|>\n<|im_start|>assistant\n"
    "<think>\n\n</think>\n\n"
)
SIZES = dict(hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=48)
ENCODER = SIZES | dict(hidden_dropout_prob=0.0, attention_probs_dropout_prob=0.0)
QWEN = SIZES | dict(num_key_value_heads=1, head_dim=16, max_position_embeddings=1024, tie_word_embeddings=True)
POOLINGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token", "last": "pooling_mode_lasttoken"}


def wordpiece(_):
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokens = special + LETTERS + ["##" + c for c in LETTERS] + list(",!?") + ["bad", "##af"]
    tokenizer = Tokenizer(models.WordPiece({t: i for i, t in enumerate(tokens)}, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", pair="[CLS] $A [SEP] $B:1 [SEP]:1", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(special)
    names = ["pad_token", "unk_token", "cls_token", "sep_token", "mask_token"]
    return tokenizer, dict(zip(names, special))


def charsmap():
    """The replacements that sentencepiece makes of a few rules; the usual ones are 240 kB."""
    with tempfile.TemporaryDirectory() as scratch:
        rules, model = Path(scratch) / "rules.tsv", io.BytesIO()
        rules.write_text("FF26\t46\n44\t64\n9\t20\n", encoding="utf-8")  # a full-width F, a capital D and the tabulator
        spm.SentencePieceTrainer.train(
            sentence_iterator=iter(LETTERS * 4), model_writer=model, model_type="unigram", vocab_size=len(LETTERS) + 4,
            normalization_rule_tsv=str(rules), minloglevel=2)
    return sentencepiece_model_pb2.ModelProto.FromString(model.getvalue()).normalizer_spec.precompiled_charsmap


def unigram(_):
    special = ["<s>", "<pad>", "</s>", "<unk>"]
    pieces = ["▁", ",", "!", "?", *LETTERS, "ab", "▁a", "▁bad", "ee", "th", "▁wo"]
    scores = np.random.default_rng(7).uniform(-9, -4, len(pieces)).round(4).tolist()
    tokenizer = Tokenizer(models.Unigram([(t, 0.0) for t in special] + list(zip(pieces, scores)) + [("<mask>", 0.0)], unk_id=3))
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Precompiled(charsmap()), normalizers.Replace(Regex(" {2,}"), " ")]
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace(prepend_scheme="always")]
    )
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> </s> $B </s>", special_tokens=[("<s>", 0), ("</s>", 2)]
    )
    tokenizer.add_special_tokens(special + [AddedToken("<mask>", lstrip=True)])
    names = ["bos_token", "pad_token", "eos_token", "unk_token"]
    return tokenizer, dict(zip(names, special), cls_token="<s>", sep_token="</s>", mask_token="<mask>")


def byte_level(ends_with):
    """As Qwen3's; its embedders put a token behind the text that is not the one that ends an answer."""
    tokens = [byte_characters()[b] for b in range(256)] + ["ye", "yes", "no"]
    special = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
    tokenizer = Tokenizer(models.BPE({t: i for i, t in enumerate(tokens)}, [("y", "e"), ("ye", "s"), ("n", "o")]))
    tokenizer.normalizer = normalizers.NFC()
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Split(Regex(QWEN2), "isolated"), pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(special)
    steps = [processors.ByteLevel(trim_offsets=False)]
    if ends_with:
        steps.append(
            processors.TemplateProcessing(
                single=f"$A {ends_with}", pair=f"$A {ends_with} $B {ends_with}",
                special_tokens=[(ends_with, tokenizer.token_to_id(ends_with))],
            )
        )
    tokenizer.post_processor = processors.Sequence(steps)
    return tokenizer, dict(eos_token="<|im_end|>", pad_token="<|endoftext|>", bos_token=None, add_bos_token=False)


def make_model(kind, model_type, config, vocabulary, seed):
    config = AutoConfig.for_model(model_type, **config, vocab_size=vocabulary)
    model = kind.from_config(config, attn_implementation="eager").eval()
    random = torch.Generator().manual_seed(seed)
    for name, weight in model.named_parameters():
        values = torch.randn(weight.shape, generator=random)
        if weight.ndim == 1:
            values = 0.2 * values + (1.0 if "norm" in name.lower() and name.endswith("weight") else 0.0)
        else:
            values *= 0.3 if "embed" in name else weight.shape[-1] ** -0.5
        weight.data = values.half().float()
    return model


def save(folder, model, tokenizer, settings, pooling):
    shutil.rmtree(folder, ignore_errors=True)
    model.half().save_pretrained(folder)
    tokenizer.save(str(folder / "tokenizer.json"), pretty=False)
    (folder / "tokenizer_config.json").write_text(json.dumps(settings) + "\n")
    if not pooling:
        return
    modules = [("Transformer", ""), ("Pooling", "1_Pooling"), ("Normalize", "2_Normalize")]
    (folder / "modules.json").write_text(json.dumps(
        [{"idx": i, "name": str(i), "path": path, "type": f"sentence_transformers.models.{kind}"}
         for i, (kind, path) in enumerate(modules)]) + "\n")
    (folder / "1_Pooling").mkdir()
    (folder / "1_Pooling/config.json").write_text(json.dumps({flag: mode == pooling for mode, flag in POOLINGS.items()}) + "\n")


def vector(model, ids, pooling):
    states = model(torch.tensor([ids])).last_hidden_state[0]
    pooled = {"mean": states.mean(0), "cls": states[0], "last": states[-1]}[pooling]
    return [round(v, 7) for v in torch.nn.functional.normalize(pooled, dim=0).tolist()]


def texts(model, tokenizer, pooling):
    for text in TEXTS:
        ids = tokenizer.encode(text).ids
        yield {"text": text, "ids": ids, "vector": vector(model, ids, pooling)}


def pairs(model, tokenizer):
    for query, document in PAIRS:
        is_asked = model.config.model_type == "qwen3"
        ids = (tokenizer.encode(QUESTION.format(query, document)) if is_asked else tokenizer.encode(query, document)).ids
        logits = model(torch.tensor([ids])).logits[0]
        if logits.shape[-1] == 1:
            score = torch.sigmoid(logits.flatten()[-1])
        else:
            score = torch.softmax(logits[-1, [tokenizer.token_to_id(word) for word in ("yes", "no")]], 0)[0]
        yield {"query": query, "document": document, "score": round(score.item(), 7)}


@torch.no_grad()
def main():
    arguments = parse_options(__doc__)
    xlm_roberta = ENCODER | dict(max_position_embeddings=130, pad_token_id=1, type_vocab_size=1)
    classifier = dict(num_labels=1, pad_token_id=256)
    cases = [  # name, class, model_type, settings, tokenizer, argument of it, pooling (none: ranks)
        ("bert", AutoModel, "bert", ENCODER | dict(max_position_embeddings=128), wordpiece, None, "mean"),
        ("nomic-bert", AutoModel, "nomic_bert", ENCODER | dict(max_position_embeddings=128), wordpiece, None, "mean"),
        ("xlm-roberta", AutoModel, "xlm-roberta", xlm_roberta, unigram, None, "cls"),
        ("xlm-roberta-reranker", AutoModelForSequenceClassification, "xlm-roberta", xlm_roberta | dict(num_labels=1), unigram,
         None, None),
        ("qwen3-embedding", AutoModel, "qwen3", QWEN, byte_level, "<|endoftext|>", "last"),
        ("qwen3-reranker", AutoModelForCausalLM, "qwen3", QWEN, byte_level, None, None),
        ("qwen3-classifier", AutoModelForSequenceClassification, "qwen3", QWEN | classifier, byte_level, None, None),
    ]
    golden = {"origin": origin(), "embedders": {}, "rankers": {}}
    for seed, (name, kind, model_type, config, make_tokenizer, argument, pooling) in enumerate(cases, start=500):
        tokenizer, settings = make_tokenizer(argument)
        model = make_model(kind, model_type, config, tokenizer.get_vocab_size(), seed)
        folder = arguments.data / "embedders" / name
        save(folder, model, tokenizer, settings, pooling)
        model = kind.from_pretrained(folder, dtype=torch.float64, attn_implementation="eager").eval()
        if pooling:
            golden["embedders"][name] = list(texts(model, tokenizer, pooling))
        else:
            golden["rankers"][name] = list(pairs(model, tokenizer))
            print(name, [pair["score"] for pair in golden["rankers"][name]])
    (arguments.golden / "embedders.json").write_text(json.dumps(golden, ensure_ascii=False, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main()
