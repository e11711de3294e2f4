// SPDX-License-Identifier: Apache-2.0
// From a picture to rows that a language model reads between its token embeddings: a tower and a projector, two bricks
// on one device.
#pragma once

#include <atomic>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "device/device.h"
#include "format/gguf.h"
#include "format/packed_file.h"
#include "media/image.h"
#include "models/vision.h"
#include "runtime/weight_binding.h"

namespace nanomind {

struct VisionOptions {
  std::filesystem::path file;           // a GGUF file of a tower and a projector
  std::filesystem::path packed_folder;  // of its side file
  std::filesystem::path model;          // of the language model, for errors
  int64_t model_width = 0;              // E of the language model
  PromptPrecision precision = PromptPrecision::fast;
  Log log;
};

class VisionEncoder {
 public:
  // Errors: those of reading a model; invalid_argument when the rows do not fit the language model; out_of_memory. The
  // device outlives the result.
  static Result<std::unique_ptr<VisionEncoder>> load(Device& device, const VisionOptions& options);

  int64_t tokens() const { return model_.tokens; }
  int64_t width() const { return model_.width; }
  uint64_t weight_bytes() const { return weights_->size_bytes(); }

  // Writes the picture's rows [tokens, width]. Not for two threads at once. Errors: cancelled.
  Result<void> encode(const Image& picture, std::span<float> rows, const std::atomic<bool>* cancel);

 private:
  VisionEncoder(GgufFile file, VisionModel model) : file_(std::move(file)), model_(std::move(model)) {}
  Result<void> prepare(Device& device, const VisionOptions& options);

  // Order matters: what is declared later refers to what stands above.
  GgufFile file_;
  VisionModel model_;
  std::optional<PackedWeights> weights_;
  std::optional<WeightBinding> tower_weights_, projector_weights_;
  std::unique_ptr<Executable> tower_, projector_;
  std::unique_ptr<Buffer> tower_cache_, projector_cache_;
  std::vector<int32_t> blocks_, tokens_, outputs_;  // of a step of one picture
  std::vector<float> patches_;                      // [T, 3 * P * P]
  std::vector<const float*> given_;
};

}  // namespace nanomind
