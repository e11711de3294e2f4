// SPDX-License-Identifier: Apache-2.0
// Reader of safetensors files (format of the safetensors library: 8 bytes of header length, a JSON object of names with
// type, shape and offsets, then the data): every size is checked before it is trusted, tensors cover the data without a
// gap or overlap, and nothing is copied.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/mapped_file.h"
#include "base/result.h"

namespace nanomind {

enum class SafetensorsType { f64, f32, f16, bf16, i64, i32, i16, i8, u64, u32, u16, u8, boolean, f8_e4m3, f8_e5m2 };

// "BF16", as the format spells it.
std::string_view to_string(SafetensorsType type);

struct SafetensorsTensor {
  std::string name;
  SafetensorsType type = SafetensorsType::f32;
  std::vector<int64_t> shape;       // outermost first, every dimension positive; empty for a single number
  std::span<const std::byte> data;  // little-endian; lies in the file's mapping, aligned to nothing

  int64_t elements() const;
  int64_t columns() const { return shape.empty() ? 1 : shape.back(); }
  int64_t rows() const { return elements() / columns(); }
};

class SafetensorsFile {
 public:
  // Maps the file. Errors name the path and say what is wrong with it.
  static Result<SafetensorsFile> open(const std::filesystem::path& path);
  // Reads from memory that outlives the result; `subject` names it in errors.
  static Result<SafetensorsFile> parse(std::span<const std::byte> bytes, std::string_view subject);

  // By their place in the file.
  std::span<const SafetensorsTensor> tensors() const { return tensors_; }

 private:
  std::optional<MappedFile> file_;
  std::vector<SafetensorsTensor> tensors_;
};

// All tensors of a model: of one file, or of the files that an index (model.safetensors.index.json) names.
class SafetensorsModel {
 public:
  // `path`: a .safetensors file, an index, or a folder that has model.safetensors.index.json or model.safetensors.
  static Result<SafetensorsModel> open(const std::filesystem::path& path);

  // By name.
  const std::map<std::string, const SafetensorsTensor*, std::less<>>& tensors() const { return by_name_; }
  // Null when there is none.
  const SafetensorsTensor* find(std::string_view name) const;

 private:
  Result<void> add(const std::filesystem::path& path);
  Result<void> open_index(const std::filesystem::path& path);

  std::vector<std::unique_ptr<SafetensorsFile>> files_;
  std::map<std::string, const SafetensorsTensor*, std::less<>> by_name_;
};

}  // namespace nanomind
