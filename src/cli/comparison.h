// SPDX-License-Identifier: Apache-2.0
// A model beside the one that it was made of, on a text: for `perplexity --against` and `quantize --report`.
#pragma once

#include <cstdint>
#include <nlohmann/json_fwd.hpp>
#include <string>

#include "base/result.h"
#include "cli/context.h"
#include "cli/models.h"
#include "runtime/divergence.h"

namespace nanomind {

struct ComparisonTask {
  LocatedModel reference, model;
  std::string text;  // path of a file
  EngineFlags engine;
  PerplexityOptions options;
  enum class SideFiles { keep_models, keep_none } side_files = SideFiles::keep_models;
};

// With progress as notes. A side file that only this made for the reference is removed again, as it is as large as the
// reference, which hardly anybody runs; the model's is where `side_files` says so.
Result<Comparison> run_comparison(const Context& context, const ComparisonTask& task);

// For people, in lines; the last number is the model's perplexity.
std::string describe(const Comparison& comparison);
// For programs: model, perplexity, and divergence of the model from the reference.
nlohmann::ordered_json to_json(const Comparison& comparison, const std::string& reference_name);

}  // namespace nanomind
