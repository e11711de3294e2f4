// SPDX-License-Identifier: Apache-2.0
#include "text/wordpiece.h"

#include <utf8proc.h>

#include <array>
#include <string>
#include <utility>

#include "text/piece_trie.h"
#include "text/spelling.h"
#include "text/utf8.h"

namespace nanomind {
namespace {

// Longer words are unknown (max_input_chars_per_word of BERT's own tokenizer).
constexpr int kLongestWord = 100;  // characters

bool is_space(int32_t c, utf8proc_category_t category) {
  return c == '\t' || c == '\n' || c == '\r' || category == UTF8PROC_CATEGORY_ZS || category == UTF8PROC_CATEGORY_ZL ||
         category == UTF8PROC_CATEGORY_ZP;
}

bool is_dropped(int32_t c, utf8proc_category_t category) {
  return c == 0xfffd || category == UTF8PROC_CATEGORY_CC || category == UTF8PROC_CATEGORY_CF ||
         category == UTF8PROC_CATEGORY_CO;
}

// Stands alone as a word: signs, also those of ASCII that Unicode calls symbols.
bool is_sign(int32_t c, utf8proc_category_t category) {
  const bool ascii =
      (c >= '!' && c <= '/') || (c >= ':' && c <= '@') || (c >= '[' && c <= '`') || (c >= '{' && c <= '~');
  return ascii || (category >= UTF8PROC_CATEGORY_PC && category <= UTF8PROC_CATEGORY_PO);
}

// The blocks that BERT's tokenizer lists, with the range that the `tokenizers` library has for extension E.
bool is_chinese(int32_t c) {
  return (c >= 0x4e00 && c <= 0x9fff) || (c >= 0x3400 && c <= 0x4dbf) || (c >= 0x20000 && c <= 0x2a6df) ||
         (c >= 0x2a700 && c <= 0x2b73f) || (c >= 0x2b740 && c <= 0x2b81f) || (c >= 0x2b920 && c <= 0x2ceaf) ||
         (c >= 0xf900 && c <= 0xfaff) || (c >= 0x2f800 && c <= 0x2fa1f);
}

void append(std::string& out, int32_t c) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const utf8proc_ssize_t size = utf8proc_encode_char(c, bytes.data());
  out.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(size));
}

class WordPieceTokenizer final : public VocabularyTokenizer {
 public:
  WordPieceTokenizer(Vocabulary given, std::vector<std::string> bytes)
      : VocabularyTokenizer(std::move(given), std::move(bytes)), pieces_(normal_pieces(vocabulary())) {}

 private:
  // A word under way.
  struct Word {
    std::string text{kEscapedSpace};
    int characters = 0;
  };

  void encode_text(std::string_view text, Place, std::vector<TokenId>& ids) const override {
    Word word;
    for (size_t i = 0; i < text.size();) {
      const Utf8Step step = next_utf8(text, i);
      int32_t c = 0xfffd;  // which is dropped
      if (step.kind == Utf8Kind::valid) {
        utf8proc_iterate(reinterpret_cast<const utf8proc_uint8_t*>(text.data()) + i,
                         static_cast<utf8proc_ssize_t>(step.length), &c);
      }
      i += step.length;
      take(c, word, ids);
    }
    finish(word, ids);
  }

  // Cleans one character and adds it to the word, or ends the word at it.
  void take(int32_t c, Word& word, std::vector<TokenId>& ids) const {
    const utf8proc_category_t category = utf8proc_category(c);
    if (is_space(c, category)) return finish(word, ids);
    if (is_dropped(c, category)) return;
    const bool chinese = is_chinese(c);
    if (chinese) finish(word, ids);
    std::array<utf8proc_int32_t, 32> parts{c};  // no character has as many parts
    utf8proc_ssize_t count = 1;
    if (vocabulary().strips_accents) {
      int boundary = 0;
      count = utf8proc_decompose_char(c, parts.data(), parts.size(), UTF8PROC_DECOMPOSE, &boundary);
    }
    for (utf8proc_ssize_t i = 0; i < count; ++i) take_part(parts[i], word, ids);
    if (chinese) finish(word, ids);
  }

  void take_part(int32_t c, Word& word, std::vector<TokenId>& ids) const {
    if (vocabulary().strips_accents && utf8proc_category(c) == UTF8PROC_CATEGORY_MN) return;
    const auto add = [&](int32_t part) {
      const bool sign = is_sign(part, utf8proc_category(part));
      if (sign) finish(word, ids);
      append(word.text, part);
      ++word.characters;
      if (sign) finish(word, ids);
    };
    if (!vocabulary().lowercases) return add(c);
    if (c != 0x130) return add(utf8proc_tolower(c));
    add('i');  // the one character that is two in lower case
    add(0x307);
  }

  void finish(Word& word, std::vector<TokenId>& ids) const {
    if (word.characters > 0) spell(word, ids);
    word = {};
  }

  // The longest pieces from the left; the whole word is unknown where there is none.
  void spell(const Word& word, std::vector<TokenId>& ids) const {
    const size_t first = ids.size();
    std::string_view rest = word.text;
    while (word.characters <= kLongestWord && !rest.empty()) {
      // In BERT's own spelling the sign in front is not there: it is no piece by itself, and where the text has one,
      // that is not where a word begins.
      const bool begins = rest.size() == word.text.size();
      if (!begins && rest.starts_with(kEscapedSpace)) break;
      const size_t least = begins ? kEscapedSpace.size() : 0;
      size_t longest = 0;
      TokenId id = 0;
      pieces_.for_each_prefix(rest, [&](size_t size, TokenId piece) {
        if (size > least) longest = size, id = piece;
      });
      if (longest == 0) break;
      ids.push_back(id);
      rest.remove_prefix(longest);
    }
    if (word.characters <= kLongestWord && rest.empty()) return;
    ids.resize(first);
    ids.push_back(*vocabulary().unknown);
  }

  PieceTrie pieces_;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_wordpiece_tokenizer(Vocabulary vocabulary) {
  TRY(validate(vocabulary));
  if (!vocabulary.unknown) {
    return fail(ErrorCode::corrupt, "The tokenizer has no token for what is unknown (unknown_token_id).");
  }
  std::vector<std::string> bytes = TRY(decode_escaped(vocabulary));
  return std::make_unique<WordPieceTokenizer>(std::move(vocabulary), std::move(bytes));
}

}  // namespace nanomind
