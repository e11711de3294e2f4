// SPDX-License-Identifier: Apache-2.0
#include "text/unigram.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>

#include "text/charsmap.h"
#include "text/piece_trie.h"
#include "text/spelling.h"
#include "text/utf8.h"

namespace nanomind {
namespace {

// How much worse than the worst piece a character without one is (sentencepiece's src/unigram_model.cc, kUnkPenalty).
constexpr float kUnknownPenalty = 10;

class UnigramTokenizer final : public VocabularyTokenizer {
 public:
  UnigramTokenizer(Vocabulary given, std::vector<std::string> bytes, Charsmap charsmap)
      : VocabularyTokenizer(std::move(given), std::move(bytes)),
        charsmap_(std::move(charsmap)),
        pieces_(normal_pieces(vocabulary())) {
    float worst = std::numeric_limits<float>::max();
    for (size_t i = 0; i < vocabulary().scores.size(); ++i) {
      if (vocabulary().types[i] == TokenType::normal) worst = std::min(worst, vocabulary().scores[i]);
    }
    unknown_score_ = worst - kUnknownPenalty;
  }

 private:
  // The best way to cut the text before some place. In single precision, since the sums of a long run of one character
  // are equal but for their rounding, and sentencepiece's rounding is what models have seen.
  struct Best {
    float score = -std::numeric_limits<float>::infinity();
    TokenId id = 0;    // of the last piece
    size_t begin = 0;  // of the last piece
  };

  void encode_text(std::string_view raw, Place, std::vector<TokenId>& ids) const override {
    const std::string text = normalise(raw);
    std::vector<Best> best(text.size() + 1);
    best[0].score = 0;
    for (size_t begin = 0; begin < text.size();) {
      const size_t character = next_utf8(text, begin).length;
      const auto offer = [&](size_t size, float score, TokenId id) {
        Best& other = best[begin + size];
        const float sum = best[begin].score + score;
        if (sum > other.score) other = {sum, id, begin};
      };
      bool has_character = false;
      pieces_.for_each_prefix(std::string_view(text).substr(begin), [&](size_t size, TokenId id) {
        offer(size, vocabulary().scores[id], id);
        has_character |= size == character;
      });
      if (!has_character) offer(character, unknown_score_, *vocabulary().unknown);
      begin += character;
    }
    const size_t first = ids.size();
    for (size_t end = text.size(); end > 0; end = best[end].begin) {
      const TokenId id = best[end].id;
      // Neighbours without a token are one unknown token.
      if (id != *vocabulary().unknown || ids.size() == first || ids.back() != id) ids.push_back(id);
    }
    std::reverse(ids.begin() + static_cast<ptrdiff_t>(first), ids.end());
  }

  // Replaces characters, escapes spaces, puts one in front, and takes superfluous ones out, each where the file says
  // so.
  std::string normalise(std::string_view text) const {
    const bool trims = vocabulary().removes_extra_spaces;
    std::string out;
    if (vocabulary().adds_space_prefix && !text.empty()) out = kEscapedSpace;
    bool after_space = trims;
    while (!text.empty()) {
      const auto [size, replacement] = charsmap_.replace_first(text);
      text.remove_prefix(size);
      for (const char c : replacement) {
        const bool is_space = c == ' ';
        if (is_space && after_space) continue;
        if (is_space) {
          out += kEscapedSpace;
        } else {
          out += c;
        }
        after_space = is_space && trims;
      }
    }
    while (trims && out.ends_with(kEscapedSpace)) out.resize(out.size() - kEscapedSpace.size());
    return out;
  }

  Charsmap charsmap_;
  PieceTrie pieces_;
  float unknown_score_ = 0;
};

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_unigram_tokenizer(Vocabulary vocabulary) {
  TRY(validate(vocabulary));
  if (vocabulary.scores.size() != vocabulary.tokens.size()) {
    return fail(ErrorCode::corrupt, fmt::format("The tokenizer has {} tokens but {} scores.", vocabulary.tokens.size(),
                                                vocabulary.scores.size()));
  }
  if (!std::ranges::all_of(vocabulary.scores, [](float score) { return std::isfinite(score); })) {
    return fail(ErrorCode::corrupt, "A score of the tokenizer is not a number.");
  }
  if (!vocabulary.unknown) {
    return fail(ErrorCode::corrupt, "The tokenizer has no token for what is unknown (unknown_token_id).");
  }
  Charsmap charsmap = TRY(Charsmap::create(std::as_bytes(std::span(vocabulary.charsmap))));
  std::vector<std::string> bytes = TRY(decode_escaped(vocabulary));
  return std::make_unique<UnigramTokenizer>(std::move(vocabulary), std::move(bytes), std::move(charsmap));
}

}  // namespace nanomind
