# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/tokenizer/words.txt: how each pre-tokenizer cuts every text of tests/data/tokenizer_corpus.txt.

Needs: pip install regex tokenizers, and a Python whose unicodedata is of version 14 (3.11)

The expressions are written as the models' publishers write them in tokenizer.json, and `tokenizers` (Oniguruma) applies
them. Per rule: a line with the names, the first being the one under test, then for every text four hexadecimal digits, 16
texts to a line: the FNV-1a hash (64 bits) of the words' lengths in bytes as little-endian int32, its four 16-bit parts
combined with exclusive or; "----" for texts that are not UTF-8 and for texts with characters younger than Unicode 14,
which the tables of Debian 12 do not know.
"""

from tokenizers import Regex, pre_tokenizers

from tokenizer_ids import DATA, hash_ids, is_young, text_or_none, texts

CONTRACTIONS = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)"
TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
LLAMA3 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}|" + TAIL
QWEN2 = CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + TAIL
UPPER, LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
UPPER_NOT_HAN = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
LOWER_NOT_HAN = r"[\p{Ll}\p{Lm}\p{Lo}\p{M}&&[^\p{Han}]]"
SLASH_TAIL = r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"


def cased(upper, lower, ending):
    return (rf"[^\r\n\p{{L}}\p{{N}}]?{upper}*{lower}+{ending}|[^\r\n\p{{L}}\p{{N}}]?{upper}+{lower}*{ending}|")


GPT4O = cased(UPPER, LOWER, CONTRACTIONS + "?") + r"\p{N}{1,3}|" + SLASH_TAIL
SENTENCE_PART = r" ?[^(\s|[.,!?…。，、।۔،])]+"
HAN_AND_KANA = "[一-龥\u3040-ゟ゠-ヿ]+"
CHINESE_AND_KOREAN = "[一-龥\u0800-一가-\ud7ff]+"
SIGN_AND_LATIN = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+"""
CASED_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-\u1f7dᾀ-ᾴᾶ-ᾼ\u1fbeῂ-ῄῆ-ῌ"
    "ῐ-\u1fd3ῖ-\u1fdbῠ-Ῥῲ-ῴῶ-ῼℂℇℊ-ℓℕℙ-ℝℤ\u2126ℨ\u212a-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ"
    "𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
GPT2 = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
DIGITS = pre_tokenizers.Digits(individual_digits=True)

RULES = {
    "gpt-2": [GPT2],
    "smollm": [DIGITS, GPT2],
    "llama-bpe": [LLAMA3],
    "qwen2": [QWEN2],
    "qwen35": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "ufakzeka": [r"[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}|" + TAIL],
    "minicpm5": [r"\p{N}{1,3}", CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}+|" + TAIL],
    "laguna": [r"[^\n]+|[\n]+", QWEN2],
    "seed-coder": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1}| ?[^\s\p{L}\p{N}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "bailingmoe": [r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]++[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"],
    "exaone-moe": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?(?:\p{L}\p{M}*(?: \p{L}\p{M}*)*)+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n/]?"
                   r"|\s*[\r\n]|\s+(?!\S)|\s+"],
    "jais-2": [CONTRACTIONS + r"|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s{512}(?!\S)|\s{256}(?!\S)"
               r"|\s{128}(?!\S)|\s{64}(?!\S)|\s{32}(?!\S)|\s{16}(?!\S)|\s{8}(?!\S)|\s{4}(?!\S)|\s{1,2}(?!\S)|\s{1}"],
    "tekken": [cased(UPPER, LOWER, "") + r"\p{N}|" + SLASH_TAIL],
    "gpt-4o": [GPT4O],
    "tiny_aya": [r"\d{1,3}(?=(?:\d{3})*\b)", GPT4O],
    "youtu": ["[가-힣ㄱ-ㆎ]+|[！…“”‘’—：；，、-〿︰-﹏]+|[ㄅ-ㄯ]+|" + HAN_AND_KANA,
              cased(UPPER, LOWER, CONTRACTIONS + "?") + r"\p{N}|" + SLASH_TAIL],
    "kimi-k2": [r"[\p{Han}]+|" + cased(UPPER_NOT_HAN, LOWER_NOT_HAN, CONTRACTIONS + "?") + r"\p{N}{1,3}|" + TAIL],
    "deepseek-llm": ["[\r\n]", rf"\s?[{CASED_LETTERS}]+", r"\s?[!-/:-~！-／：-～‘-‟\u3000-。]+", r"\s+$", CHINESE_AND_KOREAN, r"\p{N}+"],
    "deepseek-coder": ["[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", CHINESE_AND_KOREAN, DIGITS],
    "deepseek-v3": [r"\p{N}{1,3}", HAN_AND_KANA, SIGN_AND_LATIN + r"[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"],
    "spark2_5": [r"\p{N}{1,3}", HAN_AND_KANA, SIGN_AND_LATIN + r"|[\r\n]|\s+(?!\S)|\s+", r"\p{N}"],
    "falcon": [pre_tokenizers.Punctuation(behavior="contiguous"), GPT2, "[0-9][0-9][0-9]"],
    "bloom": [SENTENCE_PART],
    "viking": [SENTENCE_PART, DIGITS],
    "superbpe": [r"\p{N}+", r"(?=(\d{3})+(?!\d))"],
    "chameleon": [r"<sentinel:[0-9]+>", r"(IMGIMG)((A|B|C|D|E|F|G|H|I){1,4})Z", "([\t\n]|    |  )", DIGITS,
                  pre_tokenizers.Punctuation(behavior="isolated"), GPT2],
}


def splitter(steps):
    """After GPT-2's step a text is spelled in its byte alphabet, which is why the byte-level steps come last here."""
    parts = [pre_tokenizers.Split(Regex(step), behavior="isolated") if isinstance(step, str) else step for step in steps]
    if GPT2 not in steps:
        parts.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False))
    return pre_tokenizers.Sequence(parts)


def main():
    with open(DATA / "tokenizer" / "words.txt", "w") as out:
        for name, steps in RULES.items():
            rule, hashes = splitter(steps), []
            for text in map(text_or_none, texts()):
                if text is None or is_young(text):
                    hashes.append("----")
                    continue
                value = hash_ids([len(word) for word, _ in rule.pre_tokenize_str(text)])
                hashes.append(f"{(value ^ value >> 16 ^ value >> 32 ^ value >> 48) & 0xffff:04x}")
            out.write(name + "\n")
            out.writelines("".join(hashes[i:i + 16]) + "\n" for i in range(0, len(hashes), 16))


if __name__ == "__main__":
    main()
