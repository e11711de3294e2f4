// SPDX-License-Identifier: Apache-2.0
#include "runtime/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace nanomind {
namespace {

// Cache blocks and a state for one sequence, given back at the end.
class Sequence {
 public:
  explicit Sequence(const SessionHost& host) : host_(host) {}
  ~Sequence() {
    for (const int32_t block : blocks_) host_.cache->release(block);
    if (state_) host_.states->release(*state_);
  }
  Sequence(const Sequence&) = delete;
  Sequence& operator=(const Sequence&) = delete;

  Result<void> reserve(int64_t tokens) {
    state_ = host_.states->acquire();
    if (!state_) return fail(ErrorCode::out_of_memory, "All states of this engine are used by open sessions; end one.");
    while (static_cast<int64_t>(blocks_.size()) * kKvBlockTokens < tokens)
      blocks_.push_back(TRY(host_.cache->acquire()));
    return {};
  }
  Result<OutputRows> run(std::span<const TokenId> tokens, int64_t past, std::span<const int32_t> outputs) {
    const SequenceRows rows{
        .blocks = blocks_, .past = past, .rows = static_cast<int64_t>(tokens.size()), .state = *state_};
    return host_.executable->run({.tokens = tokens,
                                  .sequences = {&rows, 1},
                                  .outputs = outputs,
                                  .kv_cache = &host_.cache->buffer(),
                                  .states = host_.states->buffer()});
  }

 private:
  const SessionHost& host_;
  std::vector<int32_t> blocks_;
  std::optional<int32_t> state_;
};

void add(std::span<const float> row, std::vector<float>& sum) {
  if (sum.empty()) sum.resize(row.size());
  for (size_t c = 0; c < row.size(); ++c) sum[c] += row[c];
}

}  // namespace

Result<std::vector<float>> pool_text(const SessionHost& host, const EmbeddingPlan& plan,
                                     std::span<const TokenId> tokens) {
  const auto count = static_cast<int64_t>(tokens.size());
  const int64_t most = plan.whole_sequences ? std::min(host.capacity, host.max_tokens) : host.capacity;
  if (count == 0) return fail(ErrorCode::invalid_argument, "The text has no tokens.");
  if (count > most)
    return fail(ErrorCode::context_full,
                fmt::format("The text has {} tokens, but the model takes {}; cut it into parts.", count, most));
  Sequence sequence(host);
  TRY(sequence.reserve(count));
  std::vector<float> pooled;
  const int64_t step = std::min(host.max_tokens, plan.pooling == Pooling::mean ? host.max_outputs : host.max_tokens);
  for (int64_t past = 0; past < count;) {
    const int64_t rows = std::min(count - past, plan.whole_sequences ? count : step);
    std::vector<int32_t> wanted;
    if (plan.pooling == Pooling::mean) {
      wanted.resize(static_cast<size_t>(rows));
      std::iota(wanted.begin(), wanted.end(), 0);
    } else if (plan.pooling == Pooling::first ? past == 0 : past + rows == count) {
      wanted.push_back(plan.pooling == Pooling::first ? 0 : static_cast<int32_t>(rows - 1));
    }
    const OutputRows out =
        TRY(sequence.run(tokens.subspan(static_cast<size_t>(past), static_cast<size_t>(rows)), past, wanted));
    for (int64_t i = 0; i < out.rows; ++i) add(out.row(i), pooled);
    past += rows;
  }
  if (plan.pooling == Pooling::mean) {
    for (float& v : pooled) v /= static_cast<float>(count);
  }
  return pooled;
}

std::vector<TokenId> text_tokens(const Tokenizer& tokenizer, std::string_view text) {
  std::vector<TokenId> tokens = tokenizer.encode(text, ControlTokens::as_text, Beginning::add_if_model_does);
  if (const std::optional<TokenId> end = tokenizer.closing_token()) tokens.push_back(*end);
  return tokens;
}

std::vector<TokenId> pair_tokens(const Tokenizer& tokenizer, std::string_view rank_template, std::string_view query,
                                 std::string_view document) {
  std::vector<TokenId> tokens;
  const auto append = [&](std::string_view text, ControlTokens control, Beginning beginning) {
    const std::vector<TokenId> more = tokenizer.encode(text, control, beginning);
    tokens.insert(tokens.end(), more.begin(), more.end());
  };
  if (!rank_template.empty()) {
    // What the template says is markup, what goes into it never is.
    for (auto beginning = Beginning::add_if_model_does; !rank_template.empty(); beginning = Beginning::omit) {
      const size_t at = std::min(rank_template.find("{query}"), rank_template.find("{document}"));
      append(rank_template.substr(0, at), ControlTokens::recognise, beginning);
      if (at == std::string_view::npos) break;
      const bool is_query = rank_template.substr(at).starts_with("{query}");
      append(is_query ? query : document, ControlTokens::as_text, Beginning::omit);
      rank_template.remove_prefix(at + (is_query ? sizeof "{query}" : sizeof "{document}") - 1);
    }
    return tokens;
  }
  append(query, ControlTokens::as_text, Beginning::add_if_model_does);
  const std::optional<TokenId> end = tokenizer.closing_token();
  if (end) tokens.push_back(*end);
  if (const std::optional<TokenId> separator = tokenizer.pair_separator()) tokens.push_back(*separator);
  append(document, ControlTokens::as_text, Beginning::omit);
  if (end) tokens.push_back(*end);
  return tokens;
}

float score_of(std::span<const float> result) {
  const float against = result.size() > 1 ? result[1] : 0.0F;
  return 1 / (1 + std::exp(against - result[0]));
}

void normalise(std::span<float> x) {
  double squares = 0;
  for (const float v : x) squares += static_cast<double>(v) * v;
  if (squares == 0) return;
  for (float& v : x) v = static_cast<float>(v / std::sqrt(squares));
}

}  // namespace nanomind
