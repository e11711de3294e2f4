// SPDX-License-Identifier: Apache-2.0
// The format itself: plan and checks. Moving the data: packed_build.cc.
#include "format/packed_image.h"

#include <algorithm>
#include <cstring>
#include <string>

#include "tensor/packed.h"
#include "tensor/packed_layout.h"

namespace nanomind {
namespace {

constexpr uint64_t kAlignment = 64;
constexpr uint64_t kLargestSource = uint64_t{1} << 48;  // keeps every product below from overflowing

uint64_t round_up(uint64_t value) { return (value + kAlignment - 1) / kAlignment * kAlignment; }
uint64_t data_start(uint64_t entries) { return sizeof(PackedHeader) + entries * sizeof(PackedEntry); }

// Matrices of experts follow each other as one matrix of all their rows, so each must end with a row group. Columns
// tell them from the filters of convolutions.
bool holds_experts(const Shape& shape) {
  return shape.rank == 3 && shape[1] % kGroupRows == 0 && shape[2] % kUnitColumns == 0;
}

std::unexpected<Error> damaged(std::string_view subject, std::string_view what) {
  return fail(ErrorCode::corrupt, std::string(subject) + " is damaged (" + std::string(what) +
                                      "). Delete it: it is made again from the model file.");
}

Result<PackedHeader> parse_header(std::span<const std::byte> bytes, std::string_view subject) {
  PackedHeader header;
  const PackedHeader ours;
  if (bytes.size() < sizeof header) return damaged(subject, "it is shorter than its header");
  std::memcpy(&header, bytes.data(), sizeof header);
  if (std::memcmp(header.magic, ours.magic, sizeof ours.magic) != 0) {
    return damaged(subject, "it is not a packed weights file");
  }
  if (header.byte_order != ours.byte_order || header.image_version != kImageVersion ||
      header.packed_version != kPackedVersion) {
    return fail(ErrorCode::unsupported,
                std::string(subject) + " was written by another version of this program. Pack the model again.");
  }
  if (header.file_bytes != bytes.size()) {
    return damaged(subject,
                   "it has " + std::to_string(bytes.size()) + " of " + std::to_string(header.file_bytes) + " bytes");
  }
  if (header.entry_count > (bytes.size() - sizeof header) / sizeof(PackedEntry)) {
    return damaged(subject, "its table does not fit");
  }
  if (header.source_bytes > kLargestSource) return damaged(subject, "its source is impossibly large");
  return header;
}

bool matrix_sizes_agree(const PackedEntry& entry, uint64_t file_bytes) {
  if (!dtype_from_gguf(entry.type) || entry.rows < 1 || entry.columns < 1) return false;
  if (static_cast<uint64_t>(entry.columns) > kLargestSource ||
      entry.columns % traits(entry.dtype()).block_columns != 0) {
    return false;
  }
  uint64_t source = 0;
  uint64_t packed = 0;
  const auto rows = static_cast<uint64_t>(entry.rows);
  if (__builtin_mul_overflow(row_bytes(entry.dtype(), static_cast<size_t>(entry.columns)), rows, &source) ||
      source != entry.source_bytes) {
    return false;
  }
  const uint64_t group = packed_group_bytes(entry.dtype(), entry.columns);
  if (group > file_bytes || __builtin_mul_overflow(group, (rows + 15) / 16, &packed)) return false;
  return packed == entry.bytes && entry.offset % kAlignment == 0;
}

bool verbatim_sizes_agree(const PackedEntry& entry) {
  return entry.bytes == entry.source_bytes && entry.rows == 0 && entry.columns == 0 &&
         entry.offset % kAlignment == entry.source_offset % kAlignment;
}

Result<void> check_entries(const PackedImage& image, std::string_view subject) {
  const uint64_t size = image.bytes.size();
  uint64_t source_end = 0;
  uint64_t end = data_start(image.entries.size());
  for (const PackedEntry& e : image.entries) {
    if (e.source_offset != source_end || e.source_bytes == 0 ||
        e.source_bytes > image.header.source_bytes - source_end) {
      return damaged(subject, "its table does not cover the model file");
    }
    if (e.offset < end || e.offset > size || e.bytes > size - e.offset) {
      return damaged(subject, "its table leads outside the file");
    }
    if (!(e.is_matrix() ? matrix_sizes_agree(e, size) : verbatim_sizes_agree(e))) {
      return damaged(subject, "sizes in its table do not agree");
    }
    source_end += e.source_bytes;
    end = e.offset + e.bytes;
  }
  if (source_end != image.header.source_bytes) return damaged(subject, "its table does not cover the model file");
  if (image.entries.empty() || image.entries.front().is_matrix()) return damaged(subject, "it has no model header");
  return {};
}

}  // namespace

Result<PackedImage> parse_image(std::span<const std::byte> bytes, std::string_view subject) {
  PackedImage image{.header = TRY(parse_header(bytes, subject)), .entries = {}, .bytes = bytes};
  image.entries.resize(image.header.entry_count);
  if (!image.entries.empty()) {
    std::memcpy(image.entries.data(), bytes.data() + sizeof(PackedHeader), image.entries.size() * sizeof(PackedEntry));
  }
  if (header_checksum(image.header, image.entries) != image.header.checksum) {
    return damaged(subject, "the checksum of its header does not match");
  }
  TRY(check_entries(image, subject));
  return image;
}

std::vector<GgufPart> PackedImage::verbatim_parts() const {
  std::vector<GgufPart> parts;
  for (const PackedEntry& e : entries) {
    if (!e.is_matrix()) parts.push_back({.offset = e.source_offset, .bytes = data(e)});
  }
  return parts;
}

std::optional<Shape> packed_shape(const GgufTensor& tensor) {
  if (!tensor.dtype) return std::nullopt;
  const Shape& shape = tensor.shape;
  if (shape.rank == 2 || holds_experts(shape)) return shape;
  // Only of types without blocks, which would not cross from one row of a filter to the next.
  const bool plain = traits(*tensor.dtype).block_columns == 1;
  if (shape.rank == 4 && plain) return Shape{shape[0], shape.elements() / shape[0]};
  return std::nullopt;
}

std::vector<PackedEntry> plan_entries(const GgufFile& gguf) {
  std::vector<const GgufTensor*> matrices;
  for (const GgufTensor& tensor : gguf.tensors()) {
    if (packed_shape(tensor)) matrices.push_back(&tensor);
  }
  std::sort(matrices.begin(), matrices.end(),
            [](const GgufTensor* a, const GgufTensor* b) { return a->offset < b->offset; });

  std::vector<PackedEntry> entries;
  uint64_t source_end = 0;
  const auto add_verbatim_until = [&](uint64_t offset) {
    if (offset == source_end) return;
    entries.push_back({.source_offset = source_end, .source_bytes = offset - source_end, .bytes = offset - source_end});
    source_end = offset;
  };
  for (const GgufTensor* t : matrices) {
    const Shape shape = *packed_shape(*t);
    add_verbatim_until(t->offset);
    entries.push_back({.source_offset = t->offset,
                       .source_bytes = t->size_bytes,
                       .bytes = packed_bytes(*t->dtype, shape.rows(), shape.columns()),
                       .rows = shape.rows(),
                       .columns = shape.columns(),
                       .type = static_cast<uint32_t>(*t->dtype)});
    source_end = t->offset + t->size_bytes;
  }
  add_verbatim_until(gguf.size_bytes());

  uint64_t end = data_start(entries.size());
  for (PackedEntry& e : entries) {
    e.offset = round_up(end) + (e.is_matrix() ? 0 : e.source_offset % kAlignment);
    end = e.offset + e.bytes;
  }
  return entries;
}

uint64_t image_bytes(std::span<const PackedEntry> entries) {
  return entries.empty() ? data_start(0) : entries.back().offset + entries.back().bytes;
}

Sha256Digest sample_digest(const GgufFile& gguf) {
  constexpr uint64_t kPieces = 16;
  constexpr uint64_t kPieceBytes = 4096;
  Sha256 hash;
  const auto data = gguf.bytes().subspan(gguf.data_offset());
  if (data.size() <= kPieces * kPieceBytes) {
    hash.update(data);
  } else {
    const uint64_t last = data.size() - kPieceBytes;
    for (uint64_t i = 0; i < kPieces; ++i) hash.update(data.subspan(last / (kPieces - 1) * i, kPieceBytes));
  }
  return hash.finish();
}

Sha256Digest header_checksum(const PackedHeader& header, std::span<const PackedEntry> entries) {
  PackedHeader blank = header;
  blank.checksum = {};
  Sha256 hash;
  hash.update(std::as_bytes(std::span(&blank, 1)));
  hash.update(std::as_bytes(entries));
  return hash.finish();
}

}  // namespace nanomind
