// SPDX-License-Identifier: Apache-2.0
// SentencePiece's precompiled table of replacements (`tokenizer.ggml.precompiled_charsmap`), which normalises a text
// before it is cut into pieces: mostly NFKC. Layout (sentencepiece's src/normalizer.cc): the size in bytes of a trie as
// u32, the trie as a double array of u32 (darts-clone), then the replacements, each ended by NUL; little-endian.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nanomind {

class Charsmap {
 public:
  // Replaces nothing.
  Charsmap() = default;
  // Copies. An empty table replaces nothing; a truncated one is an error.
  static Result<Charsmap> create(std::span<const std::byte> table);

  struct Replacement {
    size_t size = 0;        // bytes that it stands for; never 0
    std::string_view text;  // views the table, the text, or a constant
  };

  // What the beginning of `text`, which is not empty, becomes: the replacement of the longest match, otherwise one
  // character as it is, and U+FFFD for a byte that is not UTF-8.
  Replacement replace_first(std::string_view text) const;

 private:
  // The longest match; size 0: none.
  Replacement find(std::string_view text) const;

  std::vector<uint32_t> trie_;
  std::string replacements_;  // ends with NUL unless empty
};

}  // namespace nanomind
