// SPDX-License-Identifier: Apache-2.0
// How a session behaves beyond a single answer.
#pragma once

#include <cstdint>

namespace nanomind {

// When the context is full: a clear error, or the oldest tokens after the first ones are forgotten.
enum class Overflow : uint8_t { stop, slide };

struct SessionOptions {
  Overflow overflow = Overflow::stop;
  int64_t keep = 64;  // tokens at the beginning that never slide out; whole cache blocks are kept
};

}  // namespace nanomind
