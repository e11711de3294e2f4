// SPDX-License-Identifier: Apache-2.0
// Packed weights of a model: made once from its GGUF file, kept in a side file, and mapped from there ever after, so
// that a second load takes milliseconds and processes share the pages. The bytes of the side file: packed_image.h.
//
// A side file belongs to a source when size, modification time, every byte of the GGUF header and a sample of pages
// from all over the tensor data agree. Reading a gigabyte to hash it would cost the milliseconds that the side file
// saves, and inode or device numbers change by themselves on the file systems of memory cards; the full SHA-256 is
// computed while packing, stored, and checked whenever the GGUF is written back.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "base/sha256.h"
#include "base/thread_pool.h"
#include "format/gguf.h"
#include "format/packed_image.h"
#include "tensor/dtype.h"

namespace nanomind {

// A matrix [rows, columns] in the layout of tensor/packed_layout.h for its type. The bytes are 64-byte aligned.
struct PackedMatrix {
  std::string name;
  DType dtype = DType::f32;
  int64_t rows = 0;
  int64_t columns = 0;
  std::span<const std::byte> bytes;
};

enum class PackedStorage {
  side_file,  // a file in PackOptions::directory; memory when that cannot be written, with a warning
  memory,
};

struct PackOptions {
  std::filesystem::path directory;  // of side files; created when missing
  ThreadPool* pool = nullptr;       // null: packs on the calling thread alone
  const Log* log = nullptr;         // null: silent
  PackedStorage storage = PackedStorage::side_file;
};

// All matrices of a model (as plan_entries finds them). Read-only, so any thread may use it. The
// bytes live as long as this object or a copy of it; copies share them.
class PackedWeights {
 public:
  // Null when the model has no such matrix.
  const PackedMatrix* find(std::string_view name) const;
  std::span<const PackedMatrix> matrices() const { return matrices_; }
  // Where the bytes lie now.
  PackedStorage storage() const { return storage_; }
  uint64_t size_bytes() const { return image_.bytes.size(); }
  const Sha256Digest& source_sha256() const { return image_.header.source_sha256; }
  uint64_t source_bytes() const { return image_.header.source_bytes; }
  const PackedImage& image() const { return image_; }

  // Joins a checked image with the names of its model's tensors; `owner` keeps the image's bytes alive. For this
  // module, its tests and fuzzers.
  static Result<PackedWeights> bind(PackedImage image, const GgufFile& gguf, PackedStorage storage,
                                    std::shared_ptr<const void> owner);

 private:
  PackedImage image_;
  PackedStorage storage_ = PackedStorage::side_file;
  std::vector<PackedMatrix> matrices_;
  std::unordered_map<std::string, size_t> names_;
  std::shared_ptr<const void> owner_;
};

// A model of which only the side file is kept. `gguf` has metadata and all tensors; those that are matrices have empty
// data. It views bytes that `weights` owns.
struct PackedModel {
  PackedWeights weights;
  GgufFile gguf;
};

// Where the side file of `source` lies in `directory`. Named after the source's file name and its absolute path, so
// that a new version of a model replaces the old one's side file. An empty directory is the current one.
std::filesystem::path packed_path(const std::filesystem::path& source, const std::filesystem::path& directory);

// The packed weights of `gguf`, which was opened from `source`: maps a side file that fits, else packs (seconds per
// GB). Several processes may call this at once for one source; one of them packs. No failure to write a side file is an
// error: the weights are then packed in memory and options.log is told why. Errors: out_of_memory.
Result<PackedWeights> open_or_pack(const GgufFile& gguf, const std::filesystem::path& source,
                                   const PackOptions& options);

// Opens a side file without its source. Errors: not_found, corrupt, unsupported (written by another version).
Result<PackedModel> open_packed(const std::filesystem::path& side_file);

// Writes the GGUF file that the weights were made from, bit for bit; nothing appears at `target` unless its SHA-256 is
// right.
Result<void> write_gguf(const PackedWeights& weights, const std::filesystem::path& target);

// Reads everything and compares it with the source's SHA-256 (seconds per GB).
Result<void> verify(const PackedWeights& weights);

}  // namespace nanomind
