// SPDX-License-Identifier: Apache-2.0
// Options that several commands share: which engine, and how to sample.
#pragma once

#include <CLI/App.hpp>
#include <cstdint>
#include <string>
#include <vector>

#include "cli/constraint_options.h"
#include "cli/sampling_options.h"
#include "cli/settings.h"

namespace nanomind {

// What an engine is opened with; starts from the settings.
struct EngineFlags {
  std::string device;
  std::string isa;
  int threads = 0;
  int64_t context = 0;
  int64_t outputs = 16;            // EngineOptions::outputs
  std::string precision = "fast";  // of prompts: "fast" or "high"
  std::string kv_type = "f16";     // a KvType's name
  std::string vision;              // a file with a tower and a projector; empty: the model's own, if it has one
  bool no_vision = false;          // not even that
  bool lean = false;               // what sees leaves memory when it has seen
  bool no_picture_cache = false;   // pictures that were seen are not kept on disk
  std::string memory;              // as typed; empty: the settings' value
};

struct AnswerFlags {
  SamplingFlags sampling;
  ConstraintFlags constraint;
  int64_t max_tokens = -1;
  std::vector<std::string> stop;
  bool ignore_end = false;
  std::string system;
  int image_tiles = -1;            // PictureDetail::most_tiles; -1: as the model was trained
  int64_t think_budget = -1;       // tokens; -1: no bound
  std::string draft;               // what guesses ahead (cli/draft_options.h); empty: nothing
  std::string when_full = "stop";  // or "slide"
};

enum class ContextOption { offered, fixed };

// Values are read when the parser has run; `flags` and `settings` outlive it.
void add_engine_options(CLI::App& command, EngineFlags& flags, const Settings& settings, ContextOption context);
// How pictures are looked at, for commands that are shown some.
void add_picture_options(CLI::App& command, EngineFlags& engine, AnswerFlags& answer);
void add_answer_options(CLI::App& command, AnswerFlags& flags, const Settings& settings);

}  // namespace nanomind
