// SPDX-License-Identifier: Apache-2.0
#include "cli/comparison.h"

#include <fmt/format.h>

#include <filesystem>
#include <nlohmann/json.hpp>
#include <optional>
#include <system_error>

#include "base/mapped_file.h"
#include "format/packed_file.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

// Removes a model's side file, unless that was there before.
class BorrowedSideFile {
 public:
  explicit BorrowedSideFile(const LocatedModel& model)
      : path_(packed_path(model.path, model.packed_folder.empty() ? model.path.parent_path() : model.packed_folder)),
        is_kept_(fs::exists(path_, ignored_)) {}
  BorrowedSideFile(const BorrowedSideFile&) = delete;
  BorrowedSideFile& operator=(const BorrowedSideFile&) = delete;
  ~BorrowedSideFile() { give_back(); }

  void give_back() {
    if (!is_kept_) fs::remove(path_, ignored_);
  }

 private:
  std::error_code ignored_;
  fs::path path_;
  bool is_kept_;
};

}  // namespace

Result<Comparison> run_comparison(const Context& context, const ComparisonTask& task) {
  const MappedFile file = TRY(MappedFile::open(task.text));
  const std::string_view text(reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size());
  std::string_view label = "source";
  PerplexityOptions options = task.options;
  options.on_chunk = [&](int64_t done, int64_t total, double perplexity) {
    context.console.note(fmt::format("{}, chunk {} of {}: {:.4f} so far", label, done, total, perplexity));
  };
  BorrowedSideFile reference_side(task.reference);
  std::optional<BorrowedSideFile> model_side;
  if (task.side_files == ComparisonTask::SideFiles::keep_none) model_side.emplace(task.model);
  return compare([&] { return load_engine(context, task.reference, task.engine); },
                 [&] {
                   reference_side.give_back();
                   label = "result";
                   return load_engine(context, task.model, task.engine);
                 },
                 text, options);
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
