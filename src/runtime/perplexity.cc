// SPDX-License-Identifier: Apache-2.0
#include "runtime/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "runtime/logprobs.h"

namespace nanomind {
Result<std::vector<std::vector<TokenId>>> perplexity_chunks(const Tokenizer& tokenizer, std::string_view text,
                                                            const PerplexityOptions& options) {
  if (options.context < 4) return fail(ErrorCode::invalid_argument, "A chunk has 4 tokens or more.");
  const std::vector<TokenId> tokens = tokenizer.encode(text, ControlTokens::as_text, Beginning::add_if_model_does);
  const int64_t available = static_cast<int64_t>(tokens.size()) / options.context;
  const int64_t count = options.chunks < 0 ? available : std::min(options.chunks, available);
  if (count < 1) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("The text has {} tokens, fewer than one chunk of {}; choose a smaller --ctx or a longer text.",
                    tokens.size(), options.context));
  }
  std::vector<std::vector<TokenId>> chunks;
  for (int64_t i = 0; i < count; ++i) {
    const auto begin = tokens.begin() + i * options.context;
    auto& chunk = chunks.emplace_back(begin, begin + options.context);
    if (tokenizer.adds_beginning() && tokenizer.beginning_token()) chunk[0] = *tokenizer.beginning_token();
  }
  return chunks;
}

Result<PerplexityResult> perplexity(Engine& engine, std::string_view text, const PerplexityOptions& options) {
  if (options.context > engine.info().context) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("Chunks of {} tokens do not fit; choose 4 to {}.", options.context, engine.info().context));
  }
  const auto chunks = TRY(perplexity_chunks(engine.tokenizer(), text, options));
  PerplexityResult result;
  double total = 0;
  for (const std::vector<TokenId>& ids : chunks) {
    const std::unique_ptr<Session> session = TRY(engine.open_session());
    Result<void> status;
    TRY(session->score(std::span(ids).first(ids.size() - 1), options.context / 2,
                       [&](int64_t position, std::span<const float> logits) {
                         const auto next = static_cast<size_t>(ids[static_cast<size_t>(position + 1)]);
                         const double value = logits[next] - log_sum_exp(logits);
                         total += value;
                         result.log_probabilities.push_back(static_cast<float>(value));
                         if (status && options.on_logits) status = options.on_logits(logits);
                       }));
    TRY(status);
    ++result.chunks;
    result.perplexity = std::exp(-total / static_cast<double>(result.log_probabilities.size()));
    if (options.on_chunk) options.on_chunk(result.chunks, static_cast<int64_t>(chunks.size()), result.perplexity);
  }
  return result;
}

}  // namespace nanomind
