# SPDX-License-Identifier: Apache-2.0
"""Writes the expected ids of every text in tests/data/tokenizer_corpus.txt into tests/data/tokenizer/.

Needs: pip install gguf tokenizers sentencepiece protobuf regex, and a Python whose unicodedata is of version 14 (3.11)

  tokenizer_ids.py small               trains small vocabularies on the corpus, so that tests need no model
  tokenizer_ids.py real NAME MODEL.gguf    uses the vocabulary of a model's file

The ids come from the libraries that models are trained with: `tokenizers` for byte-level BPE, with the pre-tokenizers of
the published tokenizer.json files, and `sentencepiece`, given the pieces, scores and types as its own model format.
Byte-level BPE of Qwen: the published file also normalises to NFC; a GGUF does not say so and bytes are kept as they are,
so no normaliser is used here.

One line per text: the number of ids and the FNV-1a hash (64 bits, hexadecimal) of the ids as little-endian int32; "-" for
texts that are not UTF-8, which these libraries do not take. WordPiece also leaves out texts with characters younger than
Unicode 14, which the tables of Debian 12 do not know.
"""

import io
import pathlib
import struct
import sys
import unicodedata

from escape import escape, unescape

DATA = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data"
QWEN2 = (r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*"
         r"|\s*[\r\n]+|\s+(?!\S)|\s+")
NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = 1, 2, 3, 4, 5, 6


def texts():
    for line in (DATA / "tokenizer_corpus.txt").read_text("utf-8").split("\n")[:-1]:
        yield unescape(line)


def text_or_none(data):
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError:
        return None


def is_young(text):
    import regex
    assert unicodedata.unidata_version == "14.0.0"
    return any(unicodedata.category(c) == "Cn" and regex.match(r"\P{Cn}", c) for c in text)


def hash_ids(ids):
    value = 0xCBF29CE484222325
    for byte in struct.pack(f"<{len(ids)}i", *ids):
        value = (value ^ byte) * 0x100000001B3 % 2**64
    return value


def write_ids(name, encode):
    with open(DATA / "tokenizer" / f"{name}.ids", "w") as out:
        for data in texts():
            text = text_or_none(data)
            ids = encode(text) if text is not None else None
            out.write("-\n" if ids is None else f"{len(ids)} {hash_ids(ids):016x}\n")


def write_vocabulary(name, tokens, types, scores, merges):
    """First line: numbers of tokens and merges. Then "type score spelling" per token and one line per merge."""
    with open(DATA / "tokenizer" / f"{name}.vocabulary", "w", encoding="utf-8") as out:
        out.write(f"{len(tokens)} {len(merges)}\n")
        for token, kind, score in zip(tokens, types, scores):
            out.write(f"{kind} {score:.9g} {escape(token.encode())}\n")
        out.writelines(escape(merge.encode()) + "\n" for merge in merges)


def pre_tokenizer(name):
    from tokenizers import Regex, pre_tokenizers
    if name == "smollm":
        return pre_tokenizers.Sequence([pre_tokenizers.Digits(individual_digits=True),
                                        pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)])
    return pre_tokenizers.Sequence([pre_tokenizers.Split(Regex(QWEN2), behavior="isolated"),
                                    pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)])


def bpe_encoder(tokens, types, merges, pre):
    from tokenizers import AddedToken, Tokenizer, models
    vocabulary = {token: i for i, token in enumerate(tokens)}
    tokenizer = Tokenizer(models.BPE(vocab=vocabulary, merges=[tuple(m.split(" ", 1)) for m in merges]))
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    tokenizer.add_tokens([AddedToken(t, normalized=False) for t, kind in zip(tokens, types) if kind == USER_DEFINED])
    return lambda text: tokenizer.encode(text, add_special_tokens=False).ids


