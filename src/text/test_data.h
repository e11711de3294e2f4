// SPDX-License-Identifier: Apache-2.0
// Reads what tools/golden/make_corpus.py and tokenizer_ids.py wrote; for tests only, run from the top of the source
// tree.
#pragma once

#include <gtest/gtest.h>

#include <charconv>
#include <cstdint>
#include <ctime>
#include <fstream>
#include <span>
#include <sstream>
#include <string>
#include <string_view>
#include <vector>

#include "text/vocabulary.h"

namespace nanomind {

// The inverse of escape.py: \\ and \xHH.
inline std::string unescape(std::string_view line) {
  std::string out;
  for (size_t i = 0; i < line.size(); ++i) {
    if (line[i] != '\\') {
      out += line[i];
    } else if (line[i + 1] == '\\') {
      out += line[++i];
    } else {
      int byte = 0;
      std::from_chars(line.data() + i + 2, line.data() + i + 4, byte, 16);
      out += static_cast<char>(byte);
      i += 3;
    }
  }
  return out;
}

inline std::vector<std::string> read_lines(const std::string& path) {
  std::ifstream file(path);
  EXPECT_TRUE(file) << path << " is missing; run tests from the top of the source tree";
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

inline std::vector<std::string> read_corpus() {
  std::vector<std::string> texts;
  for (const std::string& line : read_lines("tests/data/tokenizer_corpus.txt")) texts.push_back(unescape(line));
  return texts;
}

inline Vocabulary read_vocabulary(const std::string& name) {
  const auto lines = read_lines("tests/data/tokenizer/" + name + ".vocabulary");
  Vocabulary vocabulary;
  if (lines.empty()) return vocabulary;
  size_t tokens = 0, merges = 0;
  std::istringstream(lines[0]) >> tokens >> merges;
  for (size_t i = 0; i < tokens; ++i) {
    std::istringstream line(lines[1 + i]);
    int type = 0;
    float score = 0;
    line >> type >> score;
    std::string spelling;
    std::getline(line.ignore(), spelling);
    vocabulary.types.push_back(static_cast<TokenType>(type));
    vocabulary.scores.push_back(score);
    vocabulary.tokens.push_back(unescape(spelling));
  }
  for (size_t i = 0; i < merges; ++i) vocabulary.merges.push_back(unescape(lines[1 + tokens + i]));
  return vocabulary;
}

// FNV-1a, 64 bits, of the ids as little-endian int32.
inline uint64_t hash_ids(std::span<const TokenId> ids) {
  uint64_t hash = 0xcbf29ce484222325u;
  for (const TokenId id : ids) {
    for (int shift = 0; shift < 32; shift += 8)
      hash = (hash ^ (static_cast<uint32_t>(id) >> shift & 0xff)) * 0x100000001b3u;
  }
  return hash;
}

// Compares the ids of the whole corpus with tests/data/tokenizer/<name>.ids; returns how many texts were compared.
inline int expect_golden_ids(const Tokenizer& tokenizer, const std::string& name) {
  const auto texts = read_corpus();
  const auto expected = read_lines("tests/data/tokenizer/" + name + ".ids");
  EXPECT_EQ(texts.size(), expected.size());
  int compared = 0, wrong = 0;
  for (size_t i = 0; i < std::min(texts.size(), expected.size()); ++i) {
    if (expected[i] == "-") continue;
    const auto ids = tokenizer.encode(texts[i], ControlTokens::as_text, Beginning::omit);
    std::ostringstream got;
    got << ids.size() << ' ' << std::hex;
    got.width(16);
    got.fill('0');
    got << hash_ids(ids);
    ++compared;
    if (got.str() == expected[i]) continue;
    if (++wrong <= 5)
      ADD_FAILURE() << name << ", line " << i + 1 << ": " << testing::PrintToString(texts[i]) << " gives "
                    << testing::PrintToString(ids);
  }
  EXPECT_EQ(wrong, 0);
  return compared;
}

// Time of the processor that this program used, so that busy machines do not matter.
class CpuTimer {
 public:
  double elapsed_s() const { return static_cast<double>(std::clock() - begin_) / CLOCKS_PER_SEC; }

 private:
  std::clock_t begin_ = std::clock();
};

// For a megabyte of one letter; it takes less than half a second without sanitizers, minutes when time is quadratic.
inline constexpr double kLinearSeconds = 10;

inline std::string decode(const Tokenizer& tokenizer, std::span<const TokenId> ids) {
  std::string bytes;
  for (const TokenId id : ids) bytes += tokenizer.bytes(id);
  return bytes;
}

}  // namespace nanomind
