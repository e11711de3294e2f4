// SPDX-License-Identifier: Apache-2.0
#include "convert/tokenizer_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "text/spelling.h"

namespace nanomind {
namespace {

// Added tokens that are meant for the model though the file does not call them special: by spelling, as converters of
// these models do.
bool looks_special(std::string_view spelling) {
  constexpr std::string_view kBar = "\uff5c";
  const auto between = [&](std::string_view begin, std::string_view end) {
    return spelling.size() >= begin.size() + end.size() && spelling.starts_with(begin) && spelling.ends_with(end);
  };
  return spelling == "<pad>" || spelling == "<mask>" || spelling == "<2mass>" || spelling == "[@BOS@]" ||
         between("<|", "|>") || between(std::string("<").append(kBar), std::string(kBar).append(">")) ||
         between("<unused", ">");
}

Result<void> place(const Config& tokenizer, int64_t id, std::string spelling, TokenType type, int64_t limit,
                   TokenList& list) {
  if (id < 0 || id >= limit) {
    return fail(ErrorCode::corrupt, fmt::format("{}: a token has the id {}, but the model's embedding has {} rows.",
                                                tokenizer.subject(), id, limit));
  }
  const auto index = static_cast<size_t>(id);
  if (index >= list.tokens.size()) list.fill_up(id + 1);
  list.tokens[index] = std::move(spelling);
  list.types[index] = type;
  return {};
}

// A vocabulary of spellings and ids.
Result<void> place_numbered(const Config& model, int64_t limit, TokenList& list) {
  const Json* vocabulary = model.find("vocab");
  if (vocabulary == nullptr || !vocabulary->is_object())
    return fail(ErrorCode::corrupt, fmt::format("{} has no object \"vocab\".", model.subject()));
  for (const auto& [spelling, id] : vocabulary->items()) {
    const int64_t number = id.is_number_integer() ? id.get<int64_t>() : -1;
    TRY(place(model, number, spelling, TokenType::normal, limit, list));
  }
  return {};
}

// One of spellings and scores, in the order of ids.
Result<void> place_scored(const Config& model, int64_t limit, TokenList& list) {
  const Json* vocabulary = model.find("vocab");
  const bool is_list = vocabulary != nullptr && vocabulary->is_array() && !vocabulary->empty();
  if (!is_list) return fail(ErrorCode::corrupt, fmt::format("{} has no list \"vocab\".", model.subject()));
  for (const Json& item : *vocabulary) {
    if (!item.is_array() || item.size() != 2 || !item[0].is_string() || !item[1].is_number())
      return fail(ErrorCode::corrupt, fmt::format("{} has a piece that is no text with a score.", model.subject()));
    TRY(place(model, static_cast<int64_t>(list.tokens.size()), item[0].get<std::string>(), TokenType::normal, limit,
              list));
    list.scores.push_back(item[1].get<float>());
  }
  return {};
}

}  // namespace

int64_t TokenList::find(std::string_view spelling) const {
  const auto found = std::ranges::find(tokens, spelling);
  return found == tokens.end() ? -1 : found - tokens.begin();
}

void TokenList::fill_up(int64_t count) {
  while (static_cast<int64_t>(tokens.size()) < count) {
    tokens.push_back(fmt::format("[PAD{}]", tokens.size()));
    types.push_back(TokenType::unused);
  }
  if (!scores.empty()) scores.resize(tokens.size(), -1000.0F);
}

Result<TokenList> read_token_list(const Config& tokenizer, int64_t limit) {
  const Config model = tokenizer.part("model");
  TokenList list;
  TRY(model.text_or("type", "") == "Unigram" ? place_scored(model, limit, list) : place_numbered(model, limit, list));
  const Json* added = tokenizer.find("added_tokens");
  if (added == nullptr || !added->is_array()) return list;
  for (const Json& item : *added) {
    const auto spelling = json_text(item, "content");
    const auto id = json_integer(item, "id");
    if (!spelling || !id)
      return fail(ErrorCode::corrupt, fmt::format("{} has an added token without text or id.", tokenizer.subject()));
    const Json* special = json_member(item, "special");
    TRY(add_token(tokenizer, {*id, *spelling, special && special->is_boolean() && special->get<bool>()}, limit, list));
  }
  return list;
}

Result<void> add_token(const Config& source, AddedToken token, int64_t limit, TokenList& list) {
  const bool is_control = token.special || looks_special(token.spelling);
  // User-defined tokens are matched in the text itself, which has real spaces.
  if (!is_control) token.spelling = replace_all(token.spelling, kEscapedSpace, " ");
  return place(source, token.id, std::move(token.spelling), is_control ? TokenType::control : TokenType::user_defined,
               limit, list);
}

Result<std::vector<std::string>> read_merges(const Config& tokenizer) {
  const Config model = tokenizer.part("model");
  const Json* list = model.find("merges");
  if (list == nullptr || !list->is_array())
    return fail(ErrorCode::corrupt, fmt::format("{} has no list \"merges\".", model.subject()));
  std::vector<std::string> merges;
  merges.reserve(list->size());
  for (const Json& item : *list) {
    if (item.is_string()) {
      merges.push_back(item.get<std::string>());
    } else if (item.is_array() && item.size() == 2 && item[0].is_string() && item[1].is_string()) {
      merges.push_back(item[0].get<std::string>() + " " + item[1].get<std::string>());
    } else {
      return fail(ErrorCode::corrupt, fmt::format("{} has a merge that is no pair of texts.", model.subject()));
    }
  }
  return merges;
}

void score_by_merges(const std::vector<std::string>& merges, TokenList& list) {
  std::unordered_map<std::string_view, size_t> ids;
  for (size_t i = 0; i < list.tokens.size(); ++i) {
    ids.emplace(list.tokens[i], i);
    if (list.types[i] == TokenType::normal && parse_byte_token(list.tokens[i])) list.types[i] = TokenType::byte;
  }
  list.scores.assign(list.tokens.size(), -1e9F);  // pieces of one character, which nothing merges into
  float score = 0;
  for (const std::string& merge : merges) {
    const size_t space = merge.find(' ');
    const auto made = ids.find(merge.substr(0, space) + merge.substr(space + 1));
    if (space == std::string::npos || made == ids.end()) continue;
    // Several pairs make the same piece; SentencePiece knows one score for it, the best.
    if (list.scores[made->second] == -1e9F) list.scores[made->second] = score--;
  }
  for (size_t i = 0; i < list.tokens.size(); ++i) {
    if (list.types[i] != TokenType::normal) list.scores[i] = 0;
  }
}

}  // namespace nanomind
