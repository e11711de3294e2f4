// SPDX-License-Identifier: Apache-2.0
// Reader of GGUF v2 and v3 files: checks every count, length, offset, overlap and alignment before it trusts it.
// Views only: strings and tensor data point into the mapped file, which lives as long as the GgufFile.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nanomind {

enum class GgufType : uint32_t { u8, i8, u16, i16, u32, i32, f32, boolean, string, array, u64, i64, f64 };

struct GgufArray {
  GgufType element = GgufType::u8;
  uint64_t count = 0;
  std::span<const std::byte> bytes;       // raw little-endian elements; empty for strings
  std::vector<std::string_view> strings;  // when element is string

  // Element i (not a string) as a number; i < count.
  double number(uint64_t i) const;
  int64_t integer(uint64_t i) const;
};

using GgufValue = std::variant<bool, int64_t, uint64_t, double, std::string_view, GgufArray>;

struct GgufTensor {
  std::string_view name;
  uint32_t type_number = 0;    // as in the file
  std::optional<DType> dtype;  // null: a type that we cannot run (data is then empty if its size is unknown)
  Shape shape;                 // outermost first
  uint64_t offset = 0;         // of the data, from the start of the file
  uint64_t size_bytes = 0;     // 0 when the type's size is unknown
  std::span<const std::byte> data;
};

// A run of a GGUF file's bytes that is present in memory.
struct GgufPart {
  uint64_t offset = 0;  // in the file
  std::span<const std::byte> bytes;
};

class GgufFile {
 public:
  // Maps the file. Errors name the path and say what the file is instead (HTML page, LFS pointer, safetensors, empty,
  // truncated, big-endian, a future version, one part of a split model, ...).
  static Result<GgufFile> open(const std::filesystem::path& path);
  // Reads from memory that outlives the result; for tests and fuzzers.
  static Result<GgufFile> parse(std::span<const std::byte> bytes);
  // Reads a file of `size_bytes` of which only `parts` are there: ascending, the first from offset 0 with the whole
  // header. A tensor that lies in no part has empty data. `subject` names the file in errors.
  static Result<GgufFile> parse_parts(std::span<const GgufPart> parts, uint64_t size_bytes, std::string subject);

  uint32_t version() const { return version_; }
  uint64_t size_bytes() const { return size_bytes_; }
  // Where tensor data begins; everything before it is the header.
  uint64_t data_offset() const { return data_offset_; }
  // What tensor data is aligned to: general.alignment, or 32.
  uint64_t alignment() const { return alignment_; }
  // The whole file, or the first part of one read by parse_parts.
  std::span<const std::byte> bytes() const { return bytes_; }
  // Path, or what the bytes are, as messages name it.
  const std::string& subject() const { return subject_; }
  // Tells the system that these bytes of the file will not be read again soon, so that they stop counting as our
  // memory.
  void release(std::span<const std::byte> range) const;

  const GgufValue* find(std::string_view key) const;
  const std::vector<std::pair<std::string_view, GgufValue>>& metadata() const { return metadata_; }
  // Entry i of metadata() as it stands in the file: key, type, value.
  std::span<const std::byte> metadata_bytes(size_t i) const;
  std::span<const GgufTensor> tensors() const { return tensors_; }
  const GgufTensor* tensor(std::string_view name) const;

  // Typed look-ups. The error names the key and says whether it is missing or has another type. Integers of any width
  // and sign are accepted where they fit; get_float accepts integers too.
  Result<uint64_t> get_uint(std::string_view key) const;
  Result<double> get_float(std::string_view key) const;
  Result<bool> get_bool(std::string_view key) const;
  Result<std::string_view> get_string(std::string_view key) const;
  Result<const GgufArray*> get_array(std::string_view key, GgufType element) const;

 private:
  friend class GgufParser;

  std::optional<MappedFile> file_;
  std::string subject_;
  std::span<const std::byte> bytes_;
  uint64_t size_bytes_ = 0;
  uint32_t version_ = 0;
  uint64_t data_offset_ = 0;
  uint64_t metadata_end_ = 0;
  uint64_t alignment_ = 32;
  std::vector<std::pair<std::string_view, GgufValue>> metadata_;
  std::unordered_map<std::string_view, size_t> keys_;
  std::vector<GgufTensor> tensors_;
  std::unordered_map<std::string_view, size_t> names_;
};

}  // namespace nanomind
