// SPDX-License-Identifier: Apache-2.0
// Reads the vocabulary from a GGUF file (keys tokenizer.ggml.*) and chooses the kind of tokenizer.
#include "text/tokenizer.h"

#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string>
#include <utility>

#include "text/bpe.h"
#include "text/sentencepiece.h"
#include "text/vocabulary.h"

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

// What both kinds have; `adds_beginning` is what holds where the file does not say.
Result<Vocabulary> read_vocabulary(const GgufFile& file, bool adds_beginning) {
  Vocabulary vocabulary;
  vocabulary.tokens = TRY(read_strings(file, "tokens"));
  vocabulary.types = TRY(read_types(file, vocabulary.tokens.size()));
  vocabulary.beginning = TRY(read_id(file, "bos_token_id"));
  vocabulary.end = TRY(read_id(file, "eos_token_id"));
  vocabulary.unknown = TRY(read_id(file, "unknown_token_id"));
  for (const std::string_view name : {"eot_token_id", "eom_token_id"}) {
    if (const auto id = TRY(read_id(file, name))) vocabulary.more_ends.push_back(*id);
  }
  vocabulary.adds_beginning = TRY(read_flag(file, "add_bos_token", adds_beginning));
  return vocabulary;
}

Result<std::unique_ptr<Tokenizer>> make_bpe(const GgufFile& file) {
  Vocabulary vocabulary = TRY(read_vocabulary(file, false));
  vocabulary.merges = TRY(read_strings(file, "merges"));
  if (file.find(key("pre")) == nullptr) {
    return fail(
        ErrorCode::unsupported,
        "The file does not say how its tokenizer cuts words (tokenizer.ggml.pre is missing), so its answers would "
        "be wrong. Convert the model again with a current converter.");
  }
  vocabulary.pre_tokenizer = TRY(file.get_string(key("pre")));
  return make_bpe_tokenizer(std::move(vocabulary));
}

Result<std::unique_ptr<Tokenizer>> make_sentencepiece(const GgufFile& file) {
  Vocabulary vocabulary = TRY(read_vocabulary(file, true));
  vocabulary.scores = TRY(read_scores(file));
  vocabulary.adds_space_prefix = TRY(read_flag(file, "add_space_prefix", true));
  return make_sentencepiece_tokenizer(std::move(vocabulary));
}

}  // namespace

Result<std::unique_ptr<Tokenizer>> make_tokenizer(const GgufFile& file) {
  const std::string_view model = TRY(file.get_string(key("model")));
  if (model == "gpt2") return make_bpe(file);
  if (model == "llama") return make_sentencepiece(file);
  return fail(ErrorCode::unsupported,
              fmt::format("The model's tokenizer is of the kind \"{}\", which is not supported; known ones: gpt2 "
                          "(byte-level BPE), llama (SentencePiece). Choose another model.",
                          model));
}

}  // namespace nanomind
