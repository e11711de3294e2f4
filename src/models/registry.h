// SPDX-License-Identifier: Apache-2.0
// Architectures by their GGUF name: one file each, one line each in registry.cc.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/result.h"
#include "format/gguf.h"
#include "ops/program.h"

namespace nanomind {

struct Model {
  std::string architecture;
  int64_t context_length = 0;  // tokens that it was trained for
  int64_t vocabulary = 0;      // V, width of the program's output
  int64_t layers = 0;
  int64_t width = 0;  // E
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

std::vector<std::string> architecture_names();

}  // namespace nanomind
