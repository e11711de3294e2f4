// SPDX-License-Identifier: Apache-2.0
#include "cli/comparison.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <system_error>

#include "base/mapped_file.h"
#include "format/packed_file.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

fs::path side_file(const LocatedModel& model) {
  return packed_path(model.path, model.packed_folder.empty() ? model.path.parent_path() : model.packed_folder);
}

}  // namespace

Result<Comparison> run_comparison(const Context& context, const ComparisonTask& task) {
  const MappedFile file = TRY(MappedFile::open(task.text));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::string_view label = "source";
  PerplexityOptions options = task.options;
  options.on_chunk = [&](int64_t done, int64_t total, double perplexity) {
    context.console.note(fmt::format("{}, chunk {} of {}: {:.4f} so far", label, done, total, perplexity));
  };
  std::error_code error;
  const fs::path side = side_file(task.reference);
  const bool is_kept = fs::exists(side, error);
  const auto result = compare([&] { return load_engine(context, task.reference, task.engine); },
                              [&] {
                                if (!is_kept) fs::remove(side, error);
                                label = "result";
                                return load_engine(context, task.model, task.engine);
                              },
                              text, options);
  if (!is_kept) fs::remove(side, error);
  return result;
}

std::string describe(const Comparison& comparison) {
  const Divergence& d = comparison.divergence;
  const double before = comparison.reference.perplexity, after = comparison.model.perplexity;
  return fmt::format(
      "positions            {}\n"
      "KL divergence        {:.6f} (99 % below {:.6f}, at most {:.6f})\n"
      "same best token      {:.2f} %\n"
      "perplexity, source   {:.4f}\n"
      "perplexity           {:+.2f} %, {:.4f}\n",
      d.positions, d.mean, d.worst_percent, d.most, 100 * d.same_best, before, 100 * (after / before - 1), after);
}

nlohmann::ordered_json to_json(const Comparison& comparison, const std::string& reference_name) {
  const Divergence& d = comparison.divergence;
  return {{"source", reference_name},
          {"chunks", comparison.model.chunks},
          {"tokens", d.positions},
          {"perplexity", comparison.model.perplexity},
          {"source_perplexity", comparison.reference.perplexity},
          {"mean_kl", d.mean},
          {"p99_kl", d.worst_percent},
          {"max_kl", d.most},
          {"same_best", d.same_best}};
}

}  // namespace nanomind
