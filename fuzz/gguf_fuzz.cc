// SPDX-License-Identifier: Apache-2.0
// Parses any bytes as a GGUF file and then reads everything that the reader promised to be there.
#include <cstddef>
#include <cstdint>
#include <span>
#include <variant>

#include "base/result.h"
#include "format/gguf.h"

using namespace nanomind;

namespace {

uint64_t sum(std::span<const std::byte> bytes) {
  uint64_t total = 0;
  for (const std::byte b : bytes) total += static_cast<uint8_t>(b);
  return total;
}

uint64_t read_value(const GgufValue& value) {
  uint64_t total = 0;
  if (const auto* text = std::get_if<std::string_view>(&value)) total += sum(std::as_bytes(std::span(*text)));
  if (const auto* array = std::get_if<GgufArray>(&value)) {
    for (const std::string_view text : array->strings) total += sum(std::as_bytes(std::span(text)));
    for (uint64_t i = 0; array->element != GgufType::string && i < array->count; ++i) {
      total += static_cast<uint64_t>(array->integer(i)) + (array->number(i) > 0 ? 1 : 0);
    }
  }
  return total;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = GgufFile::parse({reinterpret_cast<const std::byte*>(data), size});
  if (!file) {
    CHECK(file.error().message.ends_with("."));
    return 0;
  }
  volatile uint64_t total = 0;
  for (const auto& [key, value] : file->metadata()) {
    CHECK(file->find(key) == &value);
    total = total + read_value(value) + file->get_uint(key).value_or(0) + file->get_string(key).value_or("").size();
  }
  for (const GgufTensor& tensor : file->tensors()) {
    CHECK(file->tensor(tensor.name) == &tensor);
    CHECK(tensor.data.size() == tensor.size_bytes && tensor.shape.elements() > 0);
    total = total + sum(tensor.data);
  }
  return 0;
}
