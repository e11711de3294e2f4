// SPDX-License-Identifier: Apache-2.0
#include "text/merge_table.h"

#include <fmt/format.h>

#include <string>

namespace nanomind {

TokenIds index_tokens(const Vocabulary& vocabulary) {
  TokenIds ids;
  ids.reserve(vocabulary.tokens.size());
  for (size_t i = 0; i < vocabulary.tokens.size(); ++i) ids.try_emplace(vocabulary.tokens[i], static_cast<TokenId>(i));
  return ids;
}

Result<MergeTable> MergeTable::create(const Vocabulary& vocabulary, const TokenIds& ids) {
  MergeTable table(vocabulary.merges.size());
  std::string joined;
  for (size_t rank = 0; rank < vocabulary.merges.size(); ++rank) {
    const std::string_view line = vocabulary.merges[rank];
    const size_t space = line.find(' ', 1);
    if (line.empty() || space == std::string_view::npos) {
      return fail(ErrorCode::corrupt, fmt::format("The tokenizer's merge {} (\"{}\") is not a pair.", rank, line));
    }
    const std::string_view left = line.substr(0, space);
    const std::string_view right = line.substr(space + 1);
    joined.assign(left).append(right);
    const auto left_id = ids.find(left), right_id = ids.find(right), joined_id = ids.find(joined);
    if (left_id == ids.end() || right_id == ids.end() || joined_id == ids.end()) {
      return fail(
          ErrorCode::corrupt,
          fmt::format("The tokenizer's merge {} (\"{}\") uses a piece that is not in its vocabulary.", rank, line));
    }
    // What users type must not become a control token, even where a file has a way to it.
    const TokenType type = vocabulary.types[joined_id->second];
    if (type != TokenType::normal && type != TokenType::user_defined) continue;
    table.add(left_id->second, right_id->second, {static_cast<double>(rank), joined_id->second});
  }
  return table;
}

}  // namespace nanomind
