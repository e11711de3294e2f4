// SPDX-License-Identifier: Apache-2.0
// The parsing half of GgufFile: walks the header once, from front to back, and believes nothing that it has not
// checked. Time is linear in the header's size; memory is bounded by a small multiple of the bytes that were really
// read.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "format/gguf.h"

namespace nanomind {

// "u8", "string" and so on, as messages name element types.
std::string_view gguf_type_label(GgufType type);

class GgufParser {
 public:
  // As GgufFile::parse_parts.
  GgufParser(std::span<const GgufPart> parts, uint64_t size_bytes, std::string subject);
  Result<GgufFile> parse();

 private:
  Result<void> read_counts();
  Result<void> read_metadata();
  Result<GgufValue> read_value(GgufType type, std::string_view key);
  Result<GgufArray> read_array(std::string_view key);
  Result<void> read_alignment();
  Result<void> read_tensor_infos();
  Result<GgufTensor> read_tensor_info();
  Result<void> read_shape(GgufTensor& tensor);
  Result<void> check_size(GgufTensor& tensor);
  Result<void> place_tensors();
  std::span<const std::byte> present(uint64_t offset, uint64_t size) const;

  uint64_t left() const { return bytes_.size() - position_; }
  template <typename T>
  Result<T> read();
  // Fails unless `count` entries of at least `least_bytes` each can follow.
  Result<void> check_fits(uint64_t count, uint64_t least_bytes, std::string_view what);
  Result<std::string_view> read_string();
  // The header ended too early, or says something impossible about `what`.
  std::unexpected<Error> cut_short() const;
  std::unexpected<Error> damaged(const std::string& what) const;

  std::span<const GgufPart> parts_;
  std::span<const std::byte> bytes_;  // parts_[0]: the header and what follows it
  uint64_t position_ = 0;
  std::string reading_ = "its fixed header";  // for messages
  uint64_t tensor_count_ = 0;
  uint64_t key_count_ = 0;
  GgufFile file_;
};

}  // namespace nanomind
