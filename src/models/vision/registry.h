// SPDX-License-Identifier: Apache-2.0
// The builders of vision models: what registry.cc lists.
#pragma once

#include "models/vision.h"

namespace nanomind {

Result<VisionModel> build_llava(const GgufFile& file);
Result<VisionModel> build_idefics3(const GgufFile& file);
Result<VisionModel> build_minicpmv4_6(const GgufFile& file);
Result<VisionModel> build_gemma3_vision(const GgufFile& file);
Result<VisionModel> build_qwen25_vision(const GgufFile& file);
Result<VisionModel> build_qwen3_vision(const GgufFile& file);

}  // namespace nanomind
