// SPDX-License-Identifier: Apache-2.0
// Reading of a model's parameters and weights: every look-up is checked, and all failures are collected and reported
// together.
#pragma once

#include <cstdint>
#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "ops/recorder.h"

namespace nanomind {

// Binds names of one GGUF file to parameters and to weights of a Recorder. After a failed look-up the returned value is
// a harmless placeholder and `check` fails, so a model file reads straight through and asks once at the end.
class WeightReader {
 public:
  WeightReader(const GgufFile& file, Recorder& recorder, std::string architecture)
      : file_(file), recorder_(recorder), architecture_(std::move(architecture)) {}

  // Metadata "<architecture>.<key>" within [low, high].
  int64_t count(std::string_view key, int64_t low, int64_t high);
  int64_t count_or(std::string_view key, int64_t fallback, int64_t low, int64_t high);
  // The same, of a number or of the largest of a list: hybrid models have one for each layer, 0 where it means nothing.
  int64_t largest(std::string_view key, int64_t low, int64_t high);
  int64_t largest_or(std::string_view key, int64_t fallback, int64_t low, int64_t high);
  double number(std::string_view key);
  double number_or(std::string_view key, double fallback);
  bool flag_or(std::string_view key, bool fallback);
  std::string text_or(std::string_view key, std::string_view fallback);
  bool has(std::string_view key) const;
  // A list of exactly `count` numbers, which may be infinite, or of flags (0 and 1); zeros after a failure.
  std::vector<float> list(std::string_view key, GgufType element, int64_t count);

  // Tensor "<name>.weight" (or another suffix) of exactly this shape; vectors are given to devices as floats.
  Weight matrix(std::string_view name, int64_t rows, int64_t columns);
  Weight vector(std::string_view name, int64_t elements, std::string_view suffix = "weight");
  // Tensor "<name>.weight" (or another suffix) [rows, channels, size, size] of filters that do not overlap, as a matrix
  // of so many rows.
  Weight filters(std::string_view name, int64_t rows, int64_t channels, int64_t size,
                 std::string_view suffix = "weight");
  // Rows and columns of matrix "<name>.weight", 1 where it is missing.
  int64_t tensor_rows(std::string_view name) const;
  int64_t tensor_columns(std::string_view name) const;
  bool has_tensor(std::string_view name, std::string_view suffix = "weight") const;
  // The vector if the file has it, else an absent weight.
  Weight optional_vector(std::string_view name, int64_t elements, std::string_view suffix = "weight");

  // Rows [first, first + rows) of a tensor that holds several matrices one below the other: of a matrix of `total`
  // rows, or of a vector. Those of a matrix begin and end where row groups do.
  struct Rows {
    int64_t first = 0, rows = 0, total = 0;
  };
  Weight matrix_rows(std::string_view name, Rows rows, int64_t columns);
  Weight vector_rows(std::string_view name, Rows rows, std::string_view suffix);

  // Tensor "<name>.weight" that holds the transposed matrix [columns, rows], given to devices as F32.
  Weight transposed_matrix(std::string_view name, int64_t rows, int64_t columns);

  // A small matrix that no product reads, given to devices as rows * columns floats.
  Weight flat_matrix(std::string_view name, int64_t rows, int64_t columns);

  // Tensor "<name>.weight" of `experts` matrices [rows, columns].
  Weight experts(std::string_view name, int64_t experts, int64_t rows, int64_t columns);

  // Matrix `index` of tensor "<name>.weight", which holds `count` matrices [rows, columns].
  Weight stacked(std::string_view name, int64_t index, int64_t count, int64_t rows, int64_t columns);

  // The numbers of the small F32 tensor "<name>.weight", or of one of exactly this name.
  std::vector<float> floats(std::string_view name, int64_t elements);
  std::vector<float> floats_of(const std::string& tensor, int64_t elements);
  // All numbers of matrix "<name>.weight" [rows, columns] of type F32, F16 or BF16.
  std::vector<float> matrix_floats(std::string_view name, int64_t rows, int64_t columns);

  // Records a failure found by the model itself: the file is not as it should be, or we cannot run it.
  void complain(std::string message) { failures_.push_back(std::move(message)); }
  void refuse(std::string message) {
    code_ = ErrorCode::unsupported;
    complain(std::move(message));
  }
  // All failures so far as one error, or success.
  Result<void> check() const;
  bool failed() const { return !failures_.empty(); }

 private:
  std::string full_key(std::string_view key) const;
  Weight bind(const std::string& name, const Shape& shape) { return bind(name, shape, shape, 0); }
  // The part of `shape` that starts at row `first` of a tensor of shape `whole`.
  Weight bind(const std::string& name, const Shape& whole, const Shape& shape, int64_t first);

  // Matrices that follow each other in a tensor are packed as one.
  void check_stack(std::string_view name, int64_t rows, int64_t columns);

  // Tells once of each type that some tensor has and that we cannot run.
  void refuse_type(std::string_view name, uint32_t type);

  const GgufFile& file_;
  Recorder& recorder_;
  std::string architecture_;
  std::vector<std::string> failures_;
  std::set<uint32_t> refused_types_;
  ErrorCode code_ = ErrorCode::corrupt;
};

// "blk.<layer>.<name>"
std::string block_name(int64_t layer, std::string_view name);

}  // namespace nanomind
