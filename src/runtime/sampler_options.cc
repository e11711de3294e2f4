// SPDX-License-Identifier: Apache-2.0
#include "runtime/sampler_options.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>

#include "text/utf8_stream.h"

namespace nanomind {
namespace {

std::unexpected<Error> outside(const char* what, double value, const char* range) {
  return fail(ErrorCode::invalid_argument, fmt::format("{} is {}; it must be {}.", what, value, range));
}

// False for NaN.
bool within(double value, double low, double high) { return value >= low && value <= high; }

Result<void> check(const DryOptions& o) {
  if (!within(o.multiplier, 0, 100)) return outside("The DRY multiplier", o.multiplier, "0 (off) to 100");
  if (!within(o.base, 1, 100)) return outside("The DRY base", o.base, "1 to 100");
  if (!within(o.allowed_length, 1, kMostWindow)) return outside("The DRY length", o.allowed_length, "1 or more tokens");
  if (!within(o.window, 0, kMostWindow)) return outside("The DRY window", o.window, "0 to 1048576 tokens");
  if (std::ranges::any_of(o.breakers, &std::string::empty)) {
    return fail(ErrorCode::invalid_argument, "A DRY breaker is empty; it must be a text such as a new line.");
  }
  return {};
}

}  // namespace

Result<LogitBias> bias_text(const Tokenizer& tokenizer, std::string_view text, double bias) {
  const auto tokens = tokenizer.encode(text, ControlTokens::recognise, Beginning::omit);
  if (tokens.size() == 1) return LogitBias{tokens[0], bias};
  std::string parts;
  for (const TokenId token : tokens) {
    const std::string_view bytes = tokenizer.bytes(token);
    Utf8Stream utf8;
    const std::string shown = utf8.push(bytes.empty() ? tokenizer.piece(token) : bytes) + utf8.finish();
    parts += fmt::format("{}{} ('{}')", parts.empty() ? "" : ", ", token, shown);
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("'{}' is {} tokens, not one: {}. Give those that are meant by their ids.", text,
                          tokens.size(), parts));
}

Result<void> check(const SamplerOptions& o) {
  if (!within(o.temperature, 0, 100)) return outside("The temperature", o.temperature, "0 to 100");
  if (o.top_k < 0) return outside("top-k", o.top_k, "0 (all) or more");
  if (!(o.top_p > 0 && o.top_p <= 1)) return outside("top-p", o.top_p, "above 0 and at most 1");
  if (!within(o.min_p, 0, 1)) return outside("min-p", o.min_p, "0 to 1");
  if (!(o.typical_p > 0 && o.typical_p <= 1)) return outside("typical-p", o.typical_p, "above 0 and at most 1");
  if (!(o.repetition_penalty > 0 && o.repetition_penalty <= 100)) {
    return outside("The repetition penalty", o.repetition_penalty, "above 0 and at most 100");
  }
  if (!within(o.presence_penalty, -100, 100)) return outside("The presence penalty", o.presence_penalty, "-100 to 100");
  if (!within(o.frequency_penalty, -100, 100)) {
    return outside("The frequency penalty", o.frequency_penalty, "-100 to 100");
  }
  if (o.repetition_window < -1) {
    return outside("The repetition window", o.repetition_window, "0 or more tokens, or -1 for all");
  }
  TRY(check(o.dry));
  if (!within(o.xtc.probability, 0, 1)) return outside("The XTC probability", o.xtc.probability, "0 (off) to 1");
  if (!within(o.xtc.threshold, 0, 1)) return outside("The XTC threshold", o.xtc.threshold, "0 to 1");
  if (!within(o.mirostat.tau, 0, 100)) return outside("Mirostat's tau", o.mirostat.tau, "0 to 100 bits");
  if (!within(o.mirostat.eta, 0, 1)) return outside("Mirostat's eta", o.mirostat.eta, "0 to 1");
  for (const LogitBias& bias : o.logit_bias) {
    if (bias.token < 0) return outside("A token of the logit bias", bias.token, "an id of the model's vocabulary");
    if (!(bias.bias <= 1e6)) return outside("A logit bias", bias.bias, "a number, or -inf to ban the token");
  }
  return {};
}

}  // namespace nanomind
