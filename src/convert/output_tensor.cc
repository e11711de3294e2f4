// SPDX-License-Identifier: Apache-2.0
#include "convert/output_tensor.h"

#include <fmt/format.h>

#include <cstring>

#include "tensor/half.h"

namespace nanomind {
namespace {

template <typename T>
T load(const std::byte* from) {
  T value;
  std::memcpy(&value, from, sizeof value);
  return value;
}

size_t element_bytes(SafetensorsType type) {
  return type == SafetensorsType::f64 ? 8 : type == SafetensorsType::f32 ? 4 : 2;
}

float element(SafetensorsType type, const std::byte* from) {
  switch (type) {
    case SafetensorsType::f64: return static_cast<float>(load<double>(from));
    case SafetensorsType::f32: return load<float>(from);
    case SafetensorsType::f16: return float_from_half(load<uint16_t>(from));
    case SafetensorsType::bf16: return float_from_bf16(load<uint16_t>(from));
    default: break;
  }
  CHECK(false && "check_convertible was not asked");
}

}  // namespace

SourceRows all_rows(const SafetensorsTensor& source) {
  return {&source, 0, source.shape.size() == 1 ? source.elements() : source.rows()};
}

Result<void> check_convertible(const SafetensorsTensor& source) {
  switch (source.type) {
    case SafetensorsType::f64:
    case SafetensorsType::f32:
    case SafetensorsType::f16:
    case SafetensorsType::bf16: return {};
    default: break;
  }
  return fail(ErrorCode::unsupported,
              fmt::format("The tensor '{}' is of the type {}. Only models whose weights are floats are converted; look "
                          "for one that is not quantised.",
                          source.name, to_string(source.type)));
}

void OutputTensor::read(int64_t first, int64_t count, std::span<float> out) const {
  const int64_t width = columns();
  for (int64_t i = 0; i < count; ++i) {
    float* to = out.data() + i * width;
    if (sources.empty()) {
      std::memcpy(to, constant.data() + (first + i) * width, static_cast<size_t>(width) * sizeof(float));
      continue;
    }
    int64_t from_row = row ? row(first + i) : first + i;
    const SourceRows* part = sources.data();
    while (from_row >= part->rows) {
      from_row -= part->rows;
      ++part;
    }
    const SafetensorsTensor& source = *part->source;
    const size_t size = element_bytes(source.type);
    const std::byte* from = source.data.data() + static_cast<size_t>((part->first + from_row) * width) * size;
    for (int64_t c = 0; c < width; ++c) {
      const float value = element(source.type, from + static_cast<size_t>(column ? column(c) : c) * size);
      to[c] = change ? change(value) : value;
    }
  }
}

}  // namespace nanomind
