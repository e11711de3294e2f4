// SPDX-License-Identifier: Apache-2.0
#include "convert/tensor_changes.h"

#include <fmt/format.h>

#include <cmath>

namespace nanomind {
namespace {

std::unexpected<Error> unfit(const OutputTensor& tensor) {
  return fail(ErrorCode::corrupt, fmt::format("The tensor for {} of shape {} does not fit the numbers of config.json.",
                                              tensor.name, to_string(tensor.shape)));
}

// Row 2i + j of a head is its row i + j * half.
Result<void> pair_neighbours(int64_t heads, OutputTensor& tensor) {
  if (heads <= 0 || tensor.rows() % (2 * heads) != 0) return unfit(tensor);
  const int64_t head = tensor.rows() / heads;
  tensor.row = [head](int64_t row) {
    const int64_t within = row % head;
    return row - within + within / 2 + within % 2 * (head / 2);
  };
  return {};
}

void squeeze(OutputTensor& tensor) {
  Shape shape;
  for (int i = 0; i < tensor.shape.rank; ++i) {
    if (tensor.shape[i] != 1) shape.dims[static_cast<size_t>(shape.rank++)] = tensor.shape[i];
  }
  if (shape.rank == 0) shape = {1};
  tensor.shape = shape;
}

Result<void> skip_rows(int64_t count, OutputTensor& tensor) {
  if (tensor.shape.rank != 2 || tensor.rows() <= count) return unfit(tensor);
  tensor.shape = {tensor.rows() - count, tensor.columns()};
  tensor.sources.front().first = count;
  tensor.sources.front().rows -= count;
  return {};
}

// Index of an element of value heads, of which `each` neighbours share one of `keys` key heads, in the order in which
// value head h has key head h % keys; `start` elements before them stay.
struct Tiling {
  int64_t start = 0, keys = 1, each = 1, width = 1;

  int64_t operator()(int64_t index) const {
    if (index < start) return index;
    const int64_t head = (index - start) / width, within = (index - start) % width;
    return start + (head % keys * each + head / keys) * width + within;
  }
};

Result<Tiling> tiling(const Config& config, int64_t elements, int64_t start, const OutputTensor& tensor) {
  const int64_t keys = TRY(config.integer("linear_num_key_heads"));
  const int64_t values = TRY(config.integer("linear_num_value_heads"));
  if (keys <= 0 || values % keys != 0 || elements <= start || (elements - start) % values != 0) return unfit(tensor);
  return Tiling{start, keys, values / keys, (elements - start) / values};
}

Result<void> tile_rows(const Config& config, int64_t start, OutputTensor& tensor) {
  const Tiling order = TRY(tiling(config, tensor.rows(), start, tensor));
  if (order.each > 1) tensor.row = order;
  return {};
}

}  // namespace

int64_t unused_positions(const Config& config) { return config.integer_or("pad_token_id", 1) + 1; }

Result<void> apply_change(Change change, const Config& config, OutputTensor& tensor) {
  switch (change) {
    case Change::none:
    case Change::leave_out: return {};
    case Change::query_heads: return pair_neighbours(TRY(config.integer("num_attention_heads")), tensor);
    case Change::key_heads:
      return pair_neighbours(config.integer_or("num_key_value_heads", TRY(config.integer("num_attention_heads"))),
                             tensor);
    case Change::plus_one: tensor.change = [](float value) { return value + 1.0F; }; return {};
    case Change::squeeze: squeeze(tensor); return {};
    case Change::positions: return skip_rows(unused_positions(config), tensor);
    case Change::decay:
      tensor.change = [](float value) { return -std::exp(value); };
      return tile_rows(config, 0, tensor);
    case Change::value_heads: return tile_rows(config, 0, tensor);
    case Change::mixed_heads: {
      squeeze(tensor);
      const int64_t keys = TRY(config.integer("linear_num_key_heads")) * TRY(config.integer("linear_key_head_dim"));
      return tile_rows(config, 2 * keys, tensor);
    }
    case Change::value_columns: {
      const Tiling order = TRY(tiling(config, tensor.columns(), 0, tensor));
      if (order.each > 1) tensor.column = order;
      return {};
    }
  }
  CHECK(false && "a change that is not there");
}

}  // namespace nanomind
