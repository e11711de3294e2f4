// SPDX-License-Identifier: Apache-2.0
#include "text/pretokenizer_rules.h"

#include <algorithm>
#include <ranges>

namespace nanomind {
namespace {

// White space is spelled out because PCRE2's \s differs from what the trainers' regex engines call white space:
// Unicode's White_Space property. SPACE and LETTERS stand inside brackets.
//
// Greedy loops that need not give anything back are possessive (++), so that neither stack nor time grows with the
// text.

#define SPACE "\\t-\\r\\x20\\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}\\x{202f}\\x{205f}\\x{3000}"
#define SPACES_BUT_ONE "|[" SPACE "]+(?![^" SPACE "])|[" SPACE "]++"  // the last one belongs to the word after them
#define LINE_ENDS "|[" SPACE "]*[\\r\\n]++"

#define CONTRACTIONS "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
#define LETTER_RUN "[^\\r\\n\\p{L}\\p{N}]?\\p{L}++"
#define OTHER_RUN "|\\x20?[^" SPACE "\\p{L}\\p{N}]++"

// The family of GPT-4's expression; they differ in how many digits are a word.
#define GPT4(digits) CONTRACTIONS "|" LETTER_RUN "|" digits OTHER_RUN "[\\r\\n]*+" LINE_ENDS SPACES_BUT_ONE

// The family of GPT-4o's: a word changes from upper to lower case at most once.
#define MAYBE_UPPER "[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]"
#define MAYBE_LOWER "[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]"
#define CASED_RUN(upper, lower, ending) \
  "[^\\r\\n\\p{L}\\p{N}]?" upper "*" lower "++" ending "|[^\\r\\n\\p{L}\\p{N}]?" upper "++" lower "*+" ending
#define GPT4O(ending, digits) \
  CASED_RUN(MAYBE_UPPER, MAYBE_LOWER, ending) "|" digits OTHER_RUN "[\\r\\n/]*+" LINE_ENDS SPACES_BUT_ONE

// What Oniguruma takes for part of a word: Alphabetic, marks, decimal digits, connecting punctuation, six of Latin-1.
#define WORD_CHARACTERS                                                                      \
  "\\p{L}\\p{M}\\p{Nd}\\p{Nl}\\p{Pc}\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}\\x{24b6}-\\x{24e9}" \
  "\\x{1f130}-\\x{1f149}\\x{1f150}-\\x{1f169}\\x{1f170}-\\x{1f189}"

#define GPT2 "'s|'t|'re|'ve|'m|'ll|'d|\\x20?\\p{L}++|\\x20?\\p{N}++" OTHER_RUN SPACES_BUT_ONE
#define DIGIT "\\p{N}"
#define UP_TO_THREE_DIGITS "\\p{N}{1,3}"
#define HAN_AND_KANA "[\\x{4e00}-\\x{9fa5}\\x{3040}-\\x{309f}\\x{30a0}-\\x{30ff}]++"
#define LINES "[^\\n]++|\\n++"

// A sign and Latin letters; letters with marks; signs.
#define DEEPSEEK_WORDS "[!-/:-@\\[-`{-~][A-Za-z]++|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]++|\\x20?[\\p{P}\\p{S}]++"
#define CHINESE_AND_KOREAN "[\\x{800}-\\x{9fa5}\\x{ac00}-\\x{d7ff}]++"

// Letters that have two cases, as far as DeepSeek LLM's expression lists them.
#define LETTERS                                                                                                      \
  "A-Za-z\\x{b5}\\x{c0}-\\x{d6}\\x{d8}-\\x{f6}\\x{f8}-\\x{1ba}\\x{1bc}-\\x{1bf}\\x{1c4}-\\x{293}\\x{295}-\\x{2af}"   \
  "\\x{370}-\\x{373}\\x{376}\\x{377}\\x{37b}-\\x{37d}\\x{37f}\\x{386}\\x{388}-\\x{38a}\\x{38c}\\x{38e}-\\x{3a1}"     \
  "\\x{3a3}-\\x{3f5}\\x{3f7}-\\x{481}\\x{48a}-\\x{52f}\\x{531}-\\x{556}\\x{10a0}-\\x{10c5}\\x{13a0}-\\x{13f5}"       \
  "\\x{13f8}-\\x{13fd}\\x{1c90}-\\x{1cba}\\x{1cbd}-\\x{1cbf}\\x{1d00}-\\x{1d2b}\\x{1d6b}-\\x{1d77}"                  \
  "\\x{1d79}-\\x{1d9a}\\x{1e00}-\\x{1f15}\\x{1f18}-\\x{1f1d}\\x{1f20}-\\x{1f45}\\x{1f48}-\\x{1f4d}"                  \
  "\\x{1f50}-\\x{1f57}\\x{1f59}\\x{1f5b}\\x{1f5d}\\x{1f5f}-\\x{1f7d}\\x{1f80}-\\x{1fb4}\\x{1fb6}-\\x{1fbc}\\x{1fbe}" \
  "\\x{1fc2}-\\x{1fc4}\\x{1fc6}-\\x{1fcc}\\x{1fd0}-\\x{1fd3}\\x{1fd6}-\\x{1fdb}\\x{1fe0}-\\x{1fec}"                  \
  "\\x{1ff2}-\\x{1ff4}\\x{1ff6}-\\x{1ffc}\\x{2102}\\x{2107}\\x{210a}-\\x{2113}\\x{2115}\\x{2119}-\\x{211d}\\x{2124}" \
  "\\x{2126}\\x{2128}\\x{212a}-\\x{212d}\\x{212f}-\\x{2134}\\x{2139}\\x{213c}-\\x{213f}\\x{2145}-\\x{2149}\\x{214e}" \
  "\\x{2183}\\x{2184}\\x{2c00}-\\x{2c7b}\\x{2c7e}-\\x{2ce4}\\x{2ceb}-\\x{2cee}\\x{2cf2}\\x{2cf3}\\x{a640}-\\x{a66d}" \
  "\\x{a680}-\\x{a69b}\\x{a722}-\\x{a76f}\\x{a771}-\\x{a787}\\x{a78b}-\\x{a78e}\\x{ab70}-\\x{abbf}"                  \
  "\\x{fb00}-\\x{fb06}\\x{fb13}-\\x{fb17}\\x{ff21}-\\x{ff3a}\\x{ff41}-\\x{ff5a}\\x{10400}-\\x{1044f}"                \
  "\\x{104b0}-\\x{104d3}\\x{104d8}-\\x{104fb}\\x{10c80}-\\x{10cb2}\\x{10cc0}-\\x{10cf2}\\x{118a0}-\\x{118df}"        \
  "\\x{1e900}-\\x{1e943}"

#define SENTENCE_PART "\\x20?[^(" SPACE "|.,!?\\x{2026}\\x{3002}\\x{ff0c}\\x{3001}\\x{964}\\x{6d4}\\x{60c})]++"

// PCRE2 cannot take Han out of a class, so these list what is not in them instead.
#define MAYBE_UPPER_NOT_HAN "[^\\p{sc:Han}\\p{Ll}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"
#define MAYBE_LOWER_NOT_HAN "[^\\p{sc:Han}\\p{Lu}\\p{Lt}\\p{N}\\p{P}\\p{S}\\p{Z}\\p{C}]"

constexpr CutStep kGpt2[] = {{GPT2}};
constexpr CutStep kSingleDigits[] = {{DIGIT}, {GPT2}};
constexpr CutStep kLlama3[] = {{GPT4(UP_TO_THREE_DIGITS)}};
constexpr CutStep kQwen2[] = {{GPT4(DIGIT)}};
constexpr CutStep kQwen35[] = {{CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]++|" DIGIT "|\\x20?[^" SPACE
                                             "\\p{L}\\p{M}\\p{N}]++[\\r\\n]*+" LINE_ENDS SPACES_BUT_ONE}};
constexpr CutStep kUfakzeka[] = {{LETTER_RUN "|" DIGIT OTHER_RUN "[\\r\\n]*+" LINE_ENDS SPACES_BUT_ONE}};
constexpr CutStep kMiniCpm5[] = {{UP_TO_THREE_DIGITS}, {GPT4("\\p{N}++")}};
constexpr CutStep kLaguna[] = {{LINES}, {GPT4(DIGIT)}};
constexpr CutStep kSeedCoder[] = {
    {CONTRACTIONS "|" LETTER_RUN "|" DIGIT "|\\x20?[^" SPACE "\\p{L}\\p{N}\\r\\n]++" LINE_ENDS SPACES_BUT_ONE}};
constexpr CutStep kBailing[] = {
    {CONTRACTIONS "|" LETTER_RUN "|" DIGIT OTHER_RUN "[\\r\\n]*+|[" SPACE "]*[\\r\\n]" SPACES_BUT_ONE}};
constexpr CutStep kExaoneMoe[] = {
    {CONTRACTIONS "|[^\\r\\n\\p{L}\\p{N}]?(?:\\p{L}\\p{M}*+(?:\\x20\\p{L}\\p{M}*+)*+)++|" DIGIT OTHER_RUN
                  "[\\r\\n/]?|[" SPACE "]*[\\r\\n]" SPACES_BUT_ONE}};
constexpr CutStep kJais2[] = {
    {CONTRACTIONS "|" LETTER_RUN "|" UP_TO_THREE_DIGITS OTHER_RUN "[\\r\\n]*+" LINE_ENDS "|[" SPACE "]{512}(?![^" SPACE
                  "])|[" SPACE "]{256}(?![^" SPACE "])|[" SPACE "]{128}(?![^" SPACE "])|[" SPACE "]{64}(?![^" SPACE
                  "])|[" SPACE "]{32}(?![^" SPACE "])|[" SPACE "]{16}(?![^" SPACE "])|[" SPACE "]{8}(?![^" SPACE
                  "])|[" SPACE "]{4}(?![^" SPACE "])|[" SPACE "]{1,2}(?![^" SPACE "])|[" SPACE "]"}};
constexpr CutStep kTekken[] = {{GPT4O("", DIGIT)}};
constexpr CutStep kGpt4o[] = {{GPT4O(CONTRACTIONS "?", UP_TO_THREE_DIGITS)}};
constexpr CutStep kTinyAya[] = {{"(?<!\\p{Nd})\\p{Nd}++(?![" WORD_CHARACTERS "])", Cut::threes},
                                {GPT4O(CONTRACTIONS "?", UP_TO_THREE_DIGITS)}};
constexpr CutStep kYoutu[] = {
    {"[\\x{ac00}-\\x{d7a3}\\x{3131}-\\x{318e}]++|[\\x{ff01}\\x{2026}\\x{201c}\\x{201d}\\x{2018}\\x{2019}\\x{2014}"
     "\\x{ff1a}\\x{ff1b}\\x{ff0c}\\x{3001}-\\x{303f}\\x{fe30}-\\x{fe4f}]++|[\\x{3105}-\\x{312f}]++|" HAN_AND_KANA},
    {GPT4O(CONTRACTIONS "?", DIGIT)}};
constexpr CutStep kKimiK2[] = {{"\\p{sc:Han}++|" CASED_RUN(MAYBE_UPPER_NOT_HAN, MAYBE_LOWER_NOT_HAN,
                                                           CONTRACTIONS "?") "|" UP_TO_THREE_DIGITS OTHER_RUN
                                                                             "[\\r\\n]*+" LINE_ENDS SPACES_BUT_ONE}};
constexpr CutStep kDeepSeekLlm[] = {{"[\\r\\n]"},
                                    {"[" SPACE "]?[" LETTERS "]++"},
                                    {"[" SPACE "]?[!-/:-~\\x{ff01}-\\x{ff0f}\\x{ff1a}-\\x{ff5e}\\x{2018}-\\x{201f}"
                                     "\\x{3000}-\\x{3002}]++"},
                                    {"(?<![" SPACE "])[" SPACE "]++\\z"},
                                    {CHINESE_AND_KOREAN},
                                    {"\\p{N}++"}};
constexpr CutStep kDeepSeekCoder[] = {
    {"[\\r\\n]"}, {"[" SPACE "]?\\p{L}++"}, {"[" SPACE "]?\\p{P}++"}, {CHINESE_AND_KOREAN}, {DIGIT}};
constexpr CutStep kDeepSeekV3[] = {
    {UP_TO_THREE_DIGITS}, {HAN_AND_KANA}, {DEEPSEEK_WORDS "[\\r\\n]*+" LINE_ENDS SPACES_BUT_ONE}};
constexpr CutStep kSpark[] = {
    {UP_TO_THREE_DIGITS}, {HAN_AND_KANA}, {DEEPSEEK_WORDS "|[\\r\\n]" SPACES_BUT_ONE}, {DIGIT}};
constexpr CutStep kFalcon[] = {{"[\\p{P}$+<=>^~|`]++"}, {GPT2}, {"[0-9]{3}"}};
constexpr CutStep kBloom[] = {{SENTENCE_PART}};
constexpr CutStep kViking[] = {{SENTENCE_PART}, {DIGIT}};
constexpr CutStep kSuperBpe[] = {{"\\p{N}++"}, {"(?<!\\p{Nd})\\p{Nd}{3,}+", Cut::inside_threes}};
constexpr CutStep kChameleon[] = {{"<sentinel:[0-9]++>"},         {"IMGIMG[A-I]{1,4}Z"},
                                  {"[\\t\\n]|\\x20{4}|\\x20{2}"}, {DIGIT},
                                  {"[\\p{P}!-/:-@\\[-`{-~]"},     {GPT2}};

struct NamedRule {
  std::string_view names;  // separated by spaces
  PreTokenizerRule rule;
};

constexpr PreTokenizerRule whole_words(std::span<const CutStep> steps, bool adds_beginning) {
  return {steps, true, adds_beginning};
}

constexpr NamedRule kRules[] = {
    {"gpt-2 a.x-4.0 exaone4 gigachat granite-docling jais jina-de jina-es jina-v1-en jina-v2-code jina-v2-de "
     "jina-v2-es "
     "mellum modern-bert mpt olmo phi-2 roberta-bpe trillion",
     {kGpt2}},
    {"smollm codeshell command-r exaone mellum2 minerva-7b refact starcoder", {kSingleDigits}},
    {"llama-bpe falcon-h1 falcon3 jina-v5-nano lfm2 llama-v3 llama3 midm-2.0 pixtral", whole_words(kLlama3, true)},
    {"chatglm-bpe dbrx glm4 smaug-bpe", {kLlama3}},
    {"qwen2 deepseek-r1-qwen f2llmv2 grok-2 hunyuan kormo megrez solar-open stablelm2", {kQwen2}},
    {"qwen35", {kQwen35}},
    {"bailingmoe bailingmoe2 llada-moe", {kBailing}},
    {"exaone-moe", {kExaoneMoe}},
    {"jais-2", {kJais2}},
    {"laguna", {kLaguna}},
    {"minicpm5", whole_words(kMiniCpm5, false)},
    {"seed-coder", {kSeedCoder}},
    {"ufakzeka", {kUfakzeka}},
    {"gpt-4o kanana2 llama4 minimax-m2 talkie", {kGpt4o}},
    {"granite-embed-multi-97m", whole_words(kGpt4o, false)},
    {"tekken", whole_words(kTekken, true)},
    {"tiny_aya cohere2moe", {kTinyAya}},
    {"kimi-k2", {kKimiK2}},
    {"youtu", whole_words(kYoutu, false)},
    {"deepseek-llm", {kDeepSeekLlm}},
    {"deepseek-coder", {kDeepSeekCoder}},
    {"deepseek-v3 hunyuan-dense hy_v4 joyai-llm", {kDeepSeekV3}},
    {"spark2_5", {kSpark}},
    {"falcon", {kFalcon}},
    {"bloom gpt3-finnish poro-chat", {kBloom}},
    {"viking", {kViking}},
    {"superbpe", {kSuperBpe}},
    {"chameleon", {.steps = kChameleon, .adds_beginning = true}},
};

std::vector<std::string_view> split(std::string_view names) {
  std::vector<std::string_view> parts;
  for (const auto part : std::views::split(names, ' ')) parts.emplace_back(part.begin(), part.end());
  return parts;
}

}  // namespace

const PreTokenizerRule* find_pre_tokenizer_rule(std::string_view name) {
  for (const NamedRule& rule : kRules) {
    const auto names = split(rule.names);
    if (std::ranges::find(names, name) != names.end()) return &rule.rule;
  }
  return nullptr;
}

std::vector<std::string_view> pre_tokenizer_names() {
  std::vector<std::string_view> all;
  for (const NamedRule& rule : kRules) {
    const auto names = split(rule.names);
    all.insert(all.end(), names.begin(), names.end());
  }
  return all;
}

}  // namespace nanomind
