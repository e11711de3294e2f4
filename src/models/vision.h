// SPDX-License-Identifier: Apache-2.0
// Models that see: a tower, which turns patches of a picture into states, and a projector, which turns those into rows
// that stand between a language model's token embeddings. Files are those of llama.cpp ("mmproj", arch "clip").
#pragma once

#include <array>
#include <cstdint>
#include <string>

#include "base/result.h"
#include "format/gguf.h"
#include "ops/program.h"

namespace nanomind {

// How a picture of any shape becomes the square that the tower reads.
enum class PictureFit : uint8_t {
  pad,  // whole, bicubic, with borders (LLaVA)
};

struct VisionModel {
  std::string projector_type;
  int64_t image_size = 0;  // pixels of a side
  int64_t patch_size = 0;
  int64_t tokens = 0;  // rows per picture
  int64_t width = 0;   // floats of a row: E of the language model
  PictureFit fit = PictureFit::pad;
  std::array<uint8_t, 3> border{122, 116, 104};  // CLIP's mean colour, as its processors round it
  std::array<float, 3> mean{}, deviation{};      // of each channel, of samples from 0 to 1
  Program tower;                                 // input [T, 3 * P * P], all patches of one picture -> [T, C]
  Program projector;                             // input [T, C] -> [T, E]
};

// Reads parameters, checks all weights and records both programs; failures as for build_model. The result does not
// refer to the file.
Result<VisionModel> build_vision(const GgufFile& file);

}  // namespace nanomind
