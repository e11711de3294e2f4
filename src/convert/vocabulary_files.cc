// SPDX-License-Identifier: Apache-2.0
#include "convert/vocabulary_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <optional>
#include <set>

#include "base/base64.h"
#include "convert/pre_tokenizer_names.h"
#include "convert/sentencepiece_model.h"
#include "convert/tokenizer_json.h"
#include "text/spelling.h"

namespace nanomind {
namespace {

// A special token's spelling in tokenizer_config.json: a text, or an object that has it as "content".
std::optional<std::string> special_spelling(const Config& settings, const char* key) {
  if (auto text = json_text(settings.json(), key)) return text;
  const Json* object = settings.find(key);
  return object != nullptr ? json_text(*object, "content") : std::nullopt;
}

struct SpecialKey {
  const char* spelling;   // in tokenizer_config.json
  const char* id;         // in config.json
  std::string_view gguf;  // after "tokenizer.ggml."
};
constexpr SpecialKey kSpecialKeys[] = {
    {"bos_token", "bos_token_id", "bos_token_id"},     {"eos_token", "eos_token_id", "eos_token_id"},
    {"unk_token", "unk_token_id", "unknown_token_id"}, {"sep_token", "sep_token_id", "seperator_token_id"},
    {"pad_token", "pad_token_id", "padding_token_id"}, {"cls_token", "cls_token_id", "cls_token_id"},
    {"mask_token", "mask_token_id", "mask_token_id"},
};

// What the tokenizer's template puts around a text; empty: nothing.
struct TextEnds {
  std::string first, last;
  bool separates_twice = false;  // between two texts stand two special tokens: the first one's end, and another
};

std::string special_of(const Json& item) {
  const Json* token = json_member(item, "SpecialToken");
  return token != nullptr ? json_text(*token, "id").value_or("") : "";
}

TextEnds read_text_ends(const Json& processor) {
  TextEnds ends;
  if (const Json* list = json_member(processor, "processors"); list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      if (TextEnds found = read_text_ends(item); !found.first.empty() || !found.last.empty()) ends = std::move(found);
    }
    return ends;
  }
  const Json* single = json_member(processor, "single");
  if (single == nullptr || !single->is_array() || single->size() < 2) return ends;
  ends.first = special_of(single->front());
  ends.last = special_of(single->back());
  if (const Json* pair = json_member(processor, "pair"); pair != nullptr && pair->is_array()) {
    const auto is_text = [](const Json& item) { return json_member(item, "Sequence") != nullptr; };
    const auto one = std::ranges::find_if(*pair, is_text);
    ends.separates_twice = one != pair->end() && std::find_if(one + 1, pair->end(), is_text) - one > 2;
  }
  return ends;
}

// The ids of special tokens, those that end an answer included: the tokenizer's own word first, then the model's.
void add_special_ids(const Checkpoint& checkpoint, const Config& settings, const Config& generation,
                     const TextEnds& around, const TokenList& list, GgufMetadata& metadata) {
  std::set<int64_t> ends;
  std::vector<int64_t> more;  // GGUF has names for two more ends, of a turn and of a message
  const auto in_range = [&](int64_t id) { return id >= 0 && id < static_cast<int64_t>(list.tokens.size()); };
  for (const SpecialKey& key : kSpecialKeys) {
    int64_t id = -1;
    if (const auto spelling = special_spelling(settings, key.spelling)) id = list.find(*spelling);
    const auto ids = checkpoint.config.integers(key.id);
    if (id < 0 && !ids.empty()) id = ids.front();
    const bool is_end = key.gguf == "eos_token_id";
    if (const int64_t last = is_end && !around.last.empty() ? list.find(around.last) : -1; last >= 0) {
      more.push_back(id);
      id = last;
    }
    if (!in_range(id)) continue;
    metadata.add(fmt::format("tokenizer.ggml.{}", key.gguf), static_cast<uint32_t>(id));
    if (is_end) ends.insert(id);
  }
  std::ranges::copy(generation.integers("eos_token_id"), std::back_inserter(more));
  std::ranges::copy(checkpoint.config.integers("eos_token_id"), std::back_inserter(more));
  size_t next = 0;
  for (const int64_t id : more) {
    constexpr std::string_view kNames[] = {"tokenizer.ggml.eot_token_id", "tokenizer.ggml.eom_token_id"};
    if (!in_range(id) || !ends.insert(id).second || next == std::size(kNames)) continue;
    metadata.add(kNames[next++], static_cast<uint32_t>(id));
  }
}

void add_end_flags(const Config& settings, const TextEnds& around, GgufMetadata& metadata) {
  const bool begins = !around.first.empty() && special_spelling(settings, "bos_token") == around.first;
  metadata.add("tokenizer.ggml.add_bos_token", settings.flag_or("add_bos_token", false) || begins);
  metadata.add("tokenizer.ggml.add_eos_token", settings.flag_or("add_eos_token", false) || !around.last.empty());
  if (around.separates_twice) metadata.add("tokenizer.ggml.add_sep_token", true);
}

Result<void> add_chat_template(const std::filesystem::path& folder, const Config& settings, GgufMetadata& metadata) {
  auto text = TRY(read_optional_text(folder / "chat_template.jinja"));
  const Config json = TRY(read_optional_config(folder / "chat_template.json"));
  if (!text) text = json_text(json.json(), "chat_template");
  if (!text) text = json_text(settings.json(), "chat_template");
  // Some tokenizers have several under names.
  if (const Json* list = settings.find("chat_template"); !text && list != nullptr && list->is_array()) {
    for (const Json& item : *list) {
      if (json_text(item, "name") == "default") text = json_text(item, "template");
    }
  }
  if (text) metadata.add("tokenizer.chat_template", *text);
  return {};
}

void add_list(const TokenList& list, GgufMetadata& metadata) {
  std::vector<int32_t> types;
  for (const TokenType type : list.types) types.push_back(static_cast<int32_t>(type));
  metadata.add("tokenizer.ggml.tokens", list.tokens);
  if (!list.scores.empty()) metadata.add("tokenizer.ggml.scores", list.scores);
  metadata.add("tokenizer.ggml.token_type", types);
}

// Byte-level BPE works on the text as it is, or in the form that nearly all text has already.
Result<void> check_normalizer(const Config& tokenizer) {
  const Json* normalizer = tokenizer.find("normalizer");
  if (normalizer == nullptr || json_text(*normalizer, "type") == "NFC") return {};
  const Json* parts = json_member(*normalizer, "normalizers");
  if (parts != nullptr && parts->is_array() && parts->empty()) return {};
  return fail(ErrorCode::unsupported, fmt::format("{} changes text in a way that GGUF files cannot say: {:.200}",
                                                  tokenizer.subject(), normalizer->dump() + "."));
}

Result<void> add_byte_level(const Checkpoint& checkpoint, const Config& tokenizer, TokenList list, int64_t rows,
                            GgufMetadata& metadata) {
  TRY(check_normalizer(tokenizer));
  const Json* pre_tokenizer = tokenizer.find("pre_tokenizer");
  const bool whole_words = tokenizer.part("model").flag_or("ignore_merges", false);
  std::string name = TRY(recognise_pre_tokenizer(pre_tokenizer ? *pre_tokenizer : Json::object(), whole_words));
  // The same rule by the name that programs look for.
  if (checkpoint.model_type == "lfm2" && name == "llama-bpe") name = "lfm2";
  list.fill_up(rows);
  metadata.add("tokenizer.ggml.model", "gpt2").add("tokenizer.ggml.pre", name);
  add_list(list, metadata);
  metadata.add("tokenizer.ggml.merges", TRY(read_merges(tokenizer)));
  return {};
}

// In GGUF a word's first piece has U+2581 before it, and those that continue have lost their "##".
std::string wordpiece_spelling(const std::string& spelling, TokenType type) {
  if (type == TokenType::control || type == TokenType::unused) return spelling;
  if (spelling.starts_with("##")) return spelling.substr(2);
  return std::string(kEscapedSpace).append(spelling);
}

Result<void> add_wordpiece(const Config& tokenizer, TokenList list, int64_t rows, GgufMetadata& metadata) {
  const Config normalizer = tokenizer.part("normalizer");
  const std::string prefix = tokenizer.part("model").text_or("continuing_subword_prefix", "##");
  if (normalizer.text_or("type", "") != "BertNormalizer" || prefix != "##") {
    return fail(ErrorCode::unsupported,
                fmt::format("{}: only WordPiece with BERT's normaliser and \"##\" is known.", tokenizer.subject()));
  }
  for (size_t i = 0; i < list.tokens.size(); ++i) list.tokens[i] = wordpiece_spelling(list.tokens[i], list.types[i]);
  list.fill_up(rows);
  const bool lowercases = normalizer.flag_or("lowercase", true);
  metadata.add("tokenizer.ggml.model", "bert").add("tokenizer.ggml.pre", "default");
  add_list(list, metadata);
  metadata.add("tokenizer.ggml.normalizer.lowercase", lowercases);
  metadata.add("tokenizer.ggml.normalizer.strip_accents", normalizer.flag_or("strip_accents", lowercases));
  return {};
}

// A text begins with the token for classifiers; programs take BERT's first vocabulary's where a file does not say
// which.
void add_wordpiece_beginning(const Config& settings, const TokenList& list, GgufMetadata& metadata) {
  constexpr int64_t kFirst = 101;
  const int64_t id = list.find(special_spelling(settings, "cls_token").value_or("[CLS]"));
  if (id >= 0 && id != kFirst && !metadata.has("tokenizer.ggml.bos_token_id"))
    metadata.add("tokenizer.ggml.bos_token_id", static_cast<uint32_t>(id));
}

// Whether a step of the tokenizer puts a space before a text: "Prepend", or "Metaspace" in either form.
bool puts_space_first(const Json& step) {
  if (step.is_array()) return std::ranges::any_of(step, puts_space_first);
  for (const char* parts : {"normalizers", "pretokenizers"}) {
    if (const Json* list = json_member(step, parts); list != nullptr && puts_space_first(*list)) return true;
  }
  const std::string type = json_text(step, "type").value_or("");
  if (type != "Metaspace") return type == "Prepend";
  if (const auto scheme = json_text(step, "prepend_scheme")) return *scheme != "never";
  const Json* flag = json_member(step, "add_prefix_space");
  return flag == nullptr || !flag->is_boolean() || flag->get<bool>();
}

bool puts_space_first(const Config& tokenizer) {
  const Json* steps[] = {tokenizer.find("normalizer"), tokenizer.find("pre_tokenizer")};
  return std::ranges::any_of(steps, [](const Json* step) { return step != nullptr && puts_space_first(*step); });
}

// What a unigram tokenizer does to a text before it is cut.
struct UnigramSteps {
  std::vector<uint8_t> charsmap;
  bool removes_extra_spaces = false;
};

Result<void> read_unigram_step(const Config& tokenizer, const Json& step, UnigramSteps& steps) {
  for (const char* parts : {"normalizers", "pretokenizers"}) {
    const Json* list = json_member(step, parts);
    if (list == nullptr || !list->is_array()) continue;
    for (const Json& part : *list) TRY(read_unigram_step(tokenizer, part, steps));
    return {};
  }
  const std::string type = json_text(step, "type").value_or("");
  const Json* pattern = json_member(step, "pattern");
  const std::string expression = pattern != nullptr ? json_text(*pattern, "Regex").value_or("") : "";
  if (type == "Precompiled") {
    const auto bytes = base64_bytes(json_text(step, "precompiled_charsmap").value_or(""));
    if (!bytes) return fail(ErrorCode::corrupt, fmt::format("{}: the charsmap is no base64.", tokenizer.subject()));
    for (const std::byte byte : *bytes) steps.charsmap.push_back(static_cast<uint8_t>(byte));
  } else if (type == "WhitespaceSplit" ||
             (type == "Replace" && expression == " {2,}" && json_text(step, "content") == " ")) {
    steps.removes_extra_spaces = true;
  } else if (type != "Metaspace" && type != "Strip") {
    return fail(ErrorCode::unsupported, fmt::format("{} changes text in a way that GGUF files cannot say: {:.200}.",
                                                    tokenizer.subject(), step.dump()));
  }
  return {};
}

Result<void> add_unigram(const Config& tokenizer, TokenList list, int64_t rows, GgufMetadata& metadata) {
  UnigramSteps steps;
  for (const char* stage : {"normalizer", "pre_tokenizer"}) {
    if (const Json* step = tokenizer.find(stage)) TRY(read_unigram_step(tokenizer, *step, steps));
  }
  const auto unknown = static_cast<size_t>(TRY(tokenizer.part("model").integer("unk_id")));
  if (unknown >= list.types.size())
    return fail(ErrorCode::corrupt, fmt::format("{} has no token {}.", tokenizer.subject(), unknown));
  list.types[unknown] = TokenType::unknown;
  list.fill_up(rows);
  metadata.add("tokenizer.ggml.model", "t5").add("tokenizer.ggml.pre", "default");
  add_list(list, metadata);
  metadata.add("tokenizer.ggml.add_space_prefix", puts_space_first(tokenizer));
  metadata.add("tokenizer.ggml.remove_extra_whitespaces", steps.removes_extra_spaces);
  if (!steps.charsmap.empty()) metadata.add("tokenizer.ggml.precompiled_charsmap", steps.charsmap);
  return {};
}

// The pieces of tokenizer.model, where there is one.
Result<std::optional<SentencePieceModel>> read_pieces(const Checkpoint& checkpoint) {
  const auto path = checkpoint.folder / "tokenizer.model";
  const auto bytes = TRY(read_optional_text(path));
  if (!bytes) return std::nullopt;
  SentencePieceModel model = TRY(read_sentencepiece_model(*bytes, path.string()));
  if (model.kind != SentencePieceModel::Kind::bpe)
    return fail(ErrorCode::unsupported, fmt::format("{} is no model of BPE.", path.string()));
  return model;
}

void add_sentencepiece_list(TokenList list, bool adds_space_prefix, int64_t rows, GgufMetadata& metadata) {
  list.fill_up(rows);
  metadata.add("tokenizer.ggml.model", "llama").add("tokenizer.ggml.pre", "default");
  add_list(list, metadata);
  metadata.add("tokenizer.ggml.add_space_prefix", adds_space_prefix);
}

// Pieces from tokenizer.model where there is one, otherwise from the merges; added tokens over them.
Result<void> add_sentencepiece(const Checkpoint& checkpoint, const Config& tokenizer, TokenList list, int64_t rows,
                               GgufMetadata& metadata) {
  bool adds_space_prefix = puts_space_first(tokenizer);
  if (const auto model = TRY(read_pieces(checkpoint))) {
    adds_space_prefix = model->adds_space_prefix;
    list.scores.assign(list.tokens.size(), -1000.0F);
    for (size_t i = 0; i < std::min(list.tokens.size(), model->pieces.tokens.size()); ++i) {
      if (list.types[i] != TokenType::normal && model->pieces.types[i] == TokenType::normal) continue;
      list.tokens[i] = model->pieces.tokens[i];
      list.types[i] = model->pieces.types[i];
      list.scores[i] = model->pieces.scores[i];
    }
  } else {
    score_by_merges(TRY(read_merges(tokenizer)), list);
    const int64_t unknown = list.find(tokenizer.part("model").text_or("unk_token", "<unk>"));
    if (unknown >= 0) list.types[static_cast<size_t>(unknown)] = TokenType::unknown;
  }
  add_sentencepiece_list(std::move(list), adds_space_prefix, rows, metadata);
  return {};
}

// Older checkpoints have tokenizer.model alone, and say elsewhere which tokens were added.
Result<TokenList> add_bare_sentencepiece(const Checkpoint& checkpoint, const SentencePieceModel& model,
                                         const Config& settings, int64_t rows, GgufMetadata& metadata) {
  TokenList list = model.pieces;
  if (static_cast<int64_t>(list.tokens.size()) > rows) {
    return fail(ErrorCode::corrupt,
                fmt::format("{} has {} tokens, but the model's embedding has {} rows.",
                            (checkpoint.folder / "tokenizer.model").string(), list.tokens.size(), rows));
  }
  const auto add = [&](const Config& source, AddedToken token) -> Result<void> {
    const bool is_known = token.id >= 0 && token.id < static_cast<int64_t>(model.pieces.tokens.size()) &&
                          model.pieces.types[static_cast<size_t>(token.id)] != TokenType::normal;
    if (is_known) return {};
    return add_token(source, std::move(token), rows, list);
  };
  const Config names = TRY(read_optional_config(checkpoint.folder / "added_tokens.json"));
  for (const auto& [spelling, id] : names.json().items())
    TRY(add(names, {.id = id.is_number_integer() ? id.get<int64_t>() : -1, .spelling = spelling, .special = false}));
  const Config decoder = settings.part("added_tokens_decoder");
  for (const auto& [id, token] : decoder.json().items()) {
    int64_t number = -1;
    std::from_chars(id.data(), id.data() + id.size(), number);
    const Json* special = json_member(token, "special");
    TRY(add(settings, {.id = number,
                       .spelling = json_text(token, "content").value_or(""),
                       .special = special != nullptr && special->is_boolean() && special->get<bool>()}));
  }
  add_sentencepiece_list(list, model.adds_space_prefix, rows, metadata);
  return list;
}

}  // namespace

