// SPDX-License-Identifier: Apache-2.0
// The rules by which models of byte-level BPE were trained to cut text into words, by the name that a GGUF file gives
// them. The expressions are those of the published tokenizer.json files and of llama.cpp's src/llama-vocab.cpp, which
// defines the names; here in PCRE2's language, and so that no search takes more than linear time.
#pragma once

#include <span>
#include <string_view>
#include <vector>

namespace nanomind {

// What becomes of a match.
enum class Cut {
  around,         // it is a word, and so is what lies between two matches
  threes,         // as above, and the match is cut into threes of characters from its right end
  inside_threes,  // only the cuts between and before complete threes; what is around stays attached
};

struct CutStep {
  const char* pattern;
  Cut cut = Cut::around;
};

struct PreTokenizerRule {
  // Applied one after another, each to every word so far.
  std::span<const CutStep> steps;
  // A word that is a token as a whole is that token, whatever the merges say.
  bool takes_whole_words = false;
  // Whether the beginning token is added where the file does not say.
  bool adds_beginning = false;
};

// Null for unknown names.
const PreTokenizerRule* find_pre_tokenizer_rule(std::string_view name);

std::vector<std::string_view> pre_tokenizer_names();

}  // namespace nanomind
