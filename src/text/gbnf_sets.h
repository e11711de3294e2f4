// SPDX-License-Identifier: Apache-2.0
// What may begin, extend and follow the parts of a GBNF grammar; for gbnf.cc.
#pragma once

#include <vector>

#include "text/gbnf_parser.h"

namespace nanomind {

class GbnfSets {
 public:
  // `rules` outlive this.
  explicit GbnfSets(const std::vector<GbnfRule>& rules);

  // The rule leads to itself, directly or through others.
  bool recursive(size_t rule) const { return recursive_[rule]; }
  bool recursive(const GbnfNode& node) const;
  bool may_be_empty(const GbnfNode& node) const;
  // Characters that may begin the node's texts, that may lengthen one of them to another, and that may come after the
  // rule's.
  CharacterSet first(const GbnfNode& node) const;
  CharacterSet extending(const GbnfNode& node) const;
  const CharacterSet& following(size_t rule) const { return following_[rule]; }

  // What may follow the part `index` of a sequence that `after` follows.
  CharacterSet following(const GbnfNode& sequence, size_t index, const CharacterSet& after) const;

 private:
  void find_recursive();
  void find_first();
  void find_extending();
  void find_following();
  // Tells rules that `node` uses what follows them, when `after` follows it; true when that was news.
  bool follow(const GbnfNode& node, const CharacterSet& after);

  const std::vector<GbnfRule>& rules_;
  std::vector<bool> recursive_;
  std::vector<bool> empty_;  // may be empty
  std::vector<CharacterSet> first_;
  std::vector<CharacterSet> extending_;
  std::vector<CharacterSet> following_;
};

}  // namespace nanomind