def sentencepiece_encoder(tokens, types, scores):
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    model = sentencepiece_model_pb2.ModelProto()
    model.trainer_spec.model_type = 2  # BPE
    model.trainer_spec.byte_fallback = True
    model.trainer_spec.vocab_size = len(tokens)
    unknown = next((i for i, t in enumerate(tokens) if t == "<unk>"), 0)
    model.trainer_spec.unk_id = unknown
    model.normalizer_spec.name = "identity"
    model.normalizer_spec.add_dummy_prefix = False
    model.normalizer_spec.remove_extra_whitespaces = False
    for i, (token, kind, score) in enumerate(zip(tokens, types, scores)):
        piece = token.replace(" ", "\u2581") if kind == USER_DEFINED else token
        model.pieces.add(piece=piece, score=score, type=UNKNOWN if i == unknown else kind)
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.SerializeToString())
    return lambda text: processor.encode(text)


def small_bpe(name, pre):
    from tokenizers import Tokenizer, models, trainers
    import json
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizer(pre)
    from tokenizers.pre_tokenizers import ByteLevel
    trainer = trainers.BpeTrainer(vocab_size=1500, initial_alphabet=ByteLevel.alphabet(), show_progress=False)
    tokenizer.train_from_iterator((t for t in map(text_or_none, texts()) if t), trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    merges = [" ".join(m) for m in model["merges"]]
    types = [NORMAL] * len(tokens)
    for token, kind in (("<|endoftext|>", CONTROL), ("<|im_start|>", CONTROL), ("<|im_end|>", CONTROL),
                        ("<tool_call>", USER_DEFINED), ("</tool_call>", USER_DEFINED)):
        tokens.append(token)
        types.append(kind)
    write_vocabulary(name, tokens, types, [0] * len(tokens), merges)
    write_ids(name, bpe_encoder(tokens, types, merges, pre))


def small_sentencepiece(name):
    import sentencepiece
    model = io.BytesIO()
    sentences = [t for t in map(text_or_none, texts()) if t and "\x00" not in t]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, vocab_size=1500, model_type="bpe", byte_fallback=True,
        character_coverage=0.985, normalization_rule_name="identity", add_dummy_prefix=False,
        remove_extra_whitespaces=False, minloglevel=2, num_threads=1,
        user_defined_symbols=["<h1>", "</h1>", "<s1>", "\n", "\n\n", "\t", "\u2581\u2581", "\u2581\u2581\u2581", "[multimodal]"])
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    from sentencepiece import sentencepiece_model_pb2
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    types = [piece.type for piece in proto.pieces]
    # As converters write them: what is always recognised is spelled with plain spaces.
    tokens = [p.piece.replace("\u2581", " ") if p.type == USER_DEFINED else p.piece for p in proto.pieces]
    scores = [piece.score for piece in proto.pieces]
    write_vocabulary(name, tokens, types, scores, [])
    write_ids(name, lambda text: processor.encode(text))


def small_character_bpe(name):
    """Gemma's kind: spaces are escaped, merges cross them, and rare characters are spelled in bytes."""
    import json
    from tokenizers import Tokenizer, models, normalizers, trainers
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
    tokenizer.normalizer = normalizers.Replace(" ", "\u2581")
    special = ["<pad>", "<eos>", "<bos>", "<unk>"] + [f"<0x{byte:02X}>" for byte in range(256)]
    trainer = trainers.BpeTrainer(vocab_size=2000, special_tokens=special, limit_alphabet=350, show_progress=False)
    # As in the vocabularies that models have, line ends are no part of other words, and no merge leads to a special token.
    lines = (line for t in map(text_or_none, texts()) if t for line in t.split("\n") if "<" not in line)
    tokenizer.train_from_iterator(lines, trainer)
    model = json.loads(tokenizer.to_str())["model"]
    tokens = [t for t, _ in sorted(model["vocab"].items(), key=lambda item: item[1])]
    merges = [" ".join(m) for m in model["merges"]]
    types = [CONTROL] * 3 + [UNKNOWN] + [BYTE] * 256 + [NORMAL] * (len(tokens) - 260)
    write_vocabulary(name, tokens, types, [0] * len(tokens), merges)
    plain = Tokenizer(models.BPE(vocab=model["vocab"], merges=[tuple(m) for m in model["merges"]], byte_fallback=True,
                                 unk_token="<unk>", fuse_unk=True))
    plain.normalizer = tokenizer.normalizer
    write_ids(name, lambda text: plain.encode(text, add_special_tokens=False).ids)


