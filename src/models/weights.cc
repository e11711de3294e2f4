// SPDX-License-Identifier: Apache-2.0
#include "models/weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>

#include "tensor/half.h"
#include "tensor/packed_layout.h"

namespace nanomind {

std::string block_name(int64_t layer, std::string_view name) { return fmt::format("blk.{}.{}", layer, name); }

std::string WeightReader::full_key(std::string_view key) const { return fmt::format("{}.{}", architecture_, key); }

bool WeightReader::has(std::string_view key) const { return file_.find(full_key(key)) != nullptr; }

int64_t WeightReader::count(std::string_view key, int64_t low, int64_t high) {
  const std::string name = full_key(key);
  const Result<uint64_t> value = file_.get_uint(name);
  if (!value) {
    complain(value.error().message);
    return low;
  }
  if (*value < static_cast<uint64_t>(low) || *value > static_cast<uint64_t>(high)) {
    complain(fmt::format("{} is {}, expected {} to {}.", name, *value, low, high));
    return low;
  }
  return static_cast<int64_t>(*value);
}

int64_t WeightReader::count_or(std::string_view key, int64_t fallback, int64_t low, int64_t high) {
  return has(key) ? count(key, low, high) : fallback;
}

int64_t WeightReader::largest(std::string_view key, int64_t low, int64_t high) {
  for (const GgufType type : {GgufType::i32, GgufType::u32}) {
    const Result<const GgufArray*> list = file_.get_array(full_key(key), type);
    if (!list) continue;
    int64_t largest = low - 1;
    for (uint64_t i = 0; i < (*list)->count; ++i) largest = std::max(largest, (*list)->integer(i));
    if (largest >= low && largest <= high) return largest;
    complain(fmt::format("The largest of {} is {}, expected {} to {}.", full_key(key), largest, low, high));
    return low;
  }
  return count(key, low, high);
}

int64_t WeightReader::largest_or(std::string_view key, int64_t fallback, int64_t low, int64_t high) {
  return has(key) ? largest(key, low, high) : fallback;
}

std::vector<float> WeightReader::list(std::string_view key, GgufType element, int64_t count) {
  std::vector<float> numbers(static_cast<size_t>(count));
  const Result<const GgufArray*> array = file_.get_array(full_key(key), element);
  if (!array) {
    complain(array.error().message);
  } else if ((*array)->count != numbers.size()) {
    complain(fmt::format("{} has {} elements, expected {}.", full_key(key), (*array)->count, count));
  } else {
    for (size_t i = 0; i < numbers.size(); ++i) numbers[i] = static_cast<float>((*array)->number(i));
  }
  return numbers;
}

double WeightReader::number(std::string_view key) {
  const Result<double> value = file_.get_float(full_key(key));
  if (!value) {
    complain(value.error().message);
    return 1.0;
  }
  if (!std::isfinite(*value)) {
    complain(fmt::format("{} is not a finite number.", full_key(key)));
    return 1.0;
  }
  return *value;
}

double WeightReader::number_or(std::string_view key, double fallback) { return has(key) ? number(key) : fallback; }

bool WeightReader::flag_or(std::string_view key, bool fallback) {
  if (!has(key)) return fallback;
  const Result<bool> value = file_.get_bool(full_key(key));
  if (!value) complain(value.error().message);
  return value.value_or(fallback);
}

std::string WeightReader::text_or(std::string_view key, std::string_view fallback) {
  if (!has(key)) return std::string(fallback);
  const Result<std::string_view> value = file_.get_string(full_key(key));
  if (value) return std::string(*value);
  complain(value.error().message);
  return std::string(fallback);
}

bool WeightReader::has_tensor(std::string_view name, std::string_view suffix) const {
  return file_.tensor(fmt::format("{}.{}", name, suffix)) != nullptr;
}

int64_t WeightReader::tensor_rows(std::string_view name) const {
  const GgufTensor* tensor = file_.tensor(fmt::format("{}.weight", name));
  return tensor != nullptr && tensor->shape.rank == 2 ? tensor->shape.rows() : 1;
}

int64_t WeightReader::tensor_columns(std::string_view name) const {
  const GgufTensor* tensor = file_.tensor(fmt::format("{}.weight", name));
  return tensor != nullptr && tensor->shape.rank == 2 ? tensor->shape.columns() : 1;
}

Weight WeightReader::transposed_matrix(std::string_view name, int64_t rows, int64_t columns) {
  const Weight stored = matrix(name, columns, rows);
  return recorder_.transpose(stored);
}

Weight WeightReader::matrix(std::string_view name, int64_t rows, int64_t columns) {
  return bind(fmt::format("{}.weight", name), {rows, columns});
}

Weight WeightReader::vector(std::string_view name, int64_t elements, std::string_view suffix) {
  return bind(fmt::format("{}.{}", name, suffix), {elements});
}

Weight WeightReader::optional_vector(std::string_view name, int64_t elements, std::string_view suffix) {
  return has_tensor(name, suffix) ? vector(name, elements, suffix) : Weight();
}

Weight WeightReader::matrix_rows(std::string_view name, Rows rows, int64_t columns) {
  const bool ends_with_group = rows.rows % kGroupRows == 0 || rows.first + rows.rows == rows.total;
  if (rows.first % kGroupRows != 0 || !ends_with_group) {
    refuse(fmt::format("Tensor {}.weight joins matrices whose rows are no multiples of {}, which is not supported.",
                       name, kGroupRows));
  }
  return bind(fmt::format("{}.weight", name), {rows.total, columns}, {rows.rows, columns}, rows.first);
}

Weight WeightReader::vector_rows(std::string_view name, Rows rows, std::string_view suffix) {
  return bind(fmt::format("{}.{}", name, suffix), {rows.total}, {rows.rows}, rows.first);
}

Weight WeightReader::flat_matrix(std::string_view name, int64_t rows, int64_t columns) {
  return bind(fmt::format("{}.weight", name), {rows, columns}, {rows * columns}, 0);
}

Weight WeightReader::experts(std::string_view name, int64_t experts, int64_t rows, int64_t columns) {
  check_stack(name, rows, columns);
  return bind(fmt::format("{}.weight", name), {experts, rows, columns});
}

Weight WeightReader::stacked(std::string_view name, int64_t index, int64_t count, int64_t rows, int64_t columns) {
  check_stack(name, rows, columns);
  return bind(fmt::format("{}.weight", name), {count, rows, columns}, {rows, columns}, index * rows);
}

void WeightReader::check_stack(std::string_view name, int64_t rows, int64_t columns) {
  if (rows % kGroupRows == 0 && columns % kUnitColumns == 0) return;
  refuse(
      fmt::format("Matrices of {} x {} in {}.weight are not supported, only rows that are multiples of {} and columns "
                  "that are multiples of {}.",
                  rows, columns, name, kGroupRows, kUnitColumns));
}

std::vector<float> WeightReader::floats(std::string_view name, int64_t elements) {
  return floats_of(fmt::format("{}.weight", name), elements);
}

std::vector<float> WeightReader::floats_of(const std::string& name, int64_t elements) {
  std::vector<float> numbers(static_cast<size_t>(elements), 1.0F);
  const GgufTensor* tensor = file_.tensor(name);
  if (tensor == nullptr || tensor->dtype != DType::f32 || tensor->shape != Shape{elements} ||
      tensor->data.size() != numbers.size() * sizeof(float)) {
    complain(fmt::format("Tensor {} is missing or is not of type F32 and shape [{}].", name, elements));
    return numbers;
  }
  std::memcpy(numbers.data(), tensor->data.data(), tensor->data.size());
  return numbers;
}

std::vector<float> WeightReader::matrix_floats(std::string_view name, int64_t rows, int64_t columns) {
  std::vector<float> numbers(static_cast<size_t>(rows * columns), 0.0F);
  const GgufTensor* tensor = file_.tensor(fmt::format("{}.weight", name));
  const bool fits = tensor != nullptr && tensor->dtype && tensor->shape == Shape{rows, columns};
  if (!fits || (tensor->dtype != DType::f32 && tensor->dtype != DType::f16 && tensor->dtype != DType::bf16)) {
    complain(fmt::format("Tensor {}.weight is missing or is not of type F32, F16 or BF16 and shape [{}, {}].", name,
                         rows, columns));
    return numbers;
  }
  for (size_t i = 0; i < numbers.size(); ++i) {
    uint16_t half = 0;
    if (tensor->dtype == DType::f32) {
      std::memcpy(&numbers[i], tensor->data.data() + 4 * i, 4);
    } else {
      std::memcpy(&half, tensor->data.data() + 2 * i, 2);
      numbers[i] = tensor->dtype == DType::f16 ? float_from_half(half) : float_from_bf16(half);
    }
  }
  return numbers;
}

Weight WeightReader::filters(std::string_view name, int64_t rows, int64_t channels, int64_t size,
                             std::string_view suffix) {
  return bind(fmt::format("{}.{}", name, suffix), {rows, channels, size, size}, {rows, channels * size * size}, 0);
}

Weight WeightReader::bind(const std::string& name, const Shape& whole, const Shape& shape, int64_t first) {
  WeightInfo info{.name = name, .dtype = DType::f32, .shape = shape, .first_row = first};
  const GgufTensor* tensor = file_.tensor(name);
  if (tensor == nullptr) {
    complain(fmt::format("Tensor {} is missing.", name));
  } else if (tensor->shape != whole) {
    complain(fmt::format("Tensor {} has shape {}, expected {}.", name, to_string(tensor->shape), to_string(whole)));
  } else if (!tensor->dtype) {
    refuse_type(name, tensor->type_number);
  } else {
    info.dtype = *tensor->dtype;
  }
  return recorder_.weight(std::move(info));
}

void WeightReader::refuse_type(std::string_view name, uint32_t type) {
  if (!refused_types_.insert(type).second) return;
  std::string text(gguf_type_name(type));
  if (text.empty()) text = fmt::format("number {}", type);
  refuse(
      fmt::format("Tensor {} has type {}, which is not supported. Get the model as a file of another type: Q8_0, "
                  "Q6_K, Q5_K_M, Q4_K_M, IQ4_XS, Q3_K_M or Q2_K, from large to small.",
                  name, text));
}

Result<void> WeightReader::check() const {
  if (failures_.empty()) return {};
  constexpr size_t kShown = 8;
  std::string message = fmt::format("The file does not fit architecture {}:", architecture_);
  for (size_t i = 0; i < failures_.size() && i < kShown; ++i) message += "\n  " + failures_[i];
  if (failures_.size() > kShown) message += fmt::format("\n  ... and {} more.", failures_.size() - kShown);
  return fail(code_, std::move(message));
}

}  // namespace nanomind
