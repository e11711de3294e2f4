// SPDX-License-Identifier: Apache-2.0
// The tiny random models of tests/data with expected logits in tests/golden, which tools/golden makes.
#pragma once

#include <algorithm>
#include <string>

namespace nanomind::testing {

// tests/data/tiny-<name>.gguf and tests/golden/tiny-<name>.json. The first four are of quantised types.
inline constexpr const char* kTinyModels[] = {
    "gemma3",    "llama",    "qwen2",        "types",      "arcee",   "chatglm",    "cohere2",       "command-r",
    "dots1",     "ernie4_5", "ernie4_5-moe", "exaone",     "exaone4", "gemma",      "gemma2",        "gemma3n",
    "glm4",      "glm4moe",  "gpt2",         "gptneox",    "granite", "granitemoe", "hunyuan-dense", "hunyuan-moe",
    "internlm2", "lfm2",     "llama-linear", "llama-yarn", "llama3",  "minicpm",    "mistral",       "mistral3",
    "mixtral",   "nemotron", "olmo2",        "olmo3",      "olmoe",   "phi2",       "phi3",          "qwen2moe",
    "qwen3",     "qwen35",   "qwen3moe",     "seed_oss",   "smollm3", "stablelm",   "starcoder2",
};

// The same of models that do not write: their results stand where logits would.
inline constexpr const char* kTinyEncoders[] = {"bert", "nomic-bert", "xlm-roberta"};

// All instruction sets; what a machine lacks cannot be loaded.
inline constexpr const char* kIsas[] = {"scalar", "avx2", "avx512", "amx", "neon", "dotprod", "i8mm"};

// A name as googletest wants it.
inline std::string test_name(std::string name) {
  std::ranges::replace(name, '-', '_');
  return name;
}

}  // namespace nanomind::testing
