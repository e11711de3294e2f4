// SPDX-License-Identifier: Apache-2.0
// Which type each tensor of a quantised file gets: a plain type, or a mix that gives the tensors that matter most more
// bits, by the names and rules that files of this format go by.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "tensor/dtype.h"

namespace nanomind {

// "q4_k_m" and the like: what most matrices get, and how much more the others. Plain: all but the head get the same
// (and but keys and values beside eight experts).
enum class MixSize { plain, small, medium, large };
struct Mix {
  DType base = DType::q8_0;
  MixSize size = MixSize::plain;
};

// A type ("q4_0", "q6_k") or a mix ("q4_k_m"), in any case; q2_k, iq4_nl and iq4_xs are names of mixes too, and mean
// those. invalid_argument, with the list of all.
Result<Mix> parse_mix(std::string_view text);

// What general.file_type says of it.
uint32_t file_type_of(const Mix& mix);

// Tensors whose names match `pattern` (ECMAScript, anywhere in the name) get `dtype`.
struct TypeRule {
  std::string pattern;
  DType dtype = DType::q8_0;
};

enum class HeadDefault {
  finer,      // Q6_K, or more if the mix is; tables of tokens too, where the head is one or there is none
  as_others,  // every matrix has the type of the mix's base
};

struct TypeChoice {
  Mix mix;
  std::vector<TypeRule> rules;  // the first that matches decides
  HeadDefault head_default = HeadDefault::finer;
  std::optional<DType> head;       // the matrix that makes logits
  std::optional<DType> embedding;  // the table of tokens, where it is not the head too
};

// The type of each tensor of `file`, in its order; nothing for those that stay as they are: vectors, routers, tables of
// positions, small convolutions, what is small of Gemma 3n, and of vision files the first filters. Rows that do not
// divide into blocks get the nearest type of more bits that does. Errors: a pattern that is no expression, and what of
// the choice holds for no tensor.
Result<std::vector<std::optional<DType>>> choose_types(const GgufFile& file, const TypeChoice& choice);

}  // namespace nanomind
