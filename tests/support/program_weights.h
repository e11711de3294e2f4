// SPDX-License-Identifier: Apache-2.0
// Random weights of a small program in both forms: packed for a device, floats for the reference interpreter.
#pragma once

#include <cstring>
#include <span>
#include <vector>

#include "ops/recorder.h"
#include "tests/support/random_weights.h"

namespace nanomind::testing {

class ProgramWeights {
 public:
  explicit ProgramWeights(uint32_t seed) : random_(seed) {}

  // A matrix of so many rows, or those of several experts one below the other, which then have a shape of their own.
  Weight matrix(Recorder& rec, DType dtype, int64_t rows, int64_t columns, float size) {
    return matrix(rec, dtype, rows, columns, size, {rows, columns});
  }
  Weight matrix(Recorder& rec, DType dtype, int64_t rows, int64_t columns, float size, const Shape& shape) {
    const auto gguf = random_.gguf(dtype, rows, columns, size);
    packed_.push_back(pack(dtype, gguf, rows, columns));
    sizes_.push_back(packed_bytes(dtype, rows, columns));
    floats_.push_back(dequantize(dtype, gguf, rows, columns));
    return rec.weight({"m", dtype, shape});
  }
  Weight vector(Recorder& rec, int64_t n, float size) { return vector(rec, random_.floats(n, size)); }
  Weight vector(Recorder& rec, std::vector<float> numbers) {
    const auto n = static_cast<int64_t>(numbers.size());
    sizes_.push_back(numbers.size() * sizeof(float));
    packed_.push_back(aligned(sizes_.back()));
    std::memcpy(packed_.back().data(), numbers.data(), sizes_.back());
    floats_.push_back(std::move(numbers));
    return rec.weight({"v", DType::f32, {n}});
  }
  std::vector<float> numbers(int64_t n, float size) { return random_.floats(n, size); }

  // Parallel to Program::weights. The views live as long as this object, wherever it moves.
  const std::vector<std::vector<float>>& floats() const { return floats_; }
  std::vector<std::span<const std::byte>> views() const {
    std::vector<std::span<const std::byte>> views;
    for (size_t i = 0; i < packed_.size(); ++i) views.emplace_back(packed_[i].data()->bytes, sizes_[i]);
    return views;
  }

 private:
  RandomWeights random_;
  std::vector<std::vector<Line>> packed_;
  std::vector<size_t> sizes_;
  std::vector<std::vector<float>> floats_;
};

}  // namespace nanomind::testing
