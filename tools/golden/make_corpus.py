# SPDX-License-Identifier: Apache-2.0
"""Writes tests/data/tokenizer_corpus.txt: about 2,400 texts that tokenizers get wrong. Deterministic.

One text per line; backslash, control characters and bytes that are not UTF-8 are written \\\\ and \\xHH (see escape.py).
All sentences were written for this project.
"""

import random
import sys

from escape import escape

SENTENCES = [
    "The quick brown fox jumps over the lazy dog, doesn't it?", "I'll say: they've gone, we're here, I'd stay, he's not, I'm in.",
    "DON'T SHOUT! WE'LL HEAR, IT'S FINE, THEY'RE HERE, I'VE SEEN.", "déjà vu — 123 😊", "Ça coûte 3,50 € à l'hôtel près de Noël.",
    "Größenwahn, Straße, Äpfel und Öl für 12.345,67 €.", "El niño comió piñas y el pingüino no.", "Não há pão; só maçãs à mesa.",
    "Zażółć gęślą jaźń.", "Příliš žluťoučký kůň úpěl ďábelské ódy.", "Gözleri ışıl ışıl, İstanbul'da yağmur.", "Việt Nam có nhiều phở ngon lắm.",
    "Съешь же ещё этих мягких французских булок.", "Їжак їсть ґрунт у п'ятницю.", "Η γρήγορη αλεπού πηδάει πάνω από τον σκύλο.",
    "השועל החום המהיר קופץ מעל הכלב.", "الثعلب البني السريع يقفز فوق الكلب ١٢٣٤٥.", "روباه قهوه‌ای سریع ۶۷۸ بار می‌پرد.",
    "तेज़ भूरी लोमड़ी आलसी कुत्ते पर कूदती है १२३।", "দ্রুত বাদামী শিয়াল অলস কুকুরের উপর লাফ দেয়।", "விரைவான பழுப்பு நரி சோம்பேறி நாய் மீது குதிக்கிறது.",
    "వేగవంతమైన గోధుమ నక్క సోమరి కుక్క మీదుగా దూకుతుంది.", "വേഗതയേറിയ തവിട്ടുനിറത്തിലുള്ള കുറുക്കൻ.", "สุนัขจิ้งจอกสีน้ำตาลกระโดดข้ามสุนัขขี้เกียจ ๑๒๓",
    "မြန်မာစကားကို လေ့လာသည်။", "ភាសាខ្មែរ គឺជាភាសា។", "ພາສາລາວ ມ່ວນຫຼາຍ", "መልካም ቀን ይሁንልህ።", "ქართული ენა ლამაზია.", "Հայերեն լեզուն գեղեցիկ է։",
    "敏捷的棕色狐狸跳过了懒狗。今天是2024年5月6日。", "敏捷的棕色狐狸跳過了懶狗，價格是一百二十三元。", "素早い茶色の狐がのろまな犬を飛び越える。ｶﾀｶﾅ １２３",
    "빠른 갈색 여우가 게으른 개를 뛰어넘는다. 가격은 3만 원!", "ᚠᛇᚻ᛫ᛒᛦᚦ", "𐍅𐌿𐌻𐍆𐌹𐌻𐌰", "𝔘𝔫𝔦𝔠𝔬𝔡𝔢 𝟙𝟚𝟛 ½ ² Ⅷ ①②③", "ʻŌlelo Hawaiʻi", "tiếng Việt 𠮷野家 𡈽",
]
WORDS = [w.strip(".,!?:;") for s in SENTENCES for w in s.split()]
EMOJI = ["😀", "👍🏽", "👨‍👩‍👧‍👦", "🏳️‍🌈", "🇩🇪🇯🇵", "❤️", "1️⃣", "🧑🏿‍🚀", "☕", "🤷🏻‍♀️", "🫠", "✈︎"]
CODE = [
    "def f(x):\n    return [i ** 2 for i in range(x) if i % 3 == 0]\n", "for (int i = 0; i < n; ++i) {\n\tsum += a[i];\n}\n",
    "SELECT name, COUNT(*) FROM users WHERE age >= 18 GROUP BY name;", "<div class=\"a b\">&nbsp;<b>x</b><br/></div>", "#include <vector>\r\n\r\nint main() { return 0; }\r\n",
    "if x != None and not y: # comment\n\t\tpass", "let v: Vec<Option<&'static str>> = vec![None; 10];", "$ curl -sS https://example.org/a?b=c&d=%20 | jq '.x[0]'",
    '{"name": "Ann", "age": 31, "tags": ["a", "b"], "ok": true, "x": null}', "fn main() -> Result<(), Box<dyn Error>> { Ok(()) }",
    "\\begin{equation} \\frac{a}{b} = \\sqrt{x^2} \\end{equation}", "a->b->c != a::b::c && !(x<<=2 >>> 1)", "<h1>Title</h1>\n<table><tr><td>1</td></tr></table>",
    "[multimodal] <tool_call>{\"name\": \"f\"}</tool_call>", "```python\nprint('hi')\n```", "| a | b |\n|---|:-:|\n| 1 | 2 |", "0xDEADBEEF 1e-9 3.14159 1_000_000 192.168.0.1",
]
SPACES = [" ", "  ", "   ", "\t", "\t\t", " \t ", "\n", "\n\n", "\n \n", "\r\n", "\r\n\r\n", "\r", "\u00a0", "\u2003", "\u3000", "\u2028", "\u0085", "\u180e", "\u200b", "\u202f", "\x0b", "\x0c", "\u1680"]
COMBINING = ["e\u0301", "a\u0308\u0304", "Z\u0351\u036b\u0343\u036a\u0302\u036b\u033d", "\u0301", "o\u0302\u0323", "\u1112\u1161\u11ab", "\u0915\u094d\u0937", "n\u0303a"]
ODD = ["\x00", "a\x00b", "\x01\x02", "\x1b[31mred\x1b[0m", "\x7f", "\ufeffBOM", "\ufffd", "\u200d", "\u200eLTR\u202e", "\U0010ffff", "\ue000", "\ufffe", "\u2581", "\u2581a", "'S 'T 'ſ 'K", "''s", "'", "' s", "'re're", "İ'S"]
SPECIAL = ["<|im_start|>", "<|im_end|>", "<|endoftext|>", "<start_of_turn>", "<end_of_turn>", "<bos>", "<unk>", "<0x41>", "<0x0A>", "<tool_call>", "</tool_call>", "<|fim_prefix|>", "</s>", "<s>", "<|im_start", "<unused7>"]


