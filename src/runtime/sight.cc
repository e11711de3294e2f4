// SPDX-License-Identifier: Apache-2.0
#include "runtime/sight.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <utility>

#include "base/clock.h"
#include "format/packed_image.h"
#include "media/decode.h"
#include "runtime/memory_budget.h"
#include "runtime/vision_work.h"

namespace nanomind {
namespace {

// Slots beyond those that a step of the language model may hold: one that is written while it reads.
constexpr int64_t kSpareSlots = 2;

// What rows depend on besides the tiles: the vision file, known by its header and a sample of its weights, as reading
// all of it would load it; and how exactly it computes. Kernels of other instruction sets differ by rounding only.
Sha256Digest encoder_digest(const GgufFile& file, const VisionOptions& options) {
  std::error_code ignored;
  const auto time = std::filesystem::last_write_time(options.file, ignored).time_since_epoch().count();
  const uint64_t numbers[] = {file.size_bytes(), static_cast<uint64_t>(time), static_cast<uint64_t>(options.precision)};
  const Sha256Digest sample = sample_digest(file);
  Sha256 hash;
  hash.update(file.bytes().first(file.data_offset()));
  hash.update(std::as_bytes(std::span(sample)));
  hash.update(std::as_bytes(std::span(numbers)));
  return hash.finish();
}

}  // namespace

Result<std::unique_ptr<Sight>> Sight::open(Device& reader, const SightOptions& options) {
  GgufFile file = TRY(GgufFile::open(options.encoder.file));
  VisionModel model = TRY(build_vision(file));
  std::unique_ptr<Sight> sight(new Sight(reader, std::move(file), std::move(model), options));
  const int64_t step_rows = std::max(options.step_rows, sight->least_step_rows());
  const auto slot = static_cast<size_t>(VisionEncoder::kPieceRows * sight->model_.width);
  const auto count = static_cast<size_t>(step_rows / VisionEncoder::kPieceRows + 1 + kSpareSlots);
  sight->slots_ = TRY(reader.allocate(slot * count * sizeof(float)));
  const std::span<float> floats(reinterpret_cast<float*>(sight->slots_->bytes().data()), slot * count);
  sight->ring_ = std::make_unique<RowRing>(floats, count);
  return sight;
}

Sight::Sight(Device& reader, GgufFile file, VisionModel model, const SightOptions& options)
    : reader_(reader),
      options_(options),
      file_(std::move(file)),
      model_(std::move(model)),
      pictures_(model_.width, options.kept),
      encoder_id_(encoder_digest(file_, options_.encoder)) {
  if (!options_.cache.folder.empty()) cache_.emplace(options_.cache);
}

Sight::~Sight() {
  if (!thread_.joinable()) return;
  held_.clear();
  ring_->close();
  thread_.join();
}

Result<const Picture*> Sight::see(std::span<const std::byte> file, const PictureDetail& detail) {
  TRY(check_bytes(file.size()));
  const PictureKey source{.file = sha256(file), .detail = detail};
  if (const Picture* known = pictures_.show(source, file)) return known;
  const Image image = TRY(decode_image(file));
  auto cut = std::make_shared<const CutPicture>(model_.cut(image, detail));
  std::vector<PatchGrid> rows;
  for (const CutPicture::Part& part : cut->parts) rows.push_back(part_grid(model_, *cut, part));
  const Sha256Digest made_of = rows_digest(*cut, encoder_id_);
  return &pictures_.add(source, file, image.size, std::move(cut), rows, made_of);
}

int64_t Sight::least_step_rows() const { return model_.whole ? model_.most_rows(model_.stages.size() - 1) : 0; }

bool Sight::may_begin(std::span<const TokenId> tokens, int64_t at) const {
  if (!model_.whole || at <= 0 || at >= static_cast<int64_t>(tokens.size())) return true;
  const TokenId before = tokens[static_cast<size_t>(at - 1)], token = tokens[static_cast<size_t>(at)];
  return before >= 0 || token != before - 1 || pictures_.of(before) != pictures_.of(token);
}

int64_t Sight::fit(std::span<const TokenId> tokens, int64_t most) const {
  int64_t count = std::min(most, static_cast<int64_t>(tokens.size()));
  while (count > 0 && !may_begin(tokens, count)) --count;
  return count;
}

void Sight::append_groups(std::span<const TokenId> tokens, std::vector<int32_t>& groups) const {
  if (!model_.whole) return;
  for (int64_t i = 0; i < static_cast<int64_t>(tokens.size()); ++i) {
    if (i > 0 && !may_begin(tokens, i))
      ++groups.back();
    else
      groups.push_back(1);
  }
}

void Sight::append_where(std::span<const TokenId> before, std::span<const TokenId> tokens,
                         std::vector<RowCoordinates>& where) const {
  if (model_.joined_side == 0) return;
  int32_t next = 0;
  const auto place = [&](TokenId token) -> RowCoordinates {
    const Picture* picture = pictures_.of(token);
    if (picture == nullptr) {
      const int32_t at = next++;
      return {at, at, at};
    }
    const Picture::Spot spot = picture->spot(token);
    const int32_t at = next;
    if (spot.last) next += spot.reach;
    return {at, at + spot.down, at + spot.across};
  };
  for (const TokenId token : before) place(token);
  for (const TokenId token : tokens) where.push_back(place(token));
}

void Sight::expect(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) {
  TokenId last = 0;
  for (const TokenId token : tokens) {
    if (token >= 0 || (last != 0 && pictures_.of(token) == pictures_.of(last))) continue;
    last = token;
    const Picture* picture = pictures_.of(token);
    if (picture != nullptr && !pictures_.has_rows(*picture)) want(*picture, cancel);
  }
  if (!thread_.joinable()) start();
}

void Sight::want(const Picture& picture, const std::atomic<bool>* cancel) {
  const bool coming = std::ranges::find(making_, picture.first) != making_.end() ||
                      std::ranges::find(wanted_, picture.first, &Job::first) != wanted_.end();
  if (coming || recall(picture)) return;
  if (auto cut = cut_of(picture)) wanted_.push_back({.first = picture.first, .cut = std::move(cut), .cancel = cancel});
}

std::shared_ptr<const CutPicture> Sight::cut_of(const Picture& picture) const {
  if (picture.cut != nullptr || picture.file.empty()) return picture.cut;
  const auto image = decode_image(picture.file);
  return image ? std::make_shared<const CutPicture>(model_.cut(*image, picture.source.detail)) : nullptr;
}

bool Sight::recall(const Picture& picture) {
  if (!cache_) return false;
  const std::vector<float> rows = cache_->find(picture.made_of, static_cast<size_t>(picture.count * model_.width));
  if (rows.empty()) return false;
  pictures_.keep(picture.first, 0, rows);
  const std::lock_guard lock(counting_);
  ++statistics_.recalled;
  return true;
}

void Sight::store_made() {
  for (const TokenId first : std::exchange(made_, {})) {
    const Picture* picture = pictures_.of(first);
    if (picture == nullptr || !cache_) continue;
    if (const std::span<const float> rows = pictures_.rows(*picture); !rows.empty())
      cache_->store(picture->made_of, rows);
  }
}

void Sight::start() {
  if (wanted_.empty()) return;
  cancel_ = wanted_.front().cancel;
  std::vector<Job> jobs;
  while (!wanted_.empty() && wanted_.front().cancel == cancel_) {
    making_.push_back(wanted_.front().first);
    jobs.push_back(std::move(wanted_.front()));
    wanted_.pop_front();
  }
  thread_ = std::jthread([this, jobs = std::move(jobs)] { run(jobs); });
}

void Sight::join() {
  thread_.join();
  let_go(held_.size());
  ring_->reset();
  made_.insert(made_.end(), making_.begin(), making_.end());
  making_.clear();
}

void Sight::run(const std::vector<Job>& jobs) {
  Result<void> result = load();
  for (const Job& job : jobs) {
    if (!result) break;
    const auto start = std::chrono::steady_clock::now();
    result = make_rows(*encoder_, model_, *job.cut, job.first, *ring_, job.cancel);
    const std::lock_guard lock(counting_);
    statistics_.encode_ms += milliseconds_since(start);
    if (result) ++statistics_.encoded;
  }
  rest();
  if (result)
    ring_->finish();
  else
    ring_->fail_with(result.error());
}

Result<void> Sight::load() {
  if (encoder_ != nullptr) return {};
  uint64_t weights = 0;
  for (const VisionStage& stage : model_.stages) weights += matrix_bytes(stage.program);
  const uint64_t budget = budget_ > 0 ? budget_ : available_memory();
  if (weights > budget) {
    return fail(ErrorCode::out_of_memory,
                fmt::format("The bricks that see need {} MB, but {} MB are available. Choose a smaller context or "
                            "model, or a smaller type of {}.",
                            weights >> 20, budget >> 20, options_.encoder.file.string()));
  }
  device_ = TRY(options_.open_device());
  encoder_ = TRY(VisionEncoder::load(*device_, file_, model_, options_.encoder));
  const std::lock_guard lock(counting_);
  statistics_.weight_bytes = encoder_->weight_bytes();
  statistics_.loaded = true;
  return {};
}

void Sight::rest() {
  if (options_.bricks == VisionBricks::leave)
    unload();
  else if (device_ != nullptr)
    device_->rest();
}

void Sight::unload() {
  encoder_.reset();
  device_.reset();
  const std::lock_guard lock(counting_);
  statistics_.loaded = false;
}

const float* Sight::find(TokenId token) const {
  if (const float* row = pictures_.row(token)) return row;
  for (const Held& held : held_) {
    const RowsHeader& header = held.slot.header();
    const int64_t index = header.first - header.begin - token;
    if (index >= 0 && index < header.count) return held.slot.memory().data() + index * model_.width;
  }
  return nullptr;
}

Result<void> Sight::take(const std::atomic<bool>* cancel) {
  if (held_.size() == ring_->slots()) let_go(1);
  reader_.rest();  // the bricks have its processors while it waits
  auto slot = ring_->acquire_read(cancel);
  if (slot && *slot) {
    held_.push_back({.slot = std::move(**slot)});
    return {};
  }
  if (!slot) ring_->close();  // the thread may wait for room
  join();
  if (!slot) return std::unexpected(slot.error());
  start();
  return {};
}

Result<void> Sight::append_inputs(std::span<const TokenId> before, std::span<const TokenId> tokens,
                                  const std::atomic<bool>* cancel, PictureInputs& inputs) {
  const auto known = [&](TokenId token) { return token >= 0 || pictures_.of(token) != nullptr; };
  const bool placed = model_.joined_side > 0;  // by the shapes of all of them
  if (placed && !(std::ranges::all_of(before, known) && std::ranges::all_of(tokens, known))) return picture_forgotten();
  const size_t given = inputs.given.size();
  if (const auto appended = append_rows(tokens, cancel, inputs.given); !appended) {
    inputs.given.resize(given);
    return appended;
  }
  append_groups(tokens, inputs.groups);
  append_where(before, tokens, inputs.where);
  return {};
}

Result<void> Sight::append_rows(std::span<const TokenId> tokens, const std::atomic<bool>* cancel,
                                std::vector<const float*>& rows) {
  for (const TokenId token : tokens) {
    while (token < 0 && find(token) == nullptr) {
      const Picture* picture = pictures_.of(token);
      if (picture != nullptr) want(*picture, cancel);
      if (find(token) != nullptr) break;
      if (!thread_.joinable()) start();
      if (!thread_.joinable()) return picture_forgotten();
      TRY(take(cancel));
    }
  }
  for (const TokenId token : tokens) {
    if (token >= 0) continue;
    const float* row = find(token);
    if (row == nullptr) return fail(ErrorCode::out_of_memory, "There is too little room for the rows of a picture.");
    rows.push_back(row);
    for (Held& held : held_) {
      const RowsHeader& header = held.slot.header();
      if (header.first - header.begin - header.count + 1 == token) held.used_up = true;
    }
  }
  return {};
}

void Sight::done() {
  // What came before the last that is used up was passed over.
  const auto last = std::ranges::find(held_.rbegin(), held_.rend(), true, &Held::used_up);
  let_go(static_cast<size_t>(held_.rend() - last));
}

void Sight::let_go(size_t count) {
  for (count = std::min(count, held_.size()); count > 0; --count) {
    const RowsHeader& header = held_.front().slot.header();
    pictures_.keep(header.first, header.begin, held_.front().slot.memory());
    held_.pop_front();
  }
}

void Sight::end(const std::atomic<bool>* cancel) {
  std::erase_if(wanted_, [&](const Job& job) { return job.cancel == cancel; });
  if (thread_.joinable() && cancel_ == cancel) {
    ring_->close();
    join();
  }
  store_made();
}

Result<PictureMeasurement> Sight::measure(std::span<const std::byte> file, const PictureDetail& detail) {
  CHECK(!thread_.joinable());
  reader_.rest();
  PictureMeasurement measurement;
  const auto start = std::chrono::steady_clock::now();
  const CutPicture cut = model_.cut(TRY(decode_image(file)), detail);
  measurement.cut_ms = milliseconds_since(start);
  TRY(load());
  std::vector<float> piece(static_cast<size_t>(VisionEncoder::kPieceRows * model_.width));
  for (const Image& tile : cut.tiles) {
    const TileLayout layout = layout_of(model_, tile);
    const TileWork work = work_of(model_, layout);
    const auto begin = std::chrono::steady_clock::now();
    TRY(encoder_->encode(
        tile, [&](int64_t count) { return std::span(piece).first(static_cast<size_t>(count * model_.width)); },
        nullptr));
    measurement.tiles.push_back({.size = tile.size,
                                 .rows = static_cast<int64_t>(layout.results.size()),
                                 .products = work.products,
                                 .attention_products = work.attention_products,
                                 .ms = milliseconds_since(begin)});
  }
  rest();
  return measurement;
}

Sight::Statistics Sight::statistics() const {
  const std::lock_guard lock(counting_);
  Statistics statistics = statistics_;
  statistics.ring = ring_->statistics();
  return statistics;
}

}  // namespace nanomind
