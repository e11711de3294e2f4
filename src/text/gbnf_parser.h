// SPDX-License-Identifier: Apache-2.0
// Reads GBNF into rules; for gbnf.cc.
#pragma once

#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/character_set.h"

namespace nanomind {

struct GbnfNode {
  enum class Kind {
    literal,       // `text`, UTF-8, not empty
    characters,    // one of `set`
    rule,          // the rule of number `index`
    sequence,      // of `parts`, which may be none
    alternatives,  // of `parts`
    repeat,        // parts[0], `least` to `most` times
  };
  static constexpr uint32_t kUnbounded = std::numeric_limits<uint32_t>::max();

  Kind kind = Kind::sequence;
  std::string text;
  CharacterSet set;
  size_t index = 0;
  std::vector<GbnfNode> parts;
  uint32_t least = 0;
  uint32_t most = 0;
};

struct GbnfRule {
  std::string name;
  int line = 0;  // of the definition
  GbnfNode body;
};

// The rules, of which the one named "root" comes first.
Result<std::vector<GbnfRule>> parse_gbnf(std::string_view text);

}  // namespace nanomind
