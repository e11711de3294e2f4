// SPDX-License-Identifier: Apache-2.0
#include "runtime/penalties.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <string_view>
#include <utility>

namespace nanomind {
namespace {

std::span<const TokenId> last(std::span<const TokenId> tokens, int window) {
  return window < 0 ? tokens : tokens.last(std::min(tokens.size(), static_cast<size_t>(window)));
}

// For each place i of `tokens`, how many tokens that end there equal those that end the whole (the Z algorithm from
// behind); the last place is left out. Linear time.
void match_ends(std::span<const TokenId> tokens, std::span<uint32_t> matches) {
  const size_t n = tokens.size();
  const auto from_behind = [&](size_t i) { return tokens[n - 1 - i]; };
  size_t left = 0, right = 0;  // the match that reaches furthest, counted from behind
  for (size_t i = 1; i < n; ++i) {
    size_t length = i < right ? std::min<size_t>(right - i, matches[n - 1 - (i - left)]) : 0;
    while (i + length < n && from_behind(length) == from_behind(i + length)) ++length;
    if (i + length > right) left = i, right = i + length;
    matches[n - 1 - i] = static_cast<uint32_t>(length);
  }
}

}  // namespace

Penalties::Penalties(const SamplerOptions& options, size_t vocabulary, const Tokenizer* tokenizer)
    : options_(options),
      tokenizer_(tokenizer),
      repeats_(options.repetition_window != 0 &&
               (options.repetition_penalty != 1 || options.presence_penalty != 0 || options.frequency_penalty != 0)),
      dry_(options.dry.multiplier > 0 && options.dry.window > 0),
      counts_(vocabulary) {
  if (!dry_) return;
  matches_.resize(static_cast<size_t>(options.dry.window));
  breaks_.resize(vocabulary);
  if (tokenizer == nullptr) return;
  for (size_t id = 0; id < vocabulary; ++id) {
    const std::string_view bytes = tokenizer->bytes(static_cast<TokenId>(id));
    const bool breaks = std::ranges::any_of(
        options.dry.breakers, [&](const std::string& b) { return bytes.find(b) != std::string_view::npos; });
    breaks_[id] = breaks ? 1 : 0;
  }
}

void Penalties::apply(std::span<float> logits, std::span<const TokenId> recent) {
  if (repeats_) apply_repeats(logits, last(recent, options_.repetition_window));
  if (dry_) apply_dry(logits, last(recent, options_.dry.window));
}

void Penalties::apply_repeats(std::span<float> logits, std::span<const TokenId> recent) {
  for (const TokenId token : recent) {
    if (known(token)) ++counts_[static_cast<size_t>(token)];
  }
  const auto penalty = static_cast<float>(options_.repetition_penalty);
  for (const TokenId token : recent) {
    if (!known(token)) continue;
    const int32_t count = std::exchange(counts_[static_cast<size_t>(token)], 0);
    if (count == 0) continue;
    float& logit = logits[static_cast<size_t>(token)];
    logit = logit > 0 ? logit / penalty : logit * penalty;
    logit -= static_cast<float>(options_.presence_penalty + count * options_.frequency_penalty);
  }
}

size_t Penalties::end_of_breaker(std::span<const TokenId> recent, size_t first, std::string_view breaker) const {
  const std::string_view head = tokenizer_->bytes(recent[first]);
  for (size_t start = 0; start < head.size(); ++start) {
    size_t token = first, at = start, matched = 0;
    while (matched < breaker.size()) {
      const std::string_view bytes = tokenizer_->bytes(recent[token]);
      if (at == bytes.size()) {
        if (++token == recent.size()) break;
        at = 0;
      } else if (bytes[at++] == breaker[matched]) {
        ++matched;
      } else {
        break;
      }
    }
    if (matched == breaker.size()) return token;
  }
  return std::numeric_limits<size_t>::max();
}

size_t Penalties::tokens_after_breaker(std::span<const TokenId> recent) const {
  if (tokenizer_ == nullptr) return recent.size();
  for (size_t i = recent.size(); i-- > 0;) {
    size_t end = 0;
    bool found = false;
    for (const std::string& breaker : options_.dry.breakers) {
      const size_t token = end_of_breaker(recent, i, breaker);
      if (token == std::numeric_limits<size_t>::max()) continue;
      end = std::max(end, token);
      found = true;
    }
    if (found) return recent.size() - 1 - end;
  }
  return recent.size();
}

void Penalties::apply_dry(std::span<float> logits, std::span<const TokenId> recent) {
  const auto& dry = options_.dry;
  const size_t limit = tokens_after_breaker(recent);
  if (limit < static_cast<size_t>(dry.allowed_length)) return;
  match_ends(recent, matches_);
  // A match that ends at i was followed by the token at i + 1, which would make it longer.
  for (size_t i = 0; i + 1 < recent.size(); ++i) {
    const auto length = static_cast<int32_t>(std::min<size_t>(matches_[i], limit));
    const TokenId next = recent[i + 1];
    if (length < dry.allowed_length || !known(next) || breaks_[static_cast<size_t>(next)]) continue;
    counts_[static_cast<size_t>(next)] = std::max(counts_[static_cast<size_t>(next)], length);
  }
  for (const TokenId token : recent) {
    if (!known(token)) continue;
    const int32_t length = std::exchange(counts_[static_cast<size_t>(token)], 0);
    if (length == 0) continue;
    const double penalty = dry.multiplier * std::pow(dry.base, length - dry.allowed_length);
    logits[static_cast<size_t>(token)] -= static_cast<float>(std::min(penalty, 1e6));
  }
}

}  // namespace nanomind
