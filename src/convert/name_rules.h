// SPDX-License-Identifier: Apache-2.0
// How tensors of a checkpoint are called in the file: patterns of names, and what is done to the tensors that fit one.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>

#include "base/result.h"
#include "convert/output_tensor.h"
#include "format/safetensors.h"

namespace nanomind {

// What is done to the rows or elements of a tensor.
enum class Change {
  none,
  leave_out,      // the file has no such tensor
  query_heads,    // rows of each head reordered so that rotated pairs (i, i + half) are neighbours
  key_heads,      // the same for keys
  plus_one,       // norms that are stored as what is added to 1
  squeeze,        // without dimensions of 1
  positions,      // learnt positions, without the rows up to the padding's id, which no token has
  decay,          // A_log of a delta rule, as -exp of it and in the order of `value_heads`
  value_heads,    // delta rule: value heads in the order in which head h has key head h % K (qwen35)
  mixed_heads,    // the same for rows of q, k and v, of which only v's are reordered
  value_columns,  // the same for columns
};

// `source`: a tensor's name in the checkpoint without the models that it is nested in and without ".weight" or ".bias",
// which both names share; '#' stands for the layer and '@' for the number of an expert, of which one tensor is made.
// `target`: its name in the file. Names without either suffix are whole.
struct NameRule {
  std::string_view source, target;
  Change change = Change::none;
};

// The rule that a name fits, and what its wildcards stand for.
struct RuleMatch {
  const NameRule* rule = nullptr;
  std::string layer;        // digits
  int64_t expert = 0;       // where the rule has '@'
  std::string_view suffix;  // of the name: ".weight", ".bias" or nothing

  std::string target() const;
};

// The first rule that `name` fits. The result refers to both.
std::optional<RuleMatch> find_rule(std::span<const NameRule> rules, std::string_view name);

// The name without what stands before it in any of `outer`, as often as it does.
std::string_view without_prefixes(std::string_view name, std::span<const std::string_view> outer);

// Whether the tensor belongs to what a model sees with, by its whole name.
bool is_of_vision(std::string_view name);

// The tensor as it is. Fails where no floats can be made of it, or with more than kMaxDims dimensions.
Result<OutputTensor> whole_tensor(std::string name, const SafetensorsTensor& source);

// For a tensor that no rule names.
std::unexpected<Error> unknown_tensor(std::string_view name, std::string_view model_type);

}  // namespace nanomind
