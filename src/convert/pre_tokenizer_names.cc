// SPDX-License-Identifier: Apache-2.0
#include "convert/pre_tokenizer_names.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <optional>

namespace nanomind {
namespace {

// Pieces of the publishers' expressions, letter for letter.
#define CONTRACTIONS R"((?i:'s|'t|'re|'ve|'m|'ll|'d))"
#define LETTERS R"([^\r\n\p{L}\p{N}]?\p{L}+)"
#define SIGNS R"( ?[^\s\p{L}\p{N}]+[\r\n]*)"
#define SPACES R"(|\s*[\r\n]+|\s+(?!\S)|\s+)"
#define UPPER R"([\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}])"
#define LOWER R"([\p{Ll}\p{Lm}\p{Lo}\p{M}])"
#define CASED(ending) \
  R"([^\r\n\p{L}\p{N}]?)" UPPER "*" LOWER "+" ending R"(|[^\r\n\p{L}\p{N}]?)" UPPER "+" LOWER "*" ending
#define SIGNS_AND_SLASHES R"( ?[^\s\p{L}\p{N}]+[\r\n/]*)"
#define HAN_AND_KANA "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
#define DEEPSEEK_SIGNS R"([!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+)"

enum class WholeWords { no, yes, either };

struct Known {
  std::string_view name;
  std::vector<std::string_view> steps;
  WholeWords whole_words = WholeWords::either;
};

const std::vector<Known>& known_rules() {
  static const std::vector<Known> rules{
      {"gpt-2", {"gpt2"}},
      {"smollm", {"digits", "gpt2"}},
      {"qwen2", {"split " CONTRACTIONS "|" LETTERS R"(|\p{N}|)" SIGNS SPACES, "bytes"}},
      {"qwen35",
       {"split " CONTRACTIONS R"(|[^\r\n\p{L}\p{N}]?[\p{L}\p{M}]+|\p{N}| ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*)" SPACES,
        "bytes"}},
      {"llama-bpe", {"split " CONTRACTIONS "|" LETTERS R"(|\p{N}{1,3}|)" SIGNS SPACES, "bytes"}, WholeWords::yes},
      {"smaug-bpe", {"split " CONTRACTIONS "|" LETTERS R"(|\p{N}{1,3}|)" SIGNS SPACES, "bytes"}, WholeWords::no},
      {"gpt-4o",
       {"split " CASED(CONTRACTIONS "?") R"(|\p{N}{1,3}|)" SIGNS_AND_SLASHES SPACES, "bytes"},
       WholeWords::no},
      {"tekken", {"split " CASED("") R"(|\p{N}|)" SIGNS_AND_SLASHES SPACES, "bytes"}, WholeWords::yes},
      {"deepseek-v3",
       {R"(split \p{N}{1,3})", "split " HAN_AND_KANA, "split " DEEPSEEK_SIGNS R"(| ?[\p{P}\p{S}]+[\r\n]*)" SPACES,
        "bytes"},
       WholeWords::no},
  };
  return rules;
}

std::unexpected<Error> unknown(const std::string& what) {
  return fail(
      ErrorCode::unsupported,
      fmt::format("How this model's tokenizer cuts words is not known, so its answers would be wrong. {}", what));
}

bool flag(const Json& object, const char* key, bool fallback) {
  const Json* value = json_member(object, key);
  return value != nullptr && value->is_boolean() ? value->get<bool>() : fallback;
}

Result<std::string> split_step(const Json& step) {
  const Json* pattern = json_member(step, "pattern");
  const auto expression = pattern ? json_text(*pattern, "Regex") : std::nullopt;
  const std::string behaviour = json_text(step, "behavior").value_or("");
  const bool inverted = flag(step, "invert", false);
  // What matches is a word by itself; the same is said by removing nothing but the complement of the matches where
  // these cover the text, which only whole expressions do.
  if (!expression || !((behaviour == "Isolated" && !inverted) || (behaviour == "Removed" && inverted)))
    return unknown(fmt::format("It has the step {}.", step.dump()));
  return "split " + *expression;
}

}  // namespace

Result<std::vector<std::string>> pre_tokenizer_steps(const Json& pre_tokenizer) {
  const std::string type = json_text(pre_tokenizer, "type").value_or("");
  if (type == "Sequence") {
    std::vector<std::string> steps;
    const Json* list = json_member(pre_tokenizer, "pretokenizers");
    if (list == nullptr || !list->is_array()) return unknown("Its list of steps is missing.");
    for (const Json& item : *list) {
      if (json_text(item, "type") == "Sequence") return unknown("Its steps have steps.");
      for (std::string& step : TRY(pre_tokenizer_steps(item))) steps.push_back(std::move(step));
    }
    return steps;
  }
  if (type == "Split") return std::vector{TRY(split_step(pre_tokenizer))};
  if (type == "Digits" && flag(pre_tokenizer, "individual_digits", false)) return std::vector<std::string>{"digits"};
  if (type == "ByteLevel" && !flag(pre_tokenizer, "add_prefix_space", true))
    return std::vector<std::string>{flag(pre_tokenizer, "use_regex", true) ? "gpt2" : "bytes"};
  return unknown(fmt::format("It has the step {:.300}.", pre_tokenizer.dump()));
}

Result<std::string> recognise_pre_tokenizer(const Json& pre_tokenizer, bool takes_whole_words) {
  const std::vector<std::string> steps = TRY(pre_tokenizer_steps(pre_tokenizer));
  const auto fits = [&](const Known& rule) {
    return std::ranges::equal(rule.steps, steps) &&
           (rule.whole_words == WholeWords::either || (rule.whole_words == WholeWords::yes) == takes_whole_words);
  };
  const auto found = std::ranges::find_if(known_rules(), fits);
  if (found != known_rules().end()) return std::string(found->name);
  return unknown(fmt::format("Its steps are: {}{}.", fmt::join(steps, "; "),
                             takes_whole_words ? "; whole words are taken as they are" : ""));
}

}  // namespace nanomind
