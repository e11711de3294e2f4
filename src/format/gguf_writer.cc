// SPDX-License-Identifier: Apache-2.0
#include "format/gguf_writer.h"

#include <fmt/format.h>

#include <cstring>
#include <set>

namespace nanomind {
namespace {

constexpr uint32_t kVersion = 3;

uint64_t aligned(uint64_t offset) {
  return (offset + GgufWriter::kAlignment - 1) / GgufWriter::kAlignment * GgufWriter::kAlignment;
}

template <typename T>
void put(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof value);
}

void put_string(std::string& out, std::string_view text) {
  put(out, uint64_t{text.size()});
  out.append(text);
}

// Stands behind the bytes of an unfinished file.
struct Progress {
  uint64_t tensors = 0;
  Sha256Digest check{};  // of the file's identity and the number

  static Progress of(const Sha256Digest& identity, uint64_t tensors) {
    Sha256 hash;
    hash.update(std::as_bytes(std::span(identity)));
    hash.update(std::as_bytes(std::span(&tensors, 1)));
    return {tensors, hash.finish()};
  }
  bool operator==(const Progress&) const = default;
};

}  // namespace

GgufMetadata& GgufMetadata::add_from(const GgufFile& file, size_t index) {
  const std::string_view key = file.metadata()[index].first;
  const auto entry = file.metadata_bytes(index).subspan(sizeof(uint64_t) + key.size());
  return add_entry(key, {reinterpret_cast<const char*>(entry.data()), entry.size()});
}

std::string GgufMetadata::bytes() const {
  std::string out;
  for (const Entry& entry : entries_) {
    put_string(out, entry.key);
    out += entry.bytes;
  }
  return out;
}

GgufMetadata& GgufMetadata::add_entry(std::string_view key, std::string bytes) {
  const auto [place, is_new] = places_.try_emplace(std::string(key), entries_.size());
  if (is_new)
    entries_.push_back({std::string(key), std::move(bytes)});
  else
    entries_[place->second].bytes = std::move(bytes);
  return *this;
}

Result<GgufWriter::Plan> GgufWriter::plan(const GgufMetadata& metadata, std::span<const GgufTensorSpec> tensors) {
  Plan plan{.header = "GGUF"};
  put(plan.header, kVersion);
  put(plan.header, uint64_t{tensors.size()});
  put(plan.header, uint64_t{metadata.size()});
  plan.header += metadata.bytes();
  std::set<std::string_view> names;
  uint64_t offset = 0;  // within the data
  for (const GgufTensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      return fail(ErrorCode::invalid_argument, fmt::format("There are two tensors '{}'.", tensor.name));
    put_string(plan.header, tensor.name);
    put(plan.header, static_cast<uint32_t>(tensor.shape.rank));
    for (int i = tensor.shape.rank - 1; i >= 0; --i) put(plan.header, static_cast<uint64_t>(tensor.shape[i]));
    put(plan.header, tensor.dtype);
    put(plan.header, offset);
    plan.places.push_back({offset, tensor.size_bytes()});
    offset = aligned(offset + tensor.size_bytes());
  }
  plan.header.resize(aligned(plan.header.size()));
  for (Place& place : plan.places) place.offset += plan.header.size();
  plan.file_bytes = plan.header.size() + offset;
  return plan;
}

Result<void> GgufWriter::begin(std::string_view header, uint64_t reserved) {
  TRY(file_.reserve(reserved));
  // The end first, so that the file has its length where nothing could be reserved.
  constexpr std::byte kEnd[1] = {};
  TRY(file_.write_at(reserved - 1, kEnd));
  return file_.write_at(0, std::as_bytes(std::span(header)));
}

Result<GgufWriter> GgufWriter::create(const std::filesystem::path& path, const GgufMetadata& metadata,
                                      std::span<const GgufTensorSpec> tensors) {
  Plan made = TRY(plan(metadata, tensors));
  const std::string header = std::move(made.header);
  GgufWriter writer(TRY(ResumableFile::open(path)), std::move(made));
  writer.discard();
  TRY(writer.file_.truncate(0));
  TRY(writer.begin(header, writer.file_bytes_));
  return writer;
}

Result<GgufWriter> GgufWriter::resume(const std::filesystem::path& path, const GgufMetadata& metadata,
                                      std::span<const GgufTensorSpec> tensors, const Sha256Digest& source) {
  Plan made = TRY(plan(metadata, tensors));
  const std::string header = std::move(made.header);
  Sha256 hash;
  hash.update(std::as_bytes(std::span(source)));
  hash.update(std::as_bytes(std::span(header)));
  GgufWriter writer(TRY(ResumableFile::open(path)), std::move(made));
  writer.is_resumable_ = true;
  writer.identity_ = hash.finish();
  Progress kept{};
  const size_t read = TRY(writer.file_.read_at(writer.file_bytes_, std::as_writable_bytes(std::span(&kept, 1))));
  if (read == sizeof kept && kept == Progress::of(writer.identity_, kept.tensors) && kept.tensors <= tensors.size()) {
    writer.tensors_done_ = kept.tensors;
    return writer;
  }
  writer.discard();  // until there is something to keep
  TRY(writer.file_.truncate(0));
  TRY(writer.begin(header, writer.file_bytes_ + sizeof kept));
  return writer;
}

Result<void> GgufWriter::checkpoint(size_t tensors) {
  CHECK(is_resumable_);
  TRY(file_.sync());
  const Progress now = Progress::of(identity_, tensors);
  TRY(file_.write_at(file_bytes_, std::as_bytes(std::span(&now, 1))));
  file_.set_leftover(tensors > 0 ? ResumableFile::Leftover::stays : ResumableFile::Leftover::goes);
  return {};
}

Result<void> GgufWriter::finish() {
  if (is_resumable_) TRY(file_.truncate(file_bytes_));
  return file_.commit();
}

Result<void> GgufWriter::write(size_t index, uint64_t offset, std::span<const std::byte> data) {
  const Place& place = places_[index];
  CHECK(offset <= place.bytes && data.size() <= place.bytes - offset);
  return file_.write_at(place.offset + offset, data);
}

}  // namespace nanomind
