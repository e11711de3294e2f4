// SPDX-License-Identifier: Apache-2.0
#include "text/gbnf_sets.h"

#include <algorithm>
#include <utility>

namespace nanomind {
namespace {

using Kind = GbnfNode::Kind;

void collect_rules(const GbnfNode& node, std::vector<size_t>& into) {
  if (node.kind == Kind::rule) into.push_back(node.index);
  for (const GbnfNode& part : node.parts) collect_rules(part, into);
}

bool merge(CharacterSet& into, const CharacterSet& more) {
  CharacterSet merged = into;
  merged.add(more);
  const bool news = merged != into;
  into = std::move(merged);
  return news;
}

}  // namespace

GbnfSets::GbnfSets(const std::vector<GbnfRule>& rules)
    : rules_(rules),
      recursive_(rules.size(), true),
      empty_(rules.size()),
      first_(rules.size()),
      extending_(rules.size()),
      following_(rules.size()) {
  find_recursive();
  find_first();
  find_extending();
  find_following();
}

// A rule is not recursive when none that it uses is: from those that use none upwards.
void GbnfSets::find_recursive() {
  std::vector<std::vector<size_t>> users(rules_.size());
  std::vector<size_t> missing(rules_.size()), ready;
  for (size_t i = 0; i < rules_.size(); ++i) {
    std::vector<size_t> used;
    collect_rules(rules_[i].body, used);
    std::ranges::sort(used);
    used.erase(std::ranges::unique(used).begin(), used.end());
    missing[i] = used.size();
    for (const size_t other : used) users[other].push_back(i);
    if (used.empty()) ready.push_back(i);
  }
  while (!ready.empty()) {
    const size_t rule = ready.back();
    ready.pop_back();
    recursive_[rule] = false;
    for (const size_t user : users[rule]) {
      if (--missing[user] == 0) ready.push_back(user);
    }
  }
}

bool GbnfSets::recursive(const GbnfNode& node) const {
  if (node.kind == Kind::rule) return recursive_[node.index];
  return std::ranges::any_of(node.parts, [this](const GbnfNode& part) { return recursive(part); });
}

bool GbnfSets::may_be_empty(const GbnfNode& node) const {
  const auto part_may = [this](const GbnfNode& part) { return may_be_empty(part); };
  switch (node.kind) {
    case Kind::literal:
    case Kind::characters: return false;
    case Kind::rule: return empty_[node.index];
    case Kind::sequence: return std::ranges::all_of(node.parts, part_may);
    case Kind::alternatives: return std::ranges::any_of(node.parts, part_may);
    case Kind::repeat: return node.least == 0 || may_be_empty(node.parts[0]);
  }
  return false;
}

CharacterSet GbnfSets::first(const GbnfNode& node) const {
  CharacterSet set;
  switch (node.kind) {
    case Kind::literal: set.add(first_character(node.text), first_character(node.text)); return set;
    case Kind::characters: return node.set;
    case Kind::rule: return first_[node.index];
    case Kind::sequence:
    case Kind::alternatives:
    case Kind::repeat: break;
  }
  for (const GbnfNode& part : node.parts) {
    set.add(first(part));
    if (node.kind == Kind::sequence && !may_be_empty(part)) break;
  }
  return set;
}

void GbnfSets::find_first() {
  for (bool news = true; news;) {
    news = false;
    for (size_t i = 0; i < rules_.size(); ++i) {
      news |= merge(first_[i], first(rules_[i].body));
      if (!empty_[i] && may_be_empty(rules_[i].body)) news = empty_[i] = true;
    }
  }
}

CharacterSet GbnfSets::extending(const GbnfNode& node) const {
  CharacterSet set;
  switch (node.kind) {
    case Kind::literal:
    case Kind::characters: break;
    case Kind::rule: return extending_[node.index];
    case Kind::sequence:
      for (size_t i = node.parts.size(); i-- > 0;) {
        set.add(extending(node.parts[i]));
        if (!may_be_empty(node.parts[i])) break;
        set.add(first(node.parts[i]));
      }
      break;
    case Kind::alternatives:
      for (const GbnfNode& part : node.parts) set.add(extending(part));
      break;
    case Kind::repeat:
      set = extending(node.parts[0]);
      if (node.most > node.least) set.add(first(node.parts[0]));
      break;
  }
  return set;
}

void GbnfSets::find_extending() {
  for (bool news = true; news;) {
    news = false;
    for (size_t i = 0; i < rules_.size(); ++i) news |= merge(extending_[i], extending(rules_[i].body));
  }
}

CharacterSet GbnfSets::following(const GbnfNode& sequence, size_t index, const CharacterSet& after) const {
  CharacterSet set;
  for (size_t i = index + 1; i < sequence.parts.size(); ++i) {
    set.add(first(sequence.parts[i]));
    if (!may_be_empty(sequence.parts[i])) return set;
  }
  set.add(after);
  return set;
}

bool GbnfSets::follow(const GbnfNode& node, const CharacterSet& after) {
  bool news = node.kind == Kind::rule && merge(following_[node.index], after);
  for (size_t i = 0; i < node.parts.size(); ++i) {
    CharacterSet next = node.kind == Kind::sequence ? following(node, i, after) : after;
    if (node.kind == Kind::repeat && node.most > 1) next.add(first(node.parts[0]));
    news |= follow(node.parts[i], next);
  }
  return news;
}

void GbnfSets::find_following() {
  for (bool news = true; news;) {
    news = false;
    for (size_t i = 0; i < rules_.size(); ++i) news |= follow(rules_[i].body, following_[i]);
  }
}

}  // namespace nanomind
