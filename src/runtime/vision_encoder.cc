// SPDX-License-Identifier: Apache-2.0
#include "runtime/vision_encoder.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>
#include <utility>

#include "media/fit.h"
#include "media/patches.h"

namespace nanomind {
namespace {

Image fit(const VisionModel& model, const Image& picture) {
  const Size canvas{.width = static_cast<int>(model.image_size), .height = static_cast<int>(model.image_size)};
  switch (model.fit) {
    case PictureFit::pad:
      return fit_inside(picture, canvas, Filter::bicubic,
                        {.red = model.border[0], .green = model.border[1], .blue = model.border[2]});
  }
  return picture;
}

}  // namespace

Result<std::unique_ptr<VisionEncoder>> VisionEncoder::load(Device& device, const VisionOptions& options) {
  GgufFile file = TRY(GgufFile::open(options.file));
  VisionModel model = TRY(build_vision(file));
  if (model.width != options.model_width) {
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("{} makes rows of {} numbers, but {} reads rows of {}: they do not belong together. Use the "
                    "file that was published with the language model.",
                    options.file.string(), model.width, options.model.string(), options.model_width));
  }
  std::unique_ptr<VisionEncoder> encoder(new VisionEncoder(std::move(file), std::move(model)));
  TRY(encoder->prepare(device, options));
  return encoder;
}

Result<void> VisionEncoder::prepare(Device& device, const VisionOptions& options) {
  const std::filesystem::path folder =
      options.packed_folder.empty() ? options.file.parent_path() : options.packed_folder;
  weights_.emplace(TRY(open_or_pack(file_, options.file, {.directory = folder, .log = &options.log})));
  tower_weights_.emplace(TRY(WeightBinding::bind(model_.tower, file_, *weights_)));
  projector_weights_.emplace(TRY(WeightBinding::bind(model_.projector, file_, *weights_)));
  const auto compile = [&](const Program& program, const WeightBinding& weights) {
    return device.compile(program, {.weights = weights.views(),
                                    .max_tokens = model_.tokens,
                                    .max_outputs = model_.tokens,
                                    .precision = options.precision});
  };
  tower_ = TRY(compile(model_.tower, *tower_weights_));
  projector_ = TRY(compile(model_.projector, *projector_weights_));
  const int64_t blocks = (model_.tokens + kKvBlockTokens - 1) / kKvBlockTokens;
  tower_cache_ = TRY(device.allocate(tower_->kv_block_bytes() * static_cast<size_t>(blocks)));
  projector_cache_ = TRY(device.allocate(std::max<size_t>(1, projector_->kv_block_bytes())));
  blocks_.resize(static_cast<size_t>(blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  const auto tokens = static_cast<size_t>(model_.tokens);
  tokens_.assign(tokens, -1);
  outputs_.resize(tokens);
  std::iota(outputs_.begin(), outputs_.end(), 0);
  patches_.resize(tokens * static_cast<size_t>(3 * model_.patch_size * model_.patch_size));
  given_.resize(tokens);
  return {};
}

Result<void> VisionEncoder::encode(const Image& picture, std::span<float> rows, const std::atomic<bool>* cancel) {
  CHECK(static_cast<int64_t>(rows.size()) == model_.tokens * model_.width);
  patchify(fit(model_, picture), static_cast<int>(model_.patch_size), {.mean = model_.mean, .std = model_.deviation},
           patches_);
  const SequenceRows sequence{.blocks = blocks_, .past = 0, .rows = model_.tokens};
  const auto step = [&](Executable& brick, Buffer& cache) {
    return brick.run({.tokens = tokens_,
                      .given = given_,
                      .sequences = {&sequence, 1},
                      .outputs = outputs_,
                      .kv_cache = &cache,
                      .cancel = cancel});
  };
  const size_t pixels = patches_.size() / tokens_.size();
  for (size_t i = 0; i < given_.size(); ++i) given_[i] = patches_.data() + i * pixels;
  const OutputRows states = TRY(step(*tower_, *tower_cache_));
  for (size_t i = 0; i < given_.size(); ++i) given_[i] = states.row(static_cast<int64_t>(i)).data();
  const OutputRows projected = TRY(step(*projector_, *projector_cache_));
  for (int64_t i = 0; i < projected.rows; ++i) std::ranges::copy(projected.row(i), rows.begin() + i * model_.width);
  return {};
}

}  // namespace nanomind
