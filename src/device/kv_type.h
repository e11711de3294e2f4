// SPDX-License-Identifier: Apache-2.0
// How keys and values are kept between steps: the types, their names and sizes, and which a layer gets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "ops/program.h"

namespace nanomind {

// In the quantised types, runs of 32 numbers along a head share a half scale. f32 is for proofs. A cache of q4_0 has
// biased keys in q8_0: see kv_layer_types.
enum class KvType : uint8_t { f32, f16, q8_0, q4_0 };
inline constexpr KvType kKvTypes[] = {KvType::f32, KvType::f16, KvType::q8_0, KvType::q4_0};

std::string_view kv_type_name(KvType type);
// invalid_argument with the known names.
Result<KvType> parse_kv_type(std::string_view name);

// Bytes of one token's key in one head of that width (a multiple of 8), and as many of its value.
size_t kv_row_bytes(KvType type, int64_t head_dim);

struct KvTypes {
  KvType keys, values;
};
// What each of Program::kv_layers is kept as in a cache of `type`: keys and values both in that type, but for keys that
// are products with a bias, which q4_0 keeps in q8_0. A bias can be far larger than all that tells keys apart (some
// reach hundreds), and 16 steps between its extremes leave nothing of the rest.
std::vector<KvTypes> kv_layer_types(const Program& program, KvType type);

}  // namespace nanomind