def small_unigram(name):
    """With the replacements, the escaped spaces and the prefix that T5 and XLM-RoBERTa have. Texts that are not UTF-8, too."""
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    model = io.BytesIO()
    sentences = [t for t in map(text_or_none, texts()) if t and "\x00" not in t]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(sentences), model_writer=model, vocab_size=1400, model_type="unigram",
        character_coverage=0.985, normalization_rule_name="nmt_nfkc", minloglevel=2, num_threads=1)
    proto = sentencepiece_model_pb2.ModelProto.FromString(model.getvalue())
    pieces = proto.pieces
    write_vocabulary(name, [p.piece for p in pieces], [p.type for p in pieces], [p.score for p in pieces], [])
    (DATA / "tokenizer" / f"{name}.charsmap").write_bytes(proto.normalizer_spec.precompiled_charsmap)
    for suffix, trims, prefixes in (("", True, True), ("-as-is", False, False)):
        proto.normalizer_spec.remove_extra_whitespaces = trims
        proto.normalizer_spec.add_dummy_prefix = prefixes
        processor = sentencepiece.SentencePieceProcessor(model_proto=proto.SerializeToString())
        with open(DATA / "tokenizer" / f"{name}{suffix}.ids", "w") as out:
            for data in texts():
                ids = processor.encode(data)
                out.write(f"{len(ids)} {hash_ids(ids):016x}\n")


def small_wordpiece(name):
    """Spelled as GGUF files spell it: U+2581 before pieces that begin a word, nothing before the others."""
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, trainers
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = Tokenizer(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=100))
    cased = normalizers.BertNormalizer(lowercase=False, strip_accents=False)
    uncased = normalizers.BertNormalizer(lowercase=True)
    tokenizer.normalizer = uncased
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    trainer = trainers.WordPieceTrainer(vocab_size=2000, special_tokens=special, show_progress=False)
    tokenizer.train_from_iterator((t for t in map(text_or_none, texts()) if t), trainer)
    wordpiece(name, tokenizer, [("", uncased), ("-cased", cased)])


def wordpiece(name, tokenizer, variants):
    tokens = [t for t, _ in sorted(tokenizer.get_vocab().items(), key=lambda item: item[1])]
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    spell = lambda t: t if t in special else t[2:] if t.startswith("##") else "\u2581" + t
    write_vocabulary(name, [spell(t) for t in tokens], [CONTROL if t in special else NORMAL for t in tokens], [0] * len(tokens), [])
    # Special tokens would be found in texts that spell them; here they are text.
    from tokenizers import Tokenizer, models
    for suffix, normalizer in variants:
        plain = Tokenizer(models.WordPiece(vocab=tokenizer.get_vocab(), unk_token="[UNK]", max_input_chars_per_word=100))
        plain.normalizer, plain.pre_tokenizer = normalizer, tokenizer.pre_tokenizer
        # U+2581 followed by a letter is ambiguous once "##" is gone.
        encode = lambda text: None if is_young(text) or "\u2581" in text else plain.encode(text, add_special_tokens=False).ids
        write_ids(name + suffix, encode)


def real(name, path):
    import gguf
    fields = gguf.GGUFReader(path).fields
    read = lambda key: fields[f"tokenizer.ggml.{key}"].contents()
    if read("model") == "gpt2":
        encode = bpe_encoder(read("tokens"), read("token_type"), read("merges"), read("pre"))
    else:
        encode = sentencepiece_encoder(read("tokens"), read("token_type"), read("scores"))
    write_ids(name, encode)


def main():
    if sys.argv[1] == "small":
        small_bpe("small-smollm", "smollm")
        small_bpe("small-qwen2", "qwen2")
        small_sentencepiece("small-sentencepiece")
        small_character_bpe("small-character-bpe")
        small_unigram("small-unigram")
        small_wordpiece("small-wordpiece")
    else:
        real(sys.argv[2], sys.argv[3])


if __name__ == "__main__":
    main()
