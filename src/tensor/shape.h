// SPDX-License-Identifier: Apache-2.0
// Shapes, and the letters for dimensions that every comment in this project uses.
//
//   T tokens of this step      P tokens already in the cache (past)   R rows whose logits are wanted
//   E model width              F feed-forward width                   V vocabulary
//   H query heads              K key/value heads (GQA)                D width of a head
//   N rows of a weight (out)   C columns of a weight (in)             M rows of an activation in a product
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <string>

namespace nanomind {

inline constexpr int kMaxDims = 4;

// Dimensions outermost first, so a weight that maps C inputs to N outputs is {N, C} and rows are contiguous.
// (GGUF stores the reverse order; the reader turns it round.)
struct Shape {
  std::array<int64_t, kMaxDims> dims{};
  int rank = 0;

  Shape() = default;
  Shape(std::initializer_list<int64_t> list) {
    for (int64_t d : list) dims[rank++] = d;
  }
  int64_t operator[](int i) const { return dims[i]; }
  int64_t elements() const {
    int64_t n = 1;
    for (int i = 0; i < rank; ++i) n *= dims[i];
    return n;
  }
  int64_t columns() const { return rank == 0 ? 0 : dims[rank - 1]; }
  int64_t rows() const { return columns() == 0 ? 0 : elements() / columns(); }
  bool operator==(const Shape&) const = default;
};

// "[151936, 896]"
std::string to_string(const Shape& shape);

}  // namespace nanomind
