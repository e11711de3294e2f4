// SPDX-License-Identifier: Apache-2.0
// Cuts text into the words that byte-level BPE never merges across, by the regular expressions that a model was trained
// with (PCRE2, just-in-time compiled; pretokenizer_rules.h has them). Every byte of the text lands in exactly one word.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"

namespace nanomind {

class PreTokenizer {
 public:
  // `name` as in `tokenizer.ggml.pre`. An unknown one is an error that lists the known ones.
  static Result<PreTokenizer> create(std::string_view name);
  PreTokenizer(PreTokenizer&&) noexcept;
  PreTokenizer& operator=(PreTokenizer&&) noexcept;
  ~PreTokenizer();

  // Whether a word that is a token as a whole is that token, whatever the merges say.
  bool takes_whole_words() const;

  // The words of `text`, in order, as views into it; bytes that are not UTF-8 are words of their own. Linear time.
  // Thread-safe.
  std::vector<std::string_view> split(std::string_view text) const;

 private:
  struct Impl;
  explicit PreTokenizer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace nanomind
