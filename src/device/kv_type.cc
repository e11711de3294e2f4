// SPDX-License-Identifier: Apache-2.0
#include "device/kv_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <vector>

namespace nanomind {
namespace {

constexpr int64_t kRun = 32;  // numbers that share a scale

struct Traits {
  std::string_view name;
  int64_t bits;         // of a number
  int64_t scale_bytes;  // of a run
};

constexpr std::array<Traits, std::size(kKvTypes)> kTraits = {{
    {"f32", 32, 0},
    {"f16", 16, 0},
    {"q8_0", 8, 2},
    {"q4_0", 4, 2},
}};

const Traits& traits(KvType type) { return kTraits[static_cast<size_t>(type)]; }

}  // namespace

std::string_view kv_type_name(KvType type) { return traits(type).name; }

Result<KvType> parse_kv_type(std::string_view name) {
  std::vector<std::string_view> names;
  for (const KvType type : kKvTypes) {
    if (name == kv_type_name(type)) return type;
    names.push_back(kv_type_name(type));
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("Keys and values cannot be kept as '{}'; choose one of {}.", name, fmt::join(names, ", ")));
}

size_t kv_row_bytes(KvType type, int64_t head_dim) {
  const Traits& t = traits(type);
  return static_cast<size_t>(head_dim * t.bits / 8 + (head_dim + kRun - 1) / kRun * t.scale_bytes);
}

}  // namespace nanomind
