// SPDX-License-Identifier: Apache-2.0
#include "runtime/embedding.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <memory>

namespace nanomind {
namespace {

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
  const std::unique_ptr<Session> session = TRY(LocalSession::open(host));
  if (plan.pooling == Pooling::last) {
    TRY(session->feed(tokens, nullptr));
    return std::vector<float>(session->logits().begin(), session->logits().end());
  }
  std::vector<float> pooled;
  TRY(session->score(tokens, 0, [&](int64_t position, std::span<const float> row) {
    if (plan.pooling == Pooling::mean || position == 0) add(row, pooled);
  }));
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
