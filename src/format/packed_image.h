// SPDX-License-Identifier: Apache-2.0
// The bytes of a packed side file: a whole GGUF file in another arrangement, from which it can be written back bit for
// bit.
//
//   PackedHeader | PackedEntry x entry_count | data of the entries
//
// The entries cut the source into runs, in order and without gaps. A run that is a matrix is stored in the layout of
// tensor/packed_layout.h; everything between (the GGUF header, vectors, padding, types that we cannot run) is stored as
// it is. All numbers are little-endian. Data is aligned so that matrices start at multiples of 64 and verbatim runs
// keep the alignment that they had in the source. The checksum covers header and table; the data is covered by
// source_sha256.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "format/gguf.h"

namespace nanomind {

// Bumped when the meaning of PackedHeader or PackedEntry changes.
inline constexpr uint32_t kImageVersion = 1;

struct PackedHeader {
  char magic[8] = {'N', 'M', 'P', 'A', 'C', 'K', 'E', 'D'};
  uint32_t byte_order = 0x01020304;
  uint32_t image_version = kImageVersion;
  uint32_t packed_version = 0;  // kPackedVersion of the program that wrote it
  uint32_t reserved = 0;
  uint64_t file_bytes = 0;
  uint64_t entry_count = 0;
  uint64_t source_bytes = 0;
  int64_t source_mtime_ns = 0;
  Sha256Digest source_sha256{};  // of the whole source
  Sha256Digest source_sample{};  // sample_digest of the source
  Sha256Digest checksum{};       // of this header, with zeros here, and the table
  uint8_t padding[104]{};
};
static_assert(sizeof(PackedHeader) == 256);

struct PackedEntry {
  static constexpr uint32_t kVerbatim = ~uint32_t{0};

  uint64_t source_offset = 0;
  uint64_t source_bytes = 0;
  uint64_t offset = 0;  // in the side file
  uint64_t bytes = 0;
  int64_t rows = 0;  // of a matrix; 0 when verbatim
  int64_t columns = 0;
  uint32_t type = kVerbatim;  // else a DType
  uint32_t reserved = 0;

  bool is_matrix() const { return type != kVerbatim; }
  DType dtype() const { return static_cast<DType>(type); }
  bool operator==(const PackedEntry&) const = default;
};
static_assert(sizeof(PackedEntry) == 56);

// A checked side file; `bytes` are the caller's.
struct PackedImage {
  PackedHeader header;
  std::vector<PackedEntry> entries;
  std::span<const std::byte> bytes;

  std::span<const std::byte> data(const PackedEntry& entry) const { return bytes.subspan(entry.offset, entry.bytes); }
  // The verbatim runs, as GgufFile::parse_parts wants them; the first holds the GGUF header.
  std::vector<GgufPart> verbatim_parts() const;
};

// Checks everything but the data. Errors say why the file cannot be used; `subject` names it.
Result<PackedImage> parse_image(std::span<const std::byte> bytes, std::string_view subject);

// Rows and columns of a tensor that is packed; nothing for others. Packed are tensors of rank 2 with a DType, those of
// rank 3 that hold matrices of experts, and filters [N, channels, height, width] that do not overlap, as [N, all the
// rest].
std::optional<Shape> packed_shape(const GgufTensor& tensor);

// How `gguf` is cut into runs and where each goes.
std::vector<PackedEntry> plan_entries(const GgufFile& gguf);
// Size of a side file with these entries.
uint64_t image_bytes(std::span<const PackedEntry> entries);

// SHA-256 of a few pages spread over the tensor data; with the header's own bytes it tells files apart in milliseconds.
Sha256Digest sample_digest(const GgufFile& gguf);
Sha256Digest header_checksum(const PackedHeader& header, std::span<const PackedEntry> entries);

// Receives a piece of output for `offset`; may be called from several threads at once, with different ranges.
using WritePiece = std::function<Result<void>(uint64_t offset, std::span<const std::byte> piece)>;

// Packs all runs of `gguf` through `write`, the header last. `header` holds the source's mtime and sample; the rest is
// filled in. Row groups are spread over `pool` (null: the caller alone). Needs a few MB per thread.
Result<void> build_image(const GgufFile& gguf, std::span<const PackedEntry> entries, PackedHeader header,
                         ThreadPool* pool, const WritePiece& write);

// The source's bytes from first to last, through `write`. Fails (corrupt) if they do not have the source's SHA-256.
Result<void> restore_source(const PackedImage& image, const WritePiece& write);

}  // namespace nanomind
