// SPDX-License-Identifier: Apache-2.0
#include "runtime/generation.h"

#include <fmt/format.h>

#include "text/utf8.h"

namespace nanomind {
namespace {

constexpr size_t kMostStopBytes = 4096;
constexpr size_t kMostStops = 64;

}  // namespace

Result<void> check(const GenerateOptions& options) {
  TRY(check(options.sampler));
  if (options.logprobs < -1 || options.logprobs > kMostLogprobs) {
    return fail(ErrorCode::invalid_argument, fmt::format("{} log-probabilities were asked for; 0 to {} can be given.",
                                                         options.logprobs, kMostLogprobs));
  }
  if (options.stop.size() > kMostStops) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("There are {} stop strings; at most {} are taken.", options.stop.size(), kMostStops));
  }
  for (const std::string& stop : options.stop) {
    if (stop.empty() || stop.size() > kMostStopBytes || valid_utf8_length(stop, 0) != stop.size()) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("A stop string must be UTF-8 text of 1 to {} bytes.", kMostStopBytes));
    }
  }
  const SpeculationOptions& speculation = options.speculation;
  if (speculation.kind != SpeculationOptions::Kind::none && (speculation.most < 1 || speculation.most > kMostDrafts)) {
    return fail(ErrorCode::invalid_argument, fmt::format("{} tokens to guess at a time were asked for; choose 1 to {}.",
                                                         speculation.most, kMostDrafts));
  }
  if (speculation.kind == SpeculationOptions::Kind::model && speculation.draft == nullptr)
    return fail(ErrorCode::invalid_argument, "Guessing with a small model needs a session of it.");
  if (options.reasoning && (options.reasoning->markers.open.empty() || options.reasoning->markers.close.empty())) {
    return fail(ErrorCode::invalid_argument, "The markers of reasoning must not be empty.");
  }
  return {};
}

}  // namespace nanomind
