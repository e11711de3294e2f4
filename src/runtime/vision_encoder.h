// SPDX-License-Identifier: Apache-2.0
// From a tile of a picture to rows that a language model reads between its token embeddings: the bricks of a vision
// model, a tower and a projector, loaded on one device.
#pragma once

#include <atomic>
#include <filesystem>
#include <functional>
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
  std::filesystem::path packed_folder;  // of its side file; empty: beside the file
  PromptPrecision precision = PromptPrecision::fast;
  Log log;
};

class VisionEncoder {
 public:
  // `model` is what build_vision made of `file`; both and the device outlive the result. Errors: those of packing and
  // compiling; out_of_memory.
  static Result<std::unique_ptr<VisionEncoder>> load(Device& device, const GgufFile& file, const VisionModel& model,
                                                     const VisionOptions& options);

  uint64_t weight_bytes() const { return weights_->size_bytes(); }
  uint64_t activation_bytes() const;

  // Where the next rows [count, width] go; count is at most kPieceRows. Whatever was given before is complete then. An
  // error ends the work.
  using Room = std::function<Result<std::span<float>>(int64_t count)>;
  static constexpr int64_t kPieceRows = 64;

  // Makes the rows of a tile: the projector writes them straight to where `room` says, some at a time. Not for two
  // threads at once. Errors: cancelled, those of `room`.
  Result<void> encode(const Image& tile, const Room& room, const std::atomic<bool>* cancel);

 private:
  struct Stage {
    std::unique_ptr<Executable> executable;
    std::unique_ptr<Buffer> cache;
  };
  explicit VisionEncoder(const VisionModel& model) : model_(model) {}
  Result<void> prepare(Device& device, const GgufFile& file, const VisionOptions& options);
  // The patches of a tile as the input of the first stage.
  void give(const Image& tile, const TileLayout& layout);
  // Rows of a stage's result as the input of the next.
  void give(const OutputRows& rows, const VisionStage& next);
  Result<OutputRows> run(size_t stage, std::span<const int32_t> outputs, std::span<float> results,
                         const TileLayout& layout, const std::atomic<bool>* cancel);

  const VisionModel& model_;
  // Order matters: what is declared later refers to what stands above.
  std::optional<PackedWeights> weights_;
  std::vector<WeightBinding> bindings_;
  std::vector<Stage> stages_;
  std::vector<int32_t> blocks_, tokens_, all_;  // of a step of the largest tile
  std::vector<float> patches_;                  // [T, 3 * P * P]
  std::vector<float> joined_;                   // rows that are not neighbours in memory
  std::vector<const float*> given_;
};

}  // namespace nanomind
