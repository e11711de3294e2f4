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

Result<GgufWriter> GgufWriter::create(const std::filesystem::path& path, const GgufMetadata& metadata,
                                      std::span<const GgufTensorSpec> tensors) {
  std::string header("GGUF");
  put(header, kVersion);
  put(header, uint64_t{tensors.size()});
  put(header, uint64_t{metadata.size()});
  header += metadata.bytes();
  std::vector<Place> places;
  std::set<std::string_view> names;
  uint64_t offset = 0;  // within the data
  for (const GgufTensorSpec& tensor : tensors) {
    if (!names.insert(tensor.name).second)
      return fail(ErrorCode::invalid_argument, fmt::format("There are two tensors '{}'.", tensor.name));
    put_string(header, tensor.name);
    put(header, static_cast<uint32_t>(tensor.shape.rank));
    for (int i = tensor.shape.rank - 1; i >= 0; --i) put(header, static_cast<uint64_t>(tensor.shape[i]));
    put(header, tensor.dtype);
    put(header, offset);
    places.push_back({offset, tensor.size_bytes()});
    offset = aligned(offset + tensor.size_bytes());
  }
  header.resize(aligned(header.size()));
  for (Place& place : places) place.offset += header.size();

  GgufWriter writer(TRY(AtomicFile::create(path)));
  writer.file_bytes_ = header.size() + offset;
  writer.places_ = std::move(places);
  TRY(writer.file_.reserve(writer.file_bytes_));
  // The end first, so that the file has its length where nothing could be reserved.
  constexpr std::byte kEnd[1] = {};
  TRY(writer.file_.write_at(writer.file_bytes_ - 1, kEnd));
  TRY(writer.file_.write_at(0, std::as_bytes(std::span(header))));
  return writer;
}

Result<void> GgufWriter::write(size_t index, uint64_t offset, std::span<const std::byte> data) {
  const Place& place = places_[index];
  CHECK(offset <= place.bytes && data.size() <= place.bytes - offset);
  return file_.write_at(place.offset + offset, data);
}

}  // namespace nanomind
