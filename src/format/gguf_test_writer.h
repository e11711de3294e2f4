// SPDX-License-Identifier: Apache-2.0
// Builds small GGUF files for tests, good ones and (through the raw hooks) broken ones.
//
//   GgufTestWriter w;
//   w.add("general.architecture", "llama").add("llama.block_count", uint32_t{2});
//   w.add("tokenizer.ggml.tokens", std::vector<std::string>{"a", "b"});
//   w.add_tensor("token_embd.weight", DType::q4_0, {32, 64}, bytes);      // shape outermost first, bytes as in the
//   file w.add_floats("output_norm.weight", {64}, values);                     // f32 GgufFile file =
//   *GgufFile::parse(w.bytes());                          // or w.write(path)
#pragma once

#include <cstddef>
#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "tensor/dtype.h"
#include "tensor/shape.h"

namespace nanomind {

// A growing run of little-endian bytes.
class GgufBytes {
 public:
  template <typename T>
  GgufBytes& put(T value) {
    static_assert(std::is_arithmetic_v<T> || std::is_enum_v<T>);
    const auto* raw = reinterpret_cast<const std::byte*>(&value);
    bytes_.insert(bytes_.end(), raw, raw + sizeof value);
    return *this;
  }
  GgufBytes& put_raw(std::string_view text) { return append(std::as_bytes(std::span(text))); }
  GgufBytes& put_string(std::string_view text) { return put<uint64_t>(text.size()).put_raw(text); }
  GgufBytes& append(std::span<const std::byte> more) {
    bytes_.insert(bytes_.end(), more.begin(), more.end());
    return *this;
  }
  void pad_to(size_t alignment) { bytes_.resize((bytes_.size() + alignment - 1) / alignment * alignment); }
  size_t size() const { return bytes_.size(); }
  const std::vector<std::byte>& bytes() const { return bytes_; }

 private:
  std::vector<std::byte> bytes_;
};

class GgufTestWriter {
 public:
  // Metadata: the C++ type chooses the GGUF type (bool, the sized integers, float, double, anything like a string, and
  // std::vector of those; bool arrays as std::vector<bool>).
  template <typename T>
  GgufTestWriter& add(std::string_view key, const T& value) {
    GgufBytes bytes;
    if constexpr (std::is_convertible_v<T, std::string_view>) {
      bytes.put_string(value);
      return add_raw(key, static_cast<uint32_t>(GgufType::string), bytes);
    } else {
      bytes.put(value);
      return add_raw(key, static_cast<uint32_t>(type_of<T>()), bytes);
    }
  }
  template <typename T>
  GgufTestWriter& add(std::string_view key, const std::vector<T>& values) {
    GgufBytes bytes;
    bytes.put(type_of<T>()).template put<uint64_t>(values.size());
    for (const auto& value : values) {
      if constexpr (type_of<T>() == GgufType::string) {
        bytes.put_string(value);
      } else {
        bytes.put(static_cast<T>(value));
      }
    }
    return add_raw(key, static_cast<uint32_t>(GgufType::array), bytes);
  }

  // A tensor with its bytes as they stand in the file; shape outermost first.
  GgufTestWriter& add_tensor(std::string_view name, DType dtype, const Shape& shape, std::vector<std::byte> data) {
    std::vector<uint64_t> dims;
    for (int i = shape.rank - 1; i >= 0; --i) dims.push_back(static_cast<uint64_t>(shape[i]));
    return add_raw_tensor(name, dims, static_cast<uint32_t>(dtype), std::move(data));
  }
  GgufTestWriter& add_floats(std::string_view name, const Shape& shape, const std::vector<float>& values) {
    const auto raw = std::as_bytes(std::span(values));
    return add_tensor(name, DType::f32, shape, {raw.begin(), raw.end()});
  }

  // For broken files: a value with any type number and bytes; dimensions innermost first, any type number, any offset.
  GgufTestWriter& add_raw(std::string_view key, uint32_t type, const GgufBytes& value) {
    keys_.put_string(key).put(type).append(value.bytes());
    ++key_count;
    return *this;
  }
  GgufTestWriter& add_raw_tensor(std::string_view name, std::vector<uint64_t> dims, uint32_t type,
                                 std::vector<std::byte> data, std::optional<uint64_t> offset = std::nullopt) {
    tensors_.push_back({std::string(name), std::move(dims), type, std::move(data), offset});
    tensor_count = tensors_.size();
    return *this;
  }

  // What the header will say; change them after adding to make a file that lies.
  uint32_t version = 3;
  uint64_t tensor_count = 0;
  uint64_t key_count = 0;
  size_t alignment = 32;  // used for padding; not written as general.alignment by itself

  std::vector<std::byte> bytes() const {
    GgufBytes out;
    out.put_raw("GGUF").put(version).put(tensor_count).put(key_count).append(keys_.bytes());
    GgufBytes data;
    for (const Tensor& t : tensors_) {
      data.pad_to(alignment);
      out.put_string(t.name).put(static_cast<uint32_t>(t.dims.size()));
      for (const uint64_t dim : t.dims) out.put(dim);
      out.put(t.type).put(t.offset.value_or(data.size()));
      data.append(t.data);
    }
    data.pad_to(alignment);
    out.pad_to(alignment);
    return out.append(data.bytes()).bytes();
  }

  Result<void> write(const std::filesystem::path& path) const {
    const std::vector<std::byte> all = bytes();
    std::ofstream file(path, std::ios::binary);
    file.write(reinterpret_cast<const char*>(all.data()), static_cast<std::streamsize>(all.size()));
    file.close();
    if (!file) return fail(ErrorCode::io, "Cannot write " + path.string() + ".");
    return {};
  }

 private:
  struct Tensor {
    std::string name;
    std::vector<uint64_t> dims;
    uint32_t type;
    std::vector<std::byte> data;
    std::optional<uint64_t> offset;
  };

  template <typename T>
  static constexpr GgufType type_of() {
    if constexpr (std::is_same_v<T, bool>)
      return GgufType::boolean;
    else if constexpr (std::is_same_v<T, uint8_t>)
      return GgufType::u8;
    else if constexpr (std::is_same_v<T, int8_t>)
      return GgufType::i8;
    else if constexpr (std::is_same_v<T, uint16_t>)
      return GgufType::u16;
    else if constexpr (std::is_same_v<T, int16_t>)
      return GgufType::i16;
    else if constexpr (std::is_same_v<T, uint32_t>)
      return GgufType::u32;
    else if constexpr (std::is_same_v<T, int32_t>)
      return GgufType::i32;
    else if constexpr (std::is_same_v<T, uint64_t>)
      return GgufType::u64;
    else if constexpr (std::is_same_v<T, int64_t>)
      return GgufType::i64;
    else if constexpr (std::is_same_v<T, float>)
      return GgufType::f32;
    else if constexpr (std::is_same_v<T, double>)
      return GgufType::f64;
    else {
      static_assert(std::is_convertible_v<T, std::string_view>, "not a GGUF metadata type");
      return GgufType::string;
    }
  }

  GgufBytes keys_;
  std::vector<Tensor> tensors_;
};

}  // namespace nanomind