def single_cases():
    yield ""
    for group in (SENTENCES, EMOJI, CODE, SPACES, COMBINING, ODD, SPECIAL, sorted(set(WORDS))):
        yield from group
    for text in SPACES:
        for n in (2, 3, 4, 5, 16, 31, 32, 33, 70):
            yield text * n
        yield f"a{text}b"
        yield f"{text}a"
        yield f"a{text}"
        yield f"a{text} 1"
        yield f"{text}\n{text}x"
    for unit in ("A", "a", "z", "가", "0", "12", "!", "=", "-", "é", "😀", "ab", " a", "a ", "the ", "\n ", " \n", "\t "):
        for n in (2, 3, 7, 20, 64, 300):
            yield unit * n
    for n in range(0, 1200, 37):
        yield f"{n} {n * n} {n / 7:.3f} -{n}"
    for code_point in list(range(0x20, 0x250, 7)) + list(range(0x250, 0x3000, 211)) + list(range(0x3000, 0x20000, 2111)):
        if not 0xD800 <= code_point < 0xE000:
            yield f"x{chr(code_point)}y {chr(code_point)}{chr(code_point)} 1{chr(code_point)}"


def mixtures(rng, count):
    pools = [WORDS, WORDS, WORDS, EMOJI, CODE, COMBINING, ODD, SPECIAL, ["1", "23", "456", "7890", "3.14"], list("!?.,;:'\"()[]{}<>/\\|@#$%^&*-_=+~`")]
    for _ in range(count):
        parts = []
        for _ in range(rng.randint(2, 14)):
            parts.append(rng.choice(rng.choice(pools)))
            parts.append(rng.choice(SPACES) if rng.random() < 0.25 else rng.choice(["", " ", " ", " "]))
        yield "".join(parts)


