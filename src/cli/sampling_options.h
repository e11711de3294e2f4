// SPDX-License-Identifier: Apache-2.0
// Options that say how tokens are chosen and where an answer stops.
#pragma once

#include <CLI/App.hpp>
#include <string>
#include <vector>

#include "base/result.h"
#include "cli/settings.h"
#include "runtime/sampler_options.h"

namespace nanomind {

struct SamplingFlags {
  SamplerOptions sampler;
  std::vector<std::string> logit_bias;  // TOKEN=X as typed
};

// Values are read when the parser has run; `flags` and `settings` outlive it.
void add_sampling_options(CLI::App& command, SamplingFlags& flags, const Settings& settings);

// The sampler's options with the biases that were typed, which need the model's tokens.
Result<SamplerOptions> sampler_options(const SamplingFlags& flags, const Tokenizer& tokenizer);

}  // namespace nanomind
