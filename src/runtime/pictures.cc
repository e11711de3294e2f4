// SPDX-License-Identifier: Apache-2.0
#include "runtime/pictures.h"

#include <algorithm>
#include <utility>

namespace nanomind {

std::unexpected<Error> picture_forgotten() {
  return fail(ErrorCode::invalid_argument, "A picture of the conversation is not held any more; show it again.");
}

Picture::Spot Picture::spot(TokenId token) const {
  for (size_t i = 0; i < prompt.size(); ++i) {
    const std::vector<TokenId>& rows = prompt[i].rows;
    if (rows.empty() || token > rows.front() || token < rows.back()) continue;
    const auto row = static_cast<int64_t>(rows.front() - token);
    const PatchGrid& grid = grids[i];
    return {.down = static_cast<int32_t>(row / grid.columns),
            .across = static_cast<int32_t>(row % grid.columns),
            .reach = static_cast<int32_t>(std::max(grid.rows, grid.columns)),
            .last = token == rows.back()};
  }
  return {};
}

const Picture* Pictures::find(const PictureKey& source) const {
  const auto found = sources_.find(source);
  return found == sources_.end() ? nullptr : &pictures_.at(found->second);
}

const Picture* Pictures::show(const PictureKey& source, std::span<const std::byte> file) {
  const auto found = sources_.find(source);
  if (found == sources_.end()) return nullptr;
  Picture& picture = pictures_.at(found->second);
  picture.shown = ++shown_;
  hold(picture, file);
  return &picture;
}

const Picture* Pictures::of(TokenId token) const {
  const auto after = pictures_.upper_bound(token);
  if (token >= 0 || after == pictures_.begin()) return nullptr;
  const Picture& picture = std::prev(after)->second;
  return token <= picture.first ? &picture : nullptr;
}

const Picture& Pictures::add(const PictureKey& source, std::span<const std::byte> file, Size size,
                             std::shared_ptr<const CutPicture> cut, std::span<const PatchGrid> part_rows,
                             const Sha256Digest& made_of) {
  CHECK(part_rows.size() == cut->parts.size() && !sources_.contains(source));
  Picture picture{.source = source,
                  .size = size,
                  .first = next_,
                  .places = cut->places,
                  .made_of = made_of,
                  .shown = ++shown_,
                  .prompt = {},
                  .grids = {}};
  for (size_t i = 0; i < part_rows.size(); ++i) {
    PicturePart part{.text = cut->parts[i].text,
                     .rows = std::vector<TokenId>(static_cast<size_t>(part_rows[i].count()))};
    for (TokenId& token : part.rows) token = next_--;
    picture.count += part_rows[i].count();
    picture.grids.push_back(part_rows[i]);
    picture.prompt.push_back(std::move(part));
  }
  CHECK(picture.count > 0);
  picture.cut = std::move(cut);
  if (pictures_.size() == limits_.count) forget_oldest();
  sources_[source] = picture.last();
  Picture& added = pictures_[picture.last()] = std::move(picture);
  hold(added, file);
  return added;
}

// The picture is the one shown last, whose file stays whatever its size.
void Pictures::hold(Picture& picture, std::span<const std::byte> file) {
  if (picture.file.empty()) {
    picture.file.assign(file.begin(), file.end());
    file_bytes_ += file.size();
  }
  while (file_bytes_ > limits_.file_bytes) {
    const auto age = [](const auto& entry) { return entry.second.file.empty() ? UINT64_MAX : entry.second.shown; };
    Picture& oldest = std::ranges::min_element(pictures_, {}, age)->second;
    if (&oldest == &picture) return;
    file_bytes_ -= oldest.file.size();
    oldest.file = {};
  }
}

void Pictures::keep(TokenId first, int64_t begin, std::span<const float> rows) {
  if (of(first) == nullptr) return;
  auto found = kept_of_.find(first);
  if (found == kept_of_.end()) {
    kept_.push_front({.first = first, .rows = {}});
    found = kept_of_.emplace(first, kept_.begin()).first;
  } else {
    kept_.splice(kept_.begin(), kept_, found->second);
  }
  Kept& kept = *found->second;
  const size_t held = kept.rows.size(), from = static_cast<size_t>(begin * width_);
  if (from > held) return;  // those before had to make room
  const size_t known = held - from;
  if (known >= rows.size()) return;
  kept.rows.insert(kept.rows.end(), rows.begin() + static_cast<int64_t>(known), rows.end());
  row_bytes_ += (kept.rows.size() - held) * sizeof(float);
  Picture& picture = pictures_.at(of(first)->last());
  if (has_rows(picture)) picture.cut.reset();
  make_room();
}

void Pictures::make_room() {
  while (row_bytes_ > limits_.row_bytes && kept_.size() > 1) {
    row_bytes_ -= kept_.back().rows.size() * sizeof(float);
    kept_of_.erase(kept_.back().first);
    kept_.pop_back();
  }
}

void Pictures::forget_oldest() {
  const auto oldest = std::ranges::min_element(pictures_, {}, [](const auto& entry) { return entry.second.shown; });
  const Picture& picture = oldest->second;
  if (const auto kept = kept_of_.find(picture.first); kept != kept_of_.end()) {
    row_bytes_ -= kept->second->rows.size() * sizeof(float);
    kept_.erase(kept->second);
    kept_of_.erase(kept);
  }
  file_bytes_ -= picture.file.size();
  sources_.erase(picture.source);
  pictures_.erase(oldest);
}

const float* Pictures::row(TokenId token) const {
  const Picture* picture = of(token);
  if (picture == nullptr) return nullptr;
  const auto found = kept_of_.find(picture->first);
  const int64_t index = (picture->first - token) * width_;
  if (found == kept_of_.end() || index >= static_cast<int64_t>(found->second->rows.size())) return nullptr;
  return found->second->rows.data() + index;
}

bool Pictures::has_rows(const Picture& picture) const { return row(picture.last()) != nullptr; }

std::span<const float> Pictures::rows(const Picture& picture) {
  if (!has_rows(picture)) return {};
  const auto found = kept_of_.at(picture.first);
  kept_.splice(kept_.begin(), kept_, found);
  return found->rows;
}

}  // namespace nanomind
