// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <pcre2.h>

#include <cstdint>
#include <utility>

#include "text/pretokenizer_rules.h"
#include "text/utf8.h"

namespace nanomind {
namespace {

using Code = std::unique_ptr<pcre2_code, decltype(&pcre2_code_free)>;
using MatchData = std::unique_ptr<pcre2_match_data, decltype(&pcre2_match_data_free)>;
using MatchContext = std::unique_ptr<pcre2_match_context, decltype(&pcre2_match_context_free)>;
using Words = std::vector<std::string_view>;

// Adds the places in `text` between threes of characters, counted from the end of [begin, end).
void add_threes(std::string_view text, size_t begin, size_t end, std::vector<size_t>& cuts) {
  size_t left = 0;  // characters from here to the end
  for (size_t i = begin; i < end; i += next_utf8(text, i).length) ++left;
  for (size_t i = begin; i < end; i += next_utf8(text, i).length, --left) {
    if (left % 3 == 0) cuts.push_back(i);
  }
}

}  // namespace

struct PreTokenizer::Impl {
  const PreTokenizerRule* rule = nullptr;
  std::vector<Code> codes;  // of the rule's steps
  MatchContext context{nullptr, &pcre2_match_context_free};

  // The first match at or after `position`, as positions in `text`, which is UTF-8; empty: there is none.
  std::pair<size_t, size_t> find(const Code& code, std::string_view text, size_t position,
                                 const MatchData& match) const {
    const auto run = [&](uint32_t options) {
      return pcre2_match(code.get(), reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), position,
                         PCRE2_NO_UTF_CHECK | options, match.get(), context.get());
    };
    int found = run(0);
    if (found < 0 && found != PCRE2_ERROR_NOMATCH) found = run(PCRE2_NO_JIT);  // without the limit of its stack
    if (found < 0) return {text.size(), text.size()};
    const PCRE2_SIZE* ends = pcre2_get_ovector_pointer(match.get());
    return {ends[0], ends[1]};
  }

  // Cuts one word by one step.
  void cut(size_t step, std::string_view text, const MatchData& match, Words& words) const {
    const Cut kind = rule->steps[step].cut;
    std::vector<size_t> cuts;
    for (size_t position = 0; position < text.size();) {
      const auto [begin, end] = find(codes[step], text, position, match);
      if (begin == end) break;
      if (kind != Cut::inside_threes) cuts.push_back(begin);
      if (kind != Cut::around) add_threes(text, begin, end, cuts);
      if (kind != Cut::inside_threes) cuts.push_back(end);
      position = end;
    }
    cuts.push_back(text.size());
    size_t done = 0;
    for (const size_t place : cuts) {
      if (place > done) words.push_back(text.substr(done, place - done));
      done = place;
    }
  }
};

Result<PreTokenizer> PreTokenizer::create(std::string_view name) {
  auto impl = std::make_unique<Impl>();
  impl->rule = find_pre_tokenizer_rule(name);
  if (impl->rule == nullptr) {
    return fail(ErrorCode::unsupported,
                fmt::format("The model's pre-tokenizer is \"{}\", which is not supported; known ones: {}. Convert the "
                            "model again with a current converter, or choose another model.",
                            name, fmt::join(pre_tokenizer_names(), ", ")));
  }
  for (const CutStep& step : impl->rule->steps) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    Code& code = impl->codes.emplace_back(pcre2_compile(reinterpret_cast<PCRE2_SPTR>(step.pattern),
                                                        PCRE2_ZERO_TERMINATED, PCRE2_UTF, &error, &offset, nullptr),
                                          &pcre2_code_free);
    CHECK(code != nullptr);
    // Where just-in-time compilation is not possible, pcre2_match interprets: slower, the same words.
    pcre2_jit_compile(code.get(), PCRE2_JIT_COMPLETE);
  }
  impl->context.reset(pcre2_match_context_create(nullptr));
  if (impl->context == nullptr) return fail(ErrorCode::out_of_memory, "There is no memory for the tokenizer.");
  pcre2_set_match_limit(impl->context.get(), UINT32_MAX);
  return PreTokenizer(std::move(impl));
}

PreTokenizer::PreTokenizer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
PreTokenizer::PreTokenizer(PreTokenizer&&) noexcept = default;
PreTokenizer& PreTokenizer::operator=(PreTokenizer&&) noexcept = default;
PreTokenizer::~PreTokenizer() = default;

bool PreTokenizer::takes_whole_words() const { return impl_->rule->takes_whole_words; }

std::vector<std::string_view> PreTokenizer::split(std::string_view text) const {
  Words words, now, next;
  const MatchData match(pcre2_match_data_create(1, nullptr), &pcre2_match_data_free);
  for (size_t position = 0; position < text.size();) {
    const std::string_view valid = text.substr(position, valid_utf8_length(text, position));
    position += valid.size();
    now.assign(valid.empty() ? 0 : 1, valid);
    for (size_t step = 0; match != nullptr && step < impl_->codes.size(); ++step) {
      next.clear();
      for (const std::string_view word : now) impl_->cut(step, word, match, next);
      now.swap(next);
    }
    words.insert(words.end(), now.begin(), now.end());
    if (position < text.size()) {
      const size_t length = next_utf8(text, position).length;
      words.push_back(text.substr(position, length));
      position += length;
    }
  }
  return words;
}

}  // namespace nanomind
