// SPDX-License-Identifier: Apache-2.0
// Reads the vocabulary from a GGUF file (keys tokenizer.ggml.*) and chooses the kind of tokenizer.
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <span>
#include <string>
#include <utility>
#include <variant>

#include "text/bpe.h"
#include "text/character_bpe.h"
#include "text/pretokenizer_rules.h"
#include "text/sentencepiece.h"
#include "text/unigram.h"
#include "text/vocabulary.h"
#include "text/wordpiece.h"

namespace nanomind {
namespace {

std::string key(std::string_view name) { return fmt::format("tokenizer.ggml.{}", name); }

Result<std::optional<TokenId>> read_id(const GgufFile& file, std::string_view name) {
  if (file.find(key(name)) == nullptr) return std::nullopt;
  const uint64_t id = TRY(file.get_uint(key(name)));
  // Some converters write 2^32 - 1 for "none".
  if (id == std::numeric_limits<uint32_t>::max()) return std::nullopt;
  if (id > static_cast<uint64_t>(std::numeric_limits<TokenId>::max())) {
    return fail(ErrorCode::corrupt, fmt::format("{} is {}, which is not a token.", key(name), id));
  }
  return static_cast<TokenId>(id);
}

Result<bool> read_flag(const GgufFile& file, std::string_view name, bool otherwise) {
  if (file.find(key(name)) == nullptr) return otherwise;
  return file.get_bool(key(name));
}

Result<std::vector<std::string>> read_strings(const GgufFile& file, std::string_view name) {
  const GgufArray* array = TRY(file.get_array(key(name), GgufType::string));
  return std::vector<std::string>(array->strings.begin(), array->strings.end());
}

Result<std::vector<TokenType>> read_types(const GgufFile& file, size_t count) {
  if (file.find(key("token_type")) == nullptr) return std::vector<TokenType>(count, TokenType::normal);
  const GgufArray* array = TRY(file.get_array(key("token_type"), GgufType::i32));
  std::vector<TokenType> types(array->count);
  for (uint64_t i = 0; i < array->count; ++i) {
    const int64_t type = array->integer(i);
    if (type < static_cast<int64_t>(TokenType::normal) || type > static_cast<int64_t>(TokenType::byte)) {
      return fail(ErrorCode::corrupt, fmt::format("Token {} has the type {}, which does not exist.", i, type));
    }
    types[i] = static_cast<TokenType>(type);
  }
  return types;
}

Result<std::vector<float>> read_scores(const GgufFile& file) {
  const GgufArray* array = TRY(file.get_array(key("scores"), GgufType::f32));
  std::vector<float> scores(array->count);
  for (uint64_t i = 0; i < array->count; ++i) scores[i] = static_cast<float>(array->number(i));
  return scores;
}

std::optional<TokenId> find_token(const Vocabulary& vocabulary, std::string_view spelling) {
  const auto found = std::ranges::find(vocabulary.tokens, spelling);
  if (found == vocabulary.tokens.end()) return std::nullopt;
  return static_cast<TokenId>(found - vocabulary.tokens.begin());
}

// What the file says, under the present name of the key or the former one, otherwise the token that is spelled so in
// the vocabularies of Qwen, Granite and StarCoder, DeepSeek, CodeLlama, GLM, or Falcon.
Result<InfillTokens> read_infill(const GgufFile& file, const Vocabulary& vocabulary) {
  InfillTokens tokens;
  struct Part {
    std::optional<TokenId>& id;
    std::string_view key, former_key;
    std::array<std::string_view, 8> spellings;
  };
  const Part parts[] = {
      {tokens.prefix,
       "fim_pre_token_id",
       "prefix_token_id",
       {"<|fim_prefix|>", "<fim_prefix>", "<fim-prefix>", "<\uff5cfim\u2581begin\uff5c>", "\u2581<PRE>", "<PRE>",
        "<|code_prefix|>", "<|prefix|>"}},
      {tokens.suffix,
       "fim_suf_token_id",
       "suffix_token_id",
       {"<|fim_suffix|>", "<fim_suffix>", "<fim-suffix>", "<\uff5cfim\u2581hole\uff5c>", "\u2581<SUF>", "<SUF>",
        "<|code_suffix|>", "<|suffix|>"}},
      {tokens.middle,
       "fim_mid_token_id",
       "middle_token_id",
       {"<|fim_middle|>", "<fim_middle>", "<fim-middle>", "<\uff5cfim\u2581end\uff5c>", "\u2581<MID>", "<MID>",
        "<|code_middle|>", "<|middle|>"}},
  };
  for (const Part& part : parts) {
    part.id = TRY(read_id(file, part.key));
    if (!part.id) part.id = TRY(read_id(file, part.former_key));
    for (const std::string_view spelling : part.spellings) {
      if (!part.id) part.id = find_token(vocabulary, spelling);
    }
  }
  return tokens;
}

// What holds where the file does not say.
struct Defaults {
  bool adds_beginning = false;
  bool adds_end = false;
};

// What all kinds have.
Result<Vocabulary> read_vocabulary(const GgufFile& file, Defaults defaults) {
  Vocabulary vocabulary;
  vocabulary.tokens = TRY(read_strings(file, "tokens"));
  vocabulary.types = TRY(read_types(file, vocabulary.tokens.size()));
  vocabulary.beginning = TRY(read_id(file, "bos_token_id"));
  vocabulary.end = TRY(read_id(file, "eos_token_id"));
  vocabulary.unknown = TRY(read_id(file, "unknown_token_id"));
  vocabulary.separator = TRY(read_id(file, "seperator_token_id"));  // spelled so in every file
  for (const std::string_view name : {"eot_token_id", "eom_token_id"}) {
    if (const auto id = TRY(read_id(file, name))) vocabulary.more_ends.push_back(*id);
  }
  vocabulary.infill = TRY(read_infill(file, vocabulary));
  vocabulary.adds_beginning = TRY(read_flag(file, "add_bos_token", defaults.adds_beginning));
  vocabulary.adds_end = TRY(read_flag(file, "add_eos_token", defaults.adds_end));
  vocabulary.adds_separator = TRY(read_flag(file, "add_sep_token", false));
  correct_types(vocabulary);
  return vocabulary;
}

enum class Family { gemma, other };

Result<std::unique_ptr<Tokenizer>> make_character_bpe(const GgufFile& file, Family family) {
  Vocabulary vocabulary = TRY(read_vocabulary(file, {}));
  vocabulary.merges = TRY(read_strings(file, "merges"));
  // The first files of Gemma 4 say no by mistake.
  vocabulary.adds_beginning |= family == Family::gemma;
  return make_character_bpe_tokenizer(std::move(vocabulary));
}

Result<std::unique_ptr<Tokenizer>> make_bpe(const GgufFile& file) {
  if (file.find(key("pre")) == nullptr) {
    return fail(
        ErrorCode::unsupported,
        "The file does not say how its tokenizer cuts words (tokenizer.ggml.pre is missing), so its answers would "
        "be wrong. Convert the model again with a current converter.");
  }
  const std::string_view pre = TRY(file.get_string(key("pre")));
  if (pre == "sarvam-moe") return make_character_bpe(file, Family::other);
  if (pre == "gemma4" || pre == "granite-embed-multi-311m") return make_character_bpe(file, Family::gemma);
  const PreTokenizerRule* rule = find_pre_tokenizer_rule(pre);
  Vocabulary vocabulary = TRY(read_vocabulary(file, {.adds_beginning = rule != nullptr && rule->adds_beginning}));
  vocabulary.merges = TRY(read_strings(file, "merges"));
  vocabulary.pre_tokenizer = pre;
  return make_bpe_tokenizer(std::move(vocabulary));
}

Result<std::unique_ptr<Tokenizer>> make_sentencepiece(const GgufFile& file) {
  Vocabulary vocabulary = TRY(read_vocabulary(file, {.adds_beginning = true}));
  vocabulary.scores = TRY(read_scores(file));
  vocabulary.adds_space_prefix = TRY(read_flag(file, "add_space_prefix", true));
  return make_sentencepiece_tokenizer(std::move(vocabulary));
}

Result<std::unique_ptr<Tokenizer>> make_unigram(const GgufFile& file) {
  Vocabulary vocabulary = TRY(read_vocabulary(file, {.adds_end = true}));
  vocabulary.scores = TRY(read_scores(file));
  vocabulary.adds_space_prefix = TRY(read_flag(file, "add_space_prefix", true));
  vocabulary.removes_extra_spaces = TRY(read_flag(file, "remove_extra_whitespaces", false));
  if (!vocabulary.unknown) vocabulary.unknown = find_token(vocabulary, "<unk>");
  if (!vocabulary.end) vocabulary.end = find_token(vocabulary, "</s>");
  if (const GgufValue* value = file.find(key("precompiled_charsmap"))) {
    const auto* array = std::get_if<GgufArray>(value);
    if (array == nullptr || (array->element != GgufType::u8 && array->element != GgufType::i8)) {
      return fail(ErrorCode::corrupt, "tokenizer.ggml.precompiled_charsmap is not a list of bytes.");
    }
    vocabulary.charsmap.assign(reinterpret_cast<const char*>(array->bytes.data()), array->bytes.size());
  }
  return make_unigram_tokenizer(std::move(vocabulary));
}

Result<std::unique_ptr<Tokenizer>> make_wordpiece(const GgufFile& file) {
  Vocabulary vocabulary = TRY(read_vocabulary(file, {.adds_beginning = true}));
  if (!vocabulary.beginning) vocabulary.beginning = TRY(read_id(file, "cls_token_id"));
  if (!vocabulary.beginning) vocabulary.beginning = find_token(vocabulary, "[CLS]");
  if (!vocabulary.separator) vocabulary.separator = find_token(vocabulary, "[SEP]");
  if (!vocabulary.unknown) vocabulary.unknown = find_token(vocabulary, "[UNK]");
  // A text always ends with the separator, so between two texts there need not be another one.
  vocabulary.end = vocabulary.separator;
  vocabulary.adds_end = true;
  vocabulary.adds_separator = false;
  vocabulary.lowercases = TRY(read_flag(file, "normalizer.lowercase", true));
  vocabulary.strips_accents = TRY(read_flag(file, "normalizer.strip_accents", vocabulary.lowercases));
  for (const auto& id : {vocabulary.beginning, vocabulary.separator, vocabulary.unknown,
                         find_token(vocabulary, "[PAD]"), find_token(vocabulary, "[MASK]")}) {
    // Some converters call them normal.
    if (id && *id >= 0 && static_cast<size_t>(*id) < vocabulary.types.size())
      vocabulary.types[*id] = TokenType::control;
  }
  return make_wordpiece_tokenizer(std::move(vocabulary));
}

}  // namespace

bool same_tokens(const Tokenizer& a, const Tokenizer& b) {
  const int32_t both = std::min(a.vocabulary_size(), b.vocabulary_size());
  for (TokenId id = 0; id < both; ++id) {
    if (a.piece(id) != b.piece(id) || a.bytes(id) != b.bytes(id)) return false;
  }
  return true;
}

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const GgufFile& file) {
  const std::string_view model = TRY(file.get_string(key("model")));
  if (model == "gpt2") return make_bpe(file);
  if (model == "gemma4") return make_character_bpe(file, Family::gemma);
  if (model == "llama") return make_sentencepiece(file);
  if (model == "t5") return make_unigram(file);
  if (model == "bert") return make_wordpiece(file);
  if (model == "none" || model == "no_vocab") {
    return fail(ErrorCode::unsupported, "The file has no vocabulary (tokenizer.ggml.model is \"" + std::string(model) +
                                            "\"), so it can neither read nor write text. Choose another model.");
  }
  return fail(ErrorCode::unsupported,
              fmt::format("The model's tokenizer is of the kind \"{}\", which is not supported; known ones: gpt2 "
                          "(byte-level BPE), gemma4 (BPE over characters), llama (SentencePiece), t5 (SentencePiece "
                          "unigram), bert (WordPiece). "
                          "Choose another model.",
                          model));
}

}  // namespace nanomind
