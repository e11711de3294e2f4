// SPDX-License-Identifier: Apache-2.0
// How keys and values are kept between steps: the types, their names and sizes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/result.h"

namespace nanomind {

// In the quantised types, runs of 32 numbers along a head share a half scale. f32 is for proofs.
enum class KvType : uint8_t { f32, f16, q8_0, q4_0 };
inline constexpr KvType kKvTypes[] = {KvType::f32, KvType::f16, KvType::q8_0, KvType::q4_0};

std::string_view kv_type_name(KvType type);
// invalid_argument with the known names.
Result<KvType> parse_kv_type(std::string_view name);

// Bytes of one token's key in one head of that width (a multiple of 8), and as many of its value.
size_t kv_row_bytes(KvType type, int64_t head_dim);

}  // namespace nanomind
