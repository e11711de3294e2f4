// SPDX-License-Identifier: Apache-2.0
// Parses any bytes as a safetensors file and then reads everything that the reader promised to be there.
#include <cstddef>
#include <cstdint>
#include <span>

#include "base/result.h"
#include "format/safetensors.h"

using namespace nanomind;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto file = SafetensorsFile::parse({reinterpret_cast<const std::byte*>(data), size}, "The input");
  if (!file) {
    CHECK(file.error().message.ends_with("."));
    return 0;
  }
  volatile uint64_t total = 0;
  for (const SafetensorsTensor& tensor : file->tensors()) {
    CHECK(tensor.elements() > 0 && tensor.rows() * tensor.columns() == tensor.elements());
    for (const std::byte b : tensor.data) total = total + static_cast<uint8_t>(b);
  }
  return 0;
}
