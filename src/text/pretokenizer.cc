// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <pcre2.h>

#include <algorithm>
#include <array>
#include <cstdint>
#include <utility>

#include "text/utf8.h"

namespace nanomind {
namespace {

// White space is spelled out because PCRE2's \s differs from what the trainers' regex engines call white space:
// Unicode's White_Space property. S stands for it inside brackets.
#define NANOMIND_SPACE \
  "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"

struct Rule {
  std::string_view name;
  const char* pattern;
};

// Greedy loops that need not give anything back are possessive (++), so that no stack grows with the text.
constexpr std::array<Rule, 2> kRules = {{
    // The published tokenizer cuts out single digits first and applies GPT-2's expression to what is between them; here
    // both are one expression: a digit ends the run of spaces before it as the end of the text does.
    {"smollm",
     "\\p{N}"
     "|'s|'t|'re|'ve|'m|'ll|'d"
     "|\\x20?\\p{L}++"
     "|\\x20?[^" NANOMIND_SPACE "\\p{L}\\p{N}]++"
     "|[" NANOMIND_SPACE "]+(?![^" NANOMIND_SPACE "\\p{N}])"
     "|[" NANOMIND_SPACE "]++"},
    {"qwen2",
     "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
     "|[^\\r\\n\\p{L}\\p{N}]?\\p{L}++"
     "|\\p{N}"
     "|\\x20?[^" NANOMIND_SPACE "\\p{L}\\p{N}]++[\\r\\n]*+"
     "|[" NANOMIND_SPACE "]*[\\r\\n]++"
     "|[" NANOMIND_SPACE "]+(?![^" NANOMIND_SPACE "])"
     "|[" NANOMIND_SPACE "]++"},
}};
#undef NANOMIND_SPACE

using Code = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;
using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;

}  // namespace

struct PreTokenizer::Impl {
  Code code{nullptr, &pcre2_code_free};
  MatchContext context{nullptr, &pcre2_match_context_free};
};

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  const auto* rule = std::ranges::find(kRules, name, &Rule::name);
  if (rule == kRules.end()) {
    std::string known;
    for (const Rule& r : kRules) known += fmt::format("{}{}", known.empty() ? "" : ", ", r.name);
    return fail(ErrorCode::unsupported,
                fmt::format("The model's pre-tokenizer is \"{}\", which is not supported; known ones: {}. Convert the "
                            "model again with a current converter, or choose another model.",
                            name, known));
  }
  auto impl = std::make_unique<Impl>();
  int error = 0;
  PCRE2_SIZE offset = 0;
  impl->code.reset(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(rule->pattern), PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error,
                                 &offset, nullptr));
  CHECK(impl->code != nullptr);
  // Where just-in-time compilation is not possible, pcre2_match interprets: slower, the same words.
  pcre2_jit_compile(impl->code.get(), PCRE2_JIT_COMPLETE);
  impl->context.reset(pcre2_match_context_create(nullptr));
  if (impl->context == nullptr) return fail(ErrorCode::out_of_memory, "There is no memory for the tokenizer.");
  pcre2_set_match_limit(impl->context.get(), UINT32_MAX);
  return PreTokenizer(std::move(impl));
}

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  std::vector<std::string_view> words;
  const MatchData match(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  for (size_t position = 0; position < text.size();) {
    const std::string_view valid = text.substr(position, valid_utf8_length(text, position));
    position += valid.size();
    for (size_t offset = 0; offset < valid.size();) {
      const int found = match == nullptr ? PCRE2_ERROR_NOMEMORY
                                         : pcre2_match(impl_->code.get(), reinterpret_cast<PCRE2_SPTR>(valid.data()),
                                                       valid.size(), offset, PCRE2_NO_UTF_CHECK | PCRE2_ANCHORED,
                                                       match.get(), impl_->context.get());
      // The expressions match at every place; should the engine give up, one character is a word and nothing is lost.
      size_t end = offset + next_utf8(valid, offset).length;
      if (found > 0) end = std::max(end, pcre2_get_ovector_pointer(match.get())[1]);
      words.push_back(valid.substr(offset, end - offset));
      offset = end;
    }
    if (position < text.size()) {
      const size_t length = next_utf8(text, position).length;
      words.push_back(text.substr(position, length));
      position += length;
    }
  }
  return words;
}

}  // namespace nanomind
