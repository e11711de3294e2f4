// SPDX-License-Identifier: Apache-2.0
#include "runtime/vision_work.h"

#include <span>
#include <variant>

#include "runtime/memory_budget.h"

namespace nanomind {
namespace {

uint64_t products_per_row(const Program& program) {
  double products = 0;
  for_each_product(program, [&](const WeightInfo& info, double part, Rows) {
    products += part * static_cast<double>(info.shape.elements());
  });
  return static_cast<uint64_t>(products);
}

// Pairs of a row and one that it sees, of `rows` rows.
uint64_t pairs(Mask mask, int64_t rows, std::span<const int32_t> groups) {
  const auto square = [](int64_t n) { return static_cast<uint64_t>(n) * static_cast<uint64_t>(n); };
  if (mask != Mask::group || groups.empty()) return square(rows);
  uint64_t count = 0;
  for (const int32_t group : groups) count += square(group);
  return count;
}

// Keys and values have as many columns as queries in towers.
uint64_t attention_products(const Program& program, int64_t rows, std::span<const int32_t> groups) {
  uint64_t products = 0;
  for (const Op& op : program.ops) {
    const auto* attention = std::get_if<op::Attention>(&op);
    if (attention == nullptr) continue;
    const auto columns = static_cast<uint64_t>(program.values[static_cast<size_t>(attention->q)].columns);
    products += 2 * columns * pairs(attention->mask, rows, groups);
  }
  return products;
}

}  // namespace

TileWork work_of(const VisionModel& model, const TileLayout& layout) {
  TileWork work;
  auto rows = static_cast<int64_t>(layout.patches.size());
  for (size_t i = 0; i < model.stages.size(); ++i) {
    const VisionStage& stage = model.stages[i];
    const bool first = i == 0, last = i + 1 == model.stages.size();
    rows = last ? static_cast<int64_t>(layout.results.size()) : rows / stage.merge;
    work.products += static_cast<uint64_t>(rows) * products_per_row(stage.program);
    work.attention_products +=
        attention_products(stage.program, rows, first ? std::span(layout.windows) : std::span<const int32_t>());
  }
  return work;
}

}  // namespace nanomind
