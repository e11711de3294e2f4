// SPDX-License-Identifier: Apache-2.0
#include "runtime/picture_rows.h"

#include <algorithm>
#include <optional>
#include <span>
#include <vector>

namespace nanomind {
namespace {

// Writes rows of one picture into slots.
class Writer {
 public:
  Writer(RowRing& ring, TokenId first, int64_t width) : ring_(ring), first_(first), width_(width) {}

  Result<std::span<float>> room(int64_t count) {
    publish();
    slot_.emplace(TRY(ring_.acquire_write()));
    count_ = count;
    return slot_->memory().first(static_cast<size_t>(count * width_));
  }
  void publish() {
    if (!slot_) return;
    slot_->publish({.first = first_, .begin = begin_, .count = count_}, static_cast<size_t>(count_ * width_));
    slot_.reset();
    begin_ += count_;
  }
  // A row that does not come from the projector.
  Result<std::span<float>> next_row() {
    if (!slot_ || count_ == VisionEncoder::kPieceRows) {
      TRY(room(VisionEncoder::kPieceRows));
      count_ = 0;
    }
    return slot_->memory().subspan(static_cast<size_t>(count_++ * width_), static_cast<size_t>(width_));
  }

 private:
  RowRing& ring_;
  TokenId first_;
  int64_t width_;
  std::optional<RowRing::WriteSlot> slot_;
  int64_t begin_ = 0, count_ = 0;  // rows before the slot, and in it
};

bool is_blended(const CutPicture& cut) {
  return std::ranges::any_of(cut.parts, [](const CutPicture::Part& part) { return !part.blended.empty(); });
}

Result<void> make_tiles(VisionEncoder& encoder, const CutPicture& cut, Writer& writer,
                        const std::atomic<bool>* cancel) {
  for (const CutPicture::Part& part : cut.parts) {
    if (part.tile < 0) continue;
    TRY(encoder.encode(
        cut.tiles[static_cast<size_t>(part.tile)], [&](int64_t count) { return writer.room(count); }, cancel));
    writer.publish();
  }
  return {};
}

// Rows of all tiles, one tile after another.
struct TileRows {
  std::vector<float> all;          // [., width]
  std::vector<size_t> first_rows;  // of each tile
};
Result<TileRows> collect_tiles(VisionEncoder& encoder, const VisionModel& model, const CutPicture& cut,
                               const std::atomic<bool>* cancel) {
  TileRows rows;
  const auto width = static_cast<size_t>(model.width);
  for (const Image& tile : cut.tiles) {
    rows.first_rows.push_back(rows.all.size() / width);
    size_t done = rows.all.size();
    rows.all.resize(rows.all.size() + layout_of(model, tile).results.size() * width);
    const auto room = [&](int64_t count) -> Result<std::span<float>> {
      const std::span<float> some = std::span(rows.all).subspan(done, static_cast<size_t>(count) * width);
      done += some.size();
      return some;
    };
    TRY(encoder.encode(tile, room, cancel));
  }
  return rows;
}

void blend(const BlendedRow& blended, const VisionModel& model, std::span<const float> all, std::span<float> row) {
  std::ranges::fill(row, 0.0F);
  for (size_t i = 0; i < blended.rows.size(); ++i) {
    if (blended.weights[i] == 0) continue;
    const float* from =
        blended.rows[i] < 0 ? model.mark.data() : all.data() + static_cast<size_t>(blended.rows[i]) * row.size();
    for (size_t c = 0; c < row.size(); ++c) row[c] += blended.weights[i] * from[c];
  }
}

}  // namespace

TileLayout layout_of(const VisionModel& model, const Image& tile) {
  return model.layout({.rows = tile.size.height / model.patch_size, .columns = tile.size.width / model.patch_size});
}

PatchGrid part_grid(const VisionModel& model, const CutPicture& cut, const CutPicture::Part& part) {
  if (part.tile < 0) return {.rows = 1, .columns = static_cast<int64_t>(part.blended.size())};
  const Image& tile = cut.tiles[static_cast<size_t>(part.tile)];
  const int64_t side = model.joined_side * model.patch_size;
  if (side == 0) return {.rows = 1, .columns = static_cast<int64_t>(layout_of(model, tile).results.size())};
  return {.rows = tile.size.height / side, .columns = tile.size.width / side};
}

Result<void> make_rows(VisionEncoder& encoder, const VisionModel& model, const CutPicture& cut, TokenId first,
                       RowRing& ring, const std::atomic<bool>* cancel) {
  Writer writer(ring, first, model.width);
  if (!is_blended(cut)) return make_tiles(encoder, cut, writer, cancel);
  const TileRows rows = TRY(collect_tiles(encoder, model, cut, cancel));
  const auto width = static_cast<size_t>(model.width);
  for (const CutPicture::Part& part : cut.parts) {
    if (part.tile >= 0) {
      const size_t begin = rows.first_rows[static_cast<size_t>(part.tile)];
      const auto count = static_cast<size_t>(part_grid(model, cut, part).count());
      for (size_t i = begin; i < begin + count; ++i)
        std::ranges::copy(std::span(rows.all).subspan(i * width, width), TRY(writer.next_row()).begin());
    }
    for (const BlendedRow& blended : part.blended) blend(blended, model, rows.all, TRY(writer.next_row()));
  }
  writer.publish();
  return {};
}

}  // namespace nanomind
