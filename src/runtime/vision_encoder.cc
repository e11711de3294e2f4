// SPDX-License-Identifier: Apache-2.0
#include "runtime/vision_encoder.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "base/thread_pool.h"
#include "media/patches.h"

namespace nanomind {
Result<std::unique_ptr<VisionEncoder>> VisionEncoder::load(Device& device, const GgufFile& file,
                                                           const VisionModel& model, const VisionOptions& options) {
  std::unique_ptr<VisionEncoder> encoder(new VisionEncoder(model));
  TRY(encoder->prepare(device, file, options));
  return encoder;
}

Result<void> VisionEncoder::prepare(Device& device, const GgufFile& file, const VisionOptions& options) {
  const std::filesystem::path folder =
      options.packed_folder.empty() ? options.file.parent_path() : options.packed_folder;
  ThreadPool pool(std::max(1, device.info().threads));
  weights_.emplace(TRY(open_or_pack(file, options.file, {.directory = folder, .pool = &pool, .log = &options.log})));
  const int64_t most = model_.most_patches + 1;  // and a row that leads
  const int64_t blocks = (most + kKvBlockTokens - 1) / kKvBlockTokens;
  for (const VisionStage& stage : model_.stages)
    bindings_.push_back(TRY(WeightBinding::bind(stage.program, file, *weights_)));
  for (size_t i = 0; i < model_.stages.size(); ++i) {
    const bool last = i + 1 == model_.stages.size();
    const int64_t rows = last ? std::min(model_.most_rows(i), kPieceRows) : model_.most_rows(i);
    auto executable = TRY(device.compile(model_.stages[i].program, {.weights = bindings_[i].views(),
                                                                    .max_tokens = rows,
                                                                    .max_outputs = rows,
                                                                    .precision = options.precision,
                                                                    .kv_type = KvType::f32}));
    const size_t bytes = executable->kv_block_bytes() * static_cast<size_t>(blocks);
    stages_.push_back({.executable = std::move(executable), .cache = TRY(device.allocate(std::max<size_t>(1, bytes)))});
  }
  blocks_.resize(static_cast<size_t>(blocks));
  std::iota(blocks_.begin(), blocks_.end(), 0);
  const auto tokens = static_cast<size_t>(most);
  tokens_.assign(tokens, -1);
  all_.resize(tokens);
  std::iota(all_.begin(), all_.end(), 0);
  given_.reserve(tokens);
  return {};
}

uint64_t VisionEncoder::activation_bytes() const {
  uint64_t bytes = 0;
  for (const Stage& stage : stages_) bytes += stage.executable->activation_bytes() + stage.cache->bytes().size();
  return bytes;
}

void VisionEncoder::give(const Image& tile, const TileLayout& layout) {
  const auto patch = static_cast<size_t>(model_.patch_size), samples = 3 * patch * patch;
  patches_.resize(layout.patches.size() * samples);
  patchify(tile, static_cast<int>(patch), model_.normalization, patches_);
  given_.clear();
  const auto patch_row = [&](size_t i) {
    return std::span<const float>(patches_).subspan(static_cast<size_t>(layout.patches[i]) * samples, samples);
  };
  if (layout.added.empty()) {
    for (size_t i = 0; i < layout.patches.size(); ++i) given_.push_back(patch_row(i).data());
    return;
  }
  const size_t columns = layout.added.size() / layout.patches.size();
  joined_.clear();
  joined_.reserve(layout.patches.size() * (samples + columns));
  for (size_t i = 0; i < layout.patches.size(); ++i) {
    given_.push_back(joined_.data() + joined_.size());
    const auto row = patch_row(i), added = std::span(layout.added).subspan(i * columns, columns);
    joined_.insert(joined_.end(), row.begin(), row.end());
    joined_.insert(joined_.end(), added.begin(), added.end());
  }
}

void VisionEncoder::give(const OutputRows& rows, const VisionStage& next) {
  given_.clear();
  if (!next.lead.empty()) given_.push_back(next.lead.data());
  if (next.merge == 1 || rows.stride == rows.columns) {
    for (int64_t i = 0; i < rows.rows; i += next.merge) given_.push_back(rows.row(i).data());
    return;
  }
  joined_.resize(static_cast<size_t>(rows.rows * rows.columns));
  for (int64_t i = 0; i < rows.rows; ++i) std::ranges::copy(rows.row(i), joined_.begin() + i * rows.columns);
  for (int64_t i = 0; i < rows.rows; i += next.merge) given_.push_back(joined_.data() + i * rows.columns);
}

Result<OutputRows> VisionEncoder::run(size_t stage, std::span<const int32_t> outputs, std::span<float> results,
                                      const TileLayout& layout, const std::atomic<bool>* cancel) {
  const auto rows = given_.size();
  const SequenceRows sequence{.blocks = blocks_, .past = 0, .rows = static_cast<int64_t>(rows)};
  const bool first = stage == 0;
  return stages_[stage].executable->run({.tokens = std::span(tokens_).first(rows),
                                         .given = given_,
                                         .sequences = {&sequence, 1},
                                         .places = first ? std::span(layout.places) : std::span<const int32_t>(),
                                         .where = first ? std::span(layout.where) : std::span<const RowCoordinates>(),
                                         .groups = first ? std::span(layout.windows) : std::span<const int32_t>(),
                                         .outputs = outputs,
                                         .results = results,
                                         .kv_cache = stages_[stage].cache.get(),
                                         .cancel = cancel});
}

Result<void> VisionEncoder::encode(const Image& tile, const Room& room, const std::atomic<bool>* cancel) {
  const int64_t patch = model_.patch_size;
  const TileLayout layout = model_.layout({.rows = tile.size.height / patch, .columns = tile.size.width / patch});
  CHECK(static_cast<int64_t>(layout.patches.size()) <= model_.most_patches);
  give(tile, layout);
  const size_t last = stages_.size() - 1;
  for (size_t i = 0; i < last; ++i) {
    const OutputRows rows = TRY(run(i, std::span<const int32_t>(all_).first(given_.size()), {}, layout, cancel));
    give(rows, model_.stages[i + 1]);
  }
  const std::vector<const float*> inputs = std::exchange(given_, {});
  for (size_t done = 0; done < layout.results.size();) {
    const size_t count = std::min(layout.results.size() - done, static_cast<size_t>(kPieceRows));
    given_.clear();
    for (size_t i = 0; i < count; ++i) given_.push_back(inputs[static_cast<size_t>(layout.results[done + i])]);
    const std::span<float> results = TRY(room(static_cast<int64_t>(count)));
    TRY(run(last, std::span<const int32_t>(all_).first(count), results, layout, cancel));
    done += count;
  }
  return {};
}

}  // namespace nanomind
