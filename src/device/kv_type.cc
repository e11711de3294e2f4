// SPDX-License-Identifier: Apache-2.0
#include "device/kv_type.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <array>
#include <string>
#include <variant>

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

// The layers whose keys are products with a bias, or made of such by what keeps its share: parts, norms, factors and
// rotary positions.
class BiasedKeys {
 public:
  explicit BiasedKeys(const Program& program) : values_(program.values.size()), layers_(program.kv_layers.size()) {
    for (const Op& op : program.ops) std::visit([this](const auto& o) { follow(o); }, op);
  }
  bool operator[](size_t layer) const { return layers_[layer]; }

 private:
  void follow(const op::MatMul& o) { values_[index(o.out)] = o.bias != kNoWeight; }
  void follow(const op::RmsNorm& o) { pass(o.x, o.out); }
  void follow(const op::LayerNorm& o) { pass(o.x, o.out); }
  void follow(const op::ScaleColumns& o) { pass(o.x, o.out); }
  void follow(const op::Columns& o) { pass(o.x, o.out); }
  void follow(const op::SplitHeads& o) {
    pass(o.x, o.first);
    pass(o.x, o.second);
  }
  void follow(const op::Attention& o) {
    if (o.k != kNoValue) layers_[index(o.layer)] = values_[index(o.k)];
  }
  void follow(const auto&) {}  // works in place, or makes no keys

  static size_t index(int32_t id) { return static_cast<size_t>(id); }
  void pass(ValueId from, ValueId to) { values_[index(to)] = values_[index(from)]; }

  std::vector<bool> values_, layers_;
};

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

std::vector<KvTypes> kv_layer_types(const Program& program, KvType type) {
  std::vector<KvTypes> types(program.kv_layers.size(), {.keys = type, .values = type});
  if (type != KvType::q4_0) return types;
  const BiasedKeys biased(program);
  for (size_t layer = 0; layer < types.size(); ++layer) {
    if (biased[layer]) types[layer].keys = KvType::q8_0;
  }
  return types;
}

}  // namespace nanomind
