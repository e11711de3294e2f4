// SPDX-License-Identifier: Apache-2.0
// One builder per architecture file; only registry.cc calls them.
#pragma once

#include "base/result.h"
#include "format/gguf.h"
#include "models/registry.h"

namespace nanomind {

Result<Model> build_arcee(const GgufFile& file);
Result<Model> build_bert(const GgufFile& file);
Result<Model> build_chatglm(const GgufFile& file);
Result<Model> build_cohere2(const GgufFile& file);
Result<Model> build_command_r(const GgufFile& file);
Result<Model> build_dots1(const GgufFile& file);
Result<Model> build_ernie4_5(const GgufFile& file);
Result<Model> build_ernie4_5_moe(const GgufFile& file);
Result<Model> build_exaone(const GgufFile& file);
Result<Model> build_exaone4(const GgufFile& file);
Result<Model> build_gemma(const GgufFile& file);
Result<Model> build_gemma2(const GgufFile& file);
Result<Model> build_gemma3(const GgufFile& file);
Result<Model> build_gemma3n(const GgufFile& file);
Result<Model> build_glm4(const GgufFile& file);
Result<Model> build_glm4moe(const GgufFile& file);
Result<Model> build_gpt2(const GgufFile& file);
Result<Model> build_gptneox(const GgufFile& file);
Result<Model> build_granite(const GgufFile& file);
Result<Model> build_granitemoe(const GgufFile& file);
Result<Model> build_hunyuan_dense(const GgufFile& file);
Result<Model> build_hunyuan_moe(const GgufFile& file);
Result<Model> build_internlm2(const GgufFile& file);
Result<Model> build_lfm2(const GgufFile& file);
Result<Model> build_llama(const GgufFile& file);
Result<Model> build_minicpm(const GgufFile& file);
Result<Model> build_mistral3(const GgufFile& file);
Result<Model> build_nemotron(const GgufFile& file);
Result<Model> build_nomic_bert(const GgufFile& file);
Result<Model> build_olmo2(const GgufFile& file);
Result<Model> build_olmoe(const GgufFile& file);
Result<Model> build_phi2(const GgufFile& file);
Result<Model> build_phi3(const GgufFile& file);
Result<Model> build_qwen2(const GgufFile& file);
Result<Model> build_qwen2moe(const GgufFile& file);
Result<Model> build_qwen2vl(const GgufFile& file);
Result<Model> build_qwen3(const GgufFile& file);
Result<Model> build_qwen35(const GgufFile& file);
Result<Model> build_qwen3moe(const GgufFile& file);
Result<Model> build_qwen3vl(const GgufFile& file);
Result<Model> build_seed_oss(const GgufFile& file);
Result<Model> build_smollm3(const GgufFile& file);
Result<Model> build_stablelm(const GgufFile& file);
Result<Model> build_starcoder2(const GgufFile& file);

}  // namespace nanomind
