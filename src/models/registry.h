// SPDX-License-Identifier: Apache-2.0
// Architectures by their GGUF name: one file each, one line each in registry.cc.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "ops/program.h"

namespace nanomind {

// What a program's result rows [R, N] are.
enum class ResultKind : uint8_t {
  logits,     // N = V: of the next token
  embedding,  // N = E: hidden states, which are pooled to one vector per text
  rank,       // how well a document answers a query: one score, or the logits of yes and no
};
// Which rows of a text make its one vector.
enum class Pooling : uint8_t { mean, first, last };
struct ModelResult {
  ResultKind kind = ResultKind::logits;
  Pooling pooling = Pooling::last;
};

struct Model {
  std::string architecture;
  int64_t context_length = 0;  // tokens that it was trained for
  int64_t vocabulary = 0;      // V
  int64_t layers = 0;
  int64_t width = 0;           // E
  int64_t picture_levels = 1;  // parts of [E] that a picture's row has: for the first layer, and for the next ones
  ModelResult result;
  bool whole_sequences = false;  // tokens see later ones, so a sequence must be one step
  Program program;

  // A rotary table of the program as it is to be in contexts of more than `beyond` tokens.
  struct LongRope {
    int32_t rope = 0;
    RopeInfo info;
    int64_t beyond = 0;
  };
  std::vector<LongRope> long_ropes;
};

// Gives the program the rotary tables for sequences of up to `context` tokens.
void fit_context(Model& model, int64_t context);

// Reads parameters, checks every weight's presence, type and shape (all failures are reported together) and records the
// program. The result does not refer to the file.
Result<Model> build_model(const GgufFile& file);

// For people; of the program's lifetime.
struct ArchitectureInfo {
  std::string_view name;        // in GGUF files
  std::string_view models;      // published ones
  std::string_view difference;  // from `llama`
};
// In the order of their names.
std::vector<ArchitectureInfo> architectures();

}  // namespace nanomind
