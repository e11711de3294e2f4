// SPDX-License-Identifier: Apache-2.0
#include "runtime/perplexity.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

namespace nanomind {
namespace {

double log_probability(std::span<const float> logits, TokenId token) {
  const double best = *std::max_element(logits.begin(), logits.end());
  double sum = 0;
  for (float logit : logits) sum += std::exp(static_cast<double>(logit) - best);
  return static_cast<double>(logits[static_cast<size_t>(token)]) - best - std::log(sum);
}

}  // namespace

Result<PerplexityResult> perplexity(Engine& engine, std::string_view text, const PerplexityOptions& options) {
  const Tokenizer& tokenizer = engine.tokenizer();
  if (options.context < 4 || options.context > engine.info().context) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("Chunks of {} tokens do not fit; choose 4 to {}.", options.context, engine.info().context));
  }
  const std::vector<TokenId> tokens = tokenizer.encode(text, ControlTokens::as_text, Beginning::add_if_model_does);
  const int64_t available = static_cast<int64_t>(tokens.size()) / options.context;
  const int64_t chunks = options.chunks < 0 ? available : std::min(options.chunks, available);
  if (chunks < 1) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("The text has {} tokens, fewer than one chunk of {}; choose a smaller --ctx or a longer text.",
                    tokens.size(), options.context));
  }

  PerplexityResult result;
  double total = 0;
  for (int64_t chunk = 0; chunk < chunks; ++chunk) {
    const auto begin = tokens.begin() + chunk * options.context;
    std::vector<TokenId> ids(begin, begin + options.context);
    if (tokenizer.adds_beginning() && tokenizer.beginning_token()) ids[0] = *tokenizer.beginning_token();
    const std::unique_ptr<Session> session = TRY(engine.open_session());
    // Positions context/2 .. context - 2, each predicting the next token.
    TRY(session->score(std::span(ids).first(ids.size() - 1), options.context / 2,
                       [&](int64_t position, std::span<const float> logits) {
                         const double value = log_probability(logits, ids[static_cast<size_t>(position + 1)]);
                         total += value;
                         result.log_probabilities.push_back(static_cast<float>(value));
                         if (options.on_logits) options.on_logits(logits);
                       }));
    result.chunks = chunk + 1;
    result.perplexity = std::exp(-total / static_cast<double>(result.log_probabilities.size()));
    if (options.on_chunk) options.on_chunk(result.chunks, chunks, result.perplexity);
  }
  return result;
}

}  // namespace nanomind