def rule_cases(rng, count):
    """What the expressions of different models cut differently: cases of letters, digits, marks, Han, Kana, Hangul, spaces."""
    yield from (
        "12a", "1234a 1234567b", "1234567", "x1234567.1234567", "½123", "123½12", "12½1234", "١٢٣٤٥٦٧ ١٢٣٤a", "123_456", "1234é", "1234e\u0301",
        "Ⅷ123", "〇一二12345", "camelCaseHTTPServer2x XMLHttpRequest's iOS'll", "ABCdef ABC'S abc'LL ΑΒΓδεζ ЖЗИклм ǅabc ǅǅA", "ʰʱaʰ Aʰ ʰA",
        "a b c d e", " a  b c", "한 국 어 x y", "é t e\u0301 a", "e\u0301 \u0301e \u0301\u0301 1\u0301 .\u0301a", "नमस्ते दुनिया", "நிறைய",
        "a中文b 中a文1 中。文", "々〻中〆", "ひらがなカタカナ漢字ー｡", "ㄅㄆㄇ ㄱㄴㄷ 한글。", "！…“”‘’—：；，、。", "\u2e80\u2f00\u3021中", "『引用』（括弧）",
        "//path/to//x\n/\n//\r\n/", "!\n/!\n\n x", "...a ...A $a #define @user -x _y `z {w", "$a+b<c=d>e^f~g|h", "aʼb ‘a’ “b”", "(a|b) .c, d! e? f… g۔ h، i।",
        "<sentinel:12>IMGIMGABCDZ IMGIMGABCDEZ IMGIMGZ", "\x01a\x02\x03 b \x00\x00", "a\u200db\u200c", "\ue000\ue001a", "𝟘𝟙𝟚𝟛𝟜 𝐀𝐁𝐂𝐝𝐞",
        "Ⓐⓑ12Ⓒ", "123Ⓐ", "12‿3", "12 345 6789 01234 567890 1234567 89012345",
    )
    for n in (31, 63, 127, 255, 511, 512, 513, 1023, 1100):
        yield " " * n
        yield " " * n + "x"
        yield "\t" * n + "7"
    for n in range(1, 14):
        yield "7" * n
        yield "7" * n + "x"
        yield "a" + "7" * n + ".5"
    pieces = ["a", "B", "é", "Ж", "ж", "ʰ", "\u0301", "\u093f", "中", "あ", "ア", "한", "ก", "1", "٣", "½", "Ⅷ", "_", "-", "'", "'s", "'LL", "$", "。", "/", " ",
              "  ", "\n", "\r\n", "\t", "\u00a0", "\x01", "\u200d", "😀"]
    for _ in range(count):
        yield "".join(rng.choice(pieces) for _ in range(rng.randint(3, 24)))


def not_utf8(rng, count):
    for _ in range(count):
        data = bytearray(rng.choice(SENTENCES).encode())
        for _ in range(rng.randint(1, 6)):
            data.insert(rng.randrange(len(data) + 1), rng.choice([0x80, 0xBF, 0xC0, 0xC3, 0xE2, 0xED, 0xF0, 0xF5, 0xFF]))
        del data[rng.randint(len(data) // 2, len(data)):]
        yield bytes(data)


def main():
    rng = random.Random(20240506)
    texts = [t.encode() for t in single_cases()] + [t.encode() for t in mixtures(rng, 1000)] + list(not_utf8(rng, 60))
    texts += [t.encode() for t in rule_cases(rng, 250)]
    with open(sys.argv[1], "w", encoding="utf-8", newline="\n") as out:
        out.writelines(escape(text) + "\n" for text in texts)


if __name__ == "__main__":
    main()