Result<void> add_vocabulary(const Checkpoint& checkpoint, int64_t vocabulary, GgufMetadata& metadata) {
  const Config settings = TRY(read_optional_config(checkpoint.folder / "tokenizer_config.json"));
  const Config generation = TRY(read_optional_config(checkpoint.folder / "generation_config.json"));
  const auto path = checkpoint.folder / "tokenizer.json";
  if (std::error_code error; !std::filesystem::exists(path, error)) {
    if (const auto pieces = TRY(read_pieces(checkpoint))) {
      const TokenList list = TRY(add_bare_sentencepiece(checkpoint, *pieces, settings, vocabulary, metadata));
      add_special_ids(checkpoint, settings, generation, {}, list, metadata);
      add_end_flags(settings, {}, metadata);
      return add_chat_template(checkpoint.folder, settings, metadata);
    }
  }
  const Config tokenizer = TRY(read_config(path));
  const Config model = tokenizer.part("model");
  const std::string kind = model.text_or("type", "");
  TokenList list = TRY(read_token_list(tokenizer, vocabulary));
  if (kind == "WordPiece") {
    TRY(add_wordpiece(tokenizer, list, vocabulary, metadata));
  } else if (kind == "BPE" && model.flag_or("byte_fallback", false)) {
    TRY(add_sentencepiece(checkpoint, tokenizer, list, vocabulary, metadata));
  } else if (kind == "BPE") {
    TRY(add_byte_level(checkpoint, tokenizer, list, vocabulary, metadata));
  } else if (kind == "Unigram") {
    TRY(add_unigram(tokenizer, list, vocabulary, metadata));
  } else {
    return fail(ErrorCode::unsupported, fmt::format("{} is of the kind '{}'; BPE, Unigram and WordPiece are converted.",
                                                    tokenizer.subject(), kind));
  }
  // Programs know what WordPiece puts around a text.
  const Json* processor = kind != "WordPiece" ? tokenizer.find("post_processor") : nullptr;
  const TextEnds around = processor != nullptr ? read_text_ends(*processor) : TextEnds();
  add_special_ids(checkpoint, settings, generation, around, list, metadata);
  if (kind == "WordPiece") {
    add_wordpiece_beginning(settings, list, metadata);
    return {};
  }
  add_end_flags(settings, around, metadata);
  return add_chat_template(checkpoint.folder, settings, metadata);
}

}  // namespace nanomind
