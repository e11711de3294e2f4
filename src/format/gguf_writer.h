// SPDX-License-Identifier: Apache-2.0
// Writes GGUF v3 files of any size: metadata and the list of tensors first, then data in any order and from any thread.
// The file appears under its name when it is complete.
//
//   GgufMetadata metadata;
//   metadata.add("general.architecture", "llama").add("llama.block_count", uint32_t{2});
//   GgufWriter writer = TRY(GgufWriter::create(path, metadata, tensors));
//   TRY(writer.write(0, 0, first_half)); ...
//   TRY(writer.finish());
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

#include "base/result.h"
#include "base/resumable_file.h"
#include "base/sha256.h"
#include "format/gguf.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nanomind {

template <typename T>
constexpr GgufType gguf_type_of() {
  if constexpr (std::is_same_v<T, bool>)
    return GgufType::boolean;
  else if constexpr (std::is_same_v<T, uint8_t>)
    return GgufType::u8;
  else if constexpr (std::is_same_v<T, int32_t>)
    return GgufType::i32;
  else if constexpr (std::is_same_v<T, uint32_t>)
    return GgufType::u32;
  else if constexpr (std::is_same_v<T, uint64_t>)
    return GgufType::u64;
  else if constexpr (std::is_same_v<T, float>)
    return GgufType::f32;
  else {
    static_assert(std::is_convertible_v<T, std::string_view>, "not a GGUF metadata type");
    return GgufType::string;
  }
}

// Keys in the order in which they were first added; a key that is added again gets the new value.
class GgufMetadata {
 public:
  // The C++ type chooses the GGUF type: bool, uint8_t, int32_t, uint32_t, uint64_t, float, or what is like a string.
  template <typename T>
  GgufMetadata& add(std::string_view key, const T& value) {
    std::string bytes;
    put(bytes, gguf_type_of<T>());
    put(bytes, value);
    return add_entry(key, std::move(bytes));
  }
  template <typename T>
  GgufMetadata& add(std::string_view key, const std::vector<T>& values) {
    std::string bytes;
    put(bytes, GgufType::array);
    put(bytes, gguf_type_of<T>());
    put(bytes, uint64_t{values.size()});
    for (const T& value : values) put(bytes, value);
    return add_entry(key, std::move(bytes));
  }
  // Entry `index` of another file's metadata.
  GgufMetadata& add_from(const GgufFile& file, size_t index);

  bool has(std::string_view key) const { return places_.contains(key); }
  size_t size() const { return entries_.size(); }
  // As they stand in a file.
  std::string bytes() const;

 private:
  template <typename T>
  static void put(std::string& out, const T& value) {
    if constexpr (std::is_arithmetic_v<T> || std::is_enum_v<T>) {
      out.append(reinterpret_cast<const char*>(&value), sizeof value);
    } else {
      const std::string_view text = value;
      put(out, uint64_t{text.size()});
      out.append(text);
    }
  }
  GgufMetadata& add_entry(std::string_view key, std::string bytes);

  struct Entry {
    std::string key, bytes;  // bytes: type and value
  };
  std::vector<Entry> entries_;
  std::map<std::string, size_t, std::less<>> places_;
};

struct GgufTensorSpec {
  std::string name;
  DType dtype = DType::f32;
  Shape shape;  // outermost first

  uint64_t size_bytes() const { return row_bytes(dtype, static_cast<size_t>(shape.columns())) * shape.rows(); }
};

class GgufWriter {
 public:
  static constexpr uint64_t kAlignment = 32;  // of tensor data, which readers assume where a file does not say

  // Reserves the whole file on disk as `<path>.partial` and writes its header; without finish it goes again. Errors:
  // no_space, io; invalid_argument for two tensors of one name, and while another process writes to `path`.
  static Result<GgufWriter> create(const std::filesystem::path& path, const GgufMetadata& metadata,
                                   std::span<const GgufTensorSpec> tensors);

  // The same, but what a run before this one had finished of a file with the same header and of the same `source` is
  // taken up, and the unfinished file stays after a failure, if a checkpoint has a tensor.
  static Result<GgufWriter> resume(const std::filesystem::path& path, const GgufMetadata& metadata,
                                   std::span<const GgufTensorSpec> tensors, const Sha256Digest& source);
  // How many tensors, from the first one on, the run before had finished.
  size_t tensors_done() const { return tensors_done_; }
  // The first `tensors` are written: a later run need not do so again. Waits for the disk.
  Result<void> checkpoint(size_t tensors);
  // The unfinished file shall not stay.
  void discard() { file_.set_leftover(ResumableFile::Leftover::goes); }

  // Writes bytes of tensor `index` from `offset` within it on. From any thread, for different ranges.
  Result<void> write(size_t index, uint64_t offset, std::span<const std::byte> data);
  // Makes the file appear. Whatever was not written is zero.
  Result<void> finish();

  uint64_t file_bytes() const { return file_bytes_; }

 private:
  struct Place {
    uint64_t offset = 0, bytes = 0;  // in the file
  };
  struct Plan {
    std::string header;
    std::vector<Place> places;
    uint64_t file_bytes = 0;
  };
  static Result<Plan> plan(const GgufMetadata& metadata, std::span<const GgufTensorSpec> tensors);
  GgufWriter(ResumableFile file, Plan plan)
      : file_(std::move(file)), file_bytes_(plan.file_bytes), places_(std::move(plan.places)) {}
  Result<void> begin(std::string_view header, uint64_t reserved);

  ResumableFile file_;
  uint64_t file_bytes_ = 0;
  std::vector<Place> places_;
  size_t tensors_done_ = 0;
  bool is_resumable_ = false;
  Sha256Digest identity_{};  // of source and header
};

}  // namespace nanomind
