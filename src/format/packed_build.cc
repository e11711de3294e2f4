// SPDX-License-Identifier: Apache-2.0
// Moves a model's bytes into a packed image and back, in pieces of about a megabyte.
#include <algorithm>
#include <atomic>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <optional>

#include "format/packed_image.h"
#include "tensor/packed.h"
#include "tensor/packed_layout.h"

namespace nanomind {
namespace {

constexpr uint64_t kPieceBytes = 1 << 20;

// Bytes aligned for packed groups.
class Buffer {
 public:
  explicit Buffer(size_t size) : data_(static_cast<std::byte*>(::operator new(size, kAlign))), size_(size) {}
  std::byte* data() { return data_.get(); }
  std::span<const std::byte> bytes() const { return {data_.get(), size_}; }

 private:
  static constexpr std::align_val_t kAlign{64};
  struct Free {
    void operator()(std::byte* p) const { ::operator delete(p, kAlign); }
  };
  std::unique_ptr<std::byte, Free> data_;
  size_t size_;
};

// The first error of several threads.
class FirstError {
 public:
  void keep(Result<void> result) {
    if (result) return;
    const std::lock_guard lock(mutex_);
    if (!error_) error_ = std::move(result).error();
    failed_ = true;
  }
  bool failed() const { return failed_; }
  Result<void> result() {
    if (error_) return std::unexpected(*std::move(error_));
    return {};
  }

 private:
  std::mutex mutex_;
  std::optional<Error> error_;
  std::atomic<bool> failed_{false};
};

// A piece of an entry: row groups of a matrix, or bytes of a verbatim run.
struct Piece {
  const PackedEntry* entry;
  uint64_t first;
  uint64_t count;
  uint64_t padding = 0;  // zeros after the entry's last piece, up to the next entry
};

std::vector<Piece> pieces_of(std::span<const PackedEntry> entries) {
  std::vector<Piece> pieces;
  for (const PackedEntry& e : entries) {
    uint64_t units = e.bytes;
    uint64_t step = kPieceBytes;
    if (e.is_matrix()) {
      const uint64_t group = packed_group_bytes(e.dtype(), e.columns);
      units = e.bytes / group;
      step = std::max<uint64_t>(1, kPieceBytes / group);
    }
    for (uint64_t first = 0; first < units; first += step) pieces.push_back({&e, first, std::min(step, units - first)});
    if (units > 0 && &e != &entries.back()) pieces.back().padding = (&e + 1)->offset - (e.offset + e.bytes);
  }
  return pieces;
}

int rows_in_group(const PackedEntry& entry, uint64_t group) {
  return static_cast<int>(std::min<int64_t>(kGroupRows, entry.rows - static_cast<int64_t>(group) * kGroupRows));
}

// The bytes of the source that hold the piece's rows.
std::pair<uint64_t, uint64_t> source_range(const Piece& piece) {
  const PackedEntry& e = *piece.entry;
  if (!e.is_matrix()) return {e.source_offset + piece.first, piece.count};
  const uint64_t row = row_bytes(e.dtype(), static_cast<size_t>(e.columns));
  const uint64_t start = piece.first * kGroupRows * row;
  return {e.source_offset + start, std::min(piece.count * kGroupRows * row, e.source_bytes - start)};
}

Result<void> pack_piece(const GgufFile& gguf, const Piece& piece, const WritePiece& write) {
  const PackedEntry& e = *piece.entry;
  if (piece.padding > 0) TRY(write(e.offset + e.bytes, std::vector<std::byte>(piece.padding)));
  const auto [offset, size] = source_range(piece);
  const auto source = gguf.bytes().subspan(offset, size);
  if (!e.is_matrix()) return write(e.offset + piece.first, source);

  const uint64_t group_bytes = packed_group_bytes(e.dtype(), e.columns);
  const uint64_t source_group = kGroupRows * row_bytes(e.dtype(), static_cast<size_t>(e.columns));
  Buffer packed(piece.count * group_bytes);
  for (uint64_t g = 0; g < piece.count; ++g) {
    pack_group(e.dtype(), source.data() + g * source_group, rows_in_group(e, piece.first + g), e.columns,
               packed.data() + g * group_bytes);
  }
  gguf.release(source);
  return write(e.offset + piece.first * group_bytes, packed.bytes());
}

Sha256Digest hash_source(const GgufFile& gguf) {
  constexpr uint64_t kStep = 8 << 20;
  Sha256 hash;
  const auto all = gguf.bytes();
  for (uint64_t start = 0; start < all.size(); start += kStep) {
    const auto part = all.subspan(start, std::min<uint64_t>(kStep, all.size() - start));
    hash.update(part);
    if (start >= gguf.data_offset()) gguf.release(part);
  }
  return hash.finish();
}

}  // namespace

Result<void> build_image(const GgufFile& gguf, std::span<const PackedEntry> entries, PackedHeader header,
                         ThreadPool* pool, const WritePiece& write) {
  const std::vector<Piece> pieces = pieces_of(entries);
  FirstError error;
  // The hash of the source is one long job beside the many short ones, so it goes first.
  const auto job = [&](int64_t i) {
    if (error.failed()) return;
    if (i == 0) {
      header.source_sha256 = hash_source(gguf);
    } else {
      error.keep(pack_piece(gguf, pieces[static_cast<size_t>(i - 1)], write));
    }
  };
  ThreadPool alone(1);
  (pool != nullptr ? *pool : alone).for_each(static_cast<int64_t>(pieces.size()) + 1, job);
  TRY(error.result());

  header.packed_version = kPackedVersion;
  header.file_bytes = image_bytes(entries);
  header.entry_count = entries.size();
  header.source_bytes = gguf.size_bytes();
  header.checksum = header_checksum(header, entries);
  TRY(write(sizeof header, std::as_bytes(entries)));
  return write(0, std::as_bytes(std::span(&header, 1)));
}

Result<void> restore_source(const PackedImage& image, const WritePiece& write) {
  Sha256 hash;
  for (const Piece& piece : pieces_of(image.entries)) {
    const PackedEntry& e = *piece.entry;
    const auto [offset, size] = source_range(piece);
    const auto data = image.data(e);
    if (!e.is_matrix()) {
      hash.update(data.subspan(piece.first, piece.count));
      TRY(write(offset, data.subspan(piece.first, piece.count)));
      continue;
    }
    const uint64_t group_bytes = packed_group_bytes(e.dtype(), e.columns);
    const uint64_t source_group = kGroupRows * row_bytes(e.dtype(), static_cast<size_t>(e.columns));
    Buffer source(size);
    for (uint64_t g = 0; g < piece.count; ++g) {
      unpack_group(e.dtype(), data.data() + (piece.first + g) * group_bytes, rows_in_group(e, piece.first + g),
                   e.columns, source.data() + g * source_group);
    }
    hash.update(source.bytes());
    TRY(write(offset, source.bytes()));
  }
  if (hash.finish() != image.header.source_sha256) {
    return fail(ErrorCode::corrupt,
                "The packed weights are damaged: they do not give the model file that they were made "
                "from (SHA-256 " +
                    hex(image.header.source_sha256) + "). Download the model again.");
  }
  return {};
}

}  // namespace nanomind
