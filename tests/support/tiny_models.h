// SPDX-License-Identifier: Apache-2.0
// The tiny random models of tests/data with expected logits in tests/golden, which tools/golden makes.
#pragma once

#include <algorithm>
#include <string>

namespace nanomind::testing {

// tests/data/tiny-<name>.gguf and tests/golden/tiny-<name>.json. The first three are of quantised types.
inline constexpr const char* kTinyModels[] = {
    "gemma3",  "llama",   "qwen2", "gemma2", "granite",  "granitemoe", "llama-linear", "llama-yarn", "llama3",
    "mistral", "mixtral", "phi3",  "qwen3",  "qwen3moe", "smollm3",    "qwen35",       "lfm2",
};

// A name as googletest wants it.
inline std::string test_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace nanomind::testing
