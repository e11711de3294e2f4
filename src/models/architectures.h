// SPDX-License-Identifier: Apache-2.0
// One builder per architecture file; only registry.cc calls them.
#pragma once

#include "base/result.h"
#include "format/gguf.h"
#include "models/registry.h"

namespace nanomind {

Result<Model> build_gemma2(const GgufFile& file);
Result<Model> build_gemma3(const GgufFile& file);
Result<Model> build_granite(const GgufFile& file);
Result<Model> build_granitemoe(const GgufFile& file);
Result<Model> build_lfm2(const GgufFile& file);
Result<Model> build_llama(const GgufFile& file);
Result<Model> build_phi3(const GgufFile& file);
Result<Model> build_qwen2(const GgufFile& file);
Result<Model> build_qwen3(const GgufFile& file);
Result<Model> build_qwen3moe(const GgufFile& file);
Result<Model> build_smollm3(const GgufFile& file);
Result<Model> build_qwen35(const GgufFile& file);

}  // namespace nanomind
