// SPDX-License-Identifier: Apache-2.0
// nanomind perplexity: how well a model predicts a text; the last number printed is the perplexity.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/models.h"
#include "runtime/perplexity.h"

namespace nanomind {
namespace {

struct PerplexityFlags {
  std::string model;
  std::string file;
  std::string logits;
  std::string against;
  int64_t chunks = -1;
  bool json = false;
  EngineFlags engine;
};

// Writes the logits of every position where --logits says.
class LogitsOutput {
 public:
  static Result<LogitsOutput> create(const std::string& path) {
    LogitsOutput output;
    if (!path.empty()) output.file_ = TRY(AtomicFile::create(path));
    return output;
  }
  Result<void> write(std::span<const float> row) {
    if (!file_) return {};
    TRY(file_->write_at(written_, std::as_bytes(row)));
    written_ += row.size_bytes();
    return {};
  }
  Result<void> commit() { return file_ ? file_->commit() : Result<void>(); }

 private:
  std::optional<AtomicFile> file_;
  uint64_t written_ = 0;
};

Result<PerplexityResult> measure(const Context& context, const PerplexityFlags& flags) {
  const MappedFile file = TRY(MappedFile::open(flags.file));
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const LocatedModel model = TRY(locate_model(context, flags.model));
  const auto engine = TRY(load_engine(context, model, flags.engine));
  LogitsOutput logits = TRY(LogitsOutput::create(flags.logits));
  PerplexityOptions options{.context = flags.engine.context, .chunks = flags.chunks, .on_chunk = {}, .on_logits = {}};
  options.on_chunk = [&](int64_t done, int64_t total, double perplexity) {
    context.console.note(fmt::format("chunk {} of {}: {:.4f} so far", done, total, perplexity));
  };
  options.on_logits = [&](std::span<const float> row) { return logits.write(row); };
  PerplexityResult result = TRY(perplexity(*engine, text, options));
  TRY(logits.commit());
  return result;
}

Result<Comparison> measure_both(const Context& context, const PerplexityFlags& flags) {
  LogitsOutput logits = TRY(LogitsOutput::create(flags.logits));
  ComparisonTask task{.reference = TRY(locate_model(context, flags.against)),
                      .model = TRY(locate_model(context, flags.model)),
                      .text = flags.file,
                      .engine = flags.engine,
                      .options = {.context = flags.engine.context, .chunks = flags.chunks}};
  task.options.on_logits = [&](std::span<const float> row) { return logits.write(row); };
  Comparison comparison = TRY(run_comparison(context, task));
  TRY(logits.commit());
  return comparison;
}

Result<void> run(const Context& context, const PerplexityFlags& flags) {
  std::optional<Comparison> comparison;
  if (!flags.against.empty()) comparison = TRY(measure_both(context, flags));
  const PerplexityResult result = comparison ? comparison->model : TRY(measure(context, flags));
  if (!flags.json) {
    context.out.write(comparison ? describe(*comparison) : fmt::format("{:.4f}\n", result.perplexity));
    return {};
  }
  nlohmann::ordered_json json = {{"model", TRY(locate_model(context, flags.model)).name},
                                 {"ctx", flags.engine.context},
                                 {"chunks", result.chunks},
                                 {"tokens", result.log_probabilities.size()},
                                 {"perplexity", result.perplexity}};
  if (comparison) json["against"] = to_json(*comparison, TRY(locate_model(context, flags.against)).name);
  json["logprobs"] = result.log_probabilities;
  context.out.write(json.dump() + "\n");
  return {};
}

}  // namespace

void add_perplexity(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<PerplexityFlags>();
  CLI::App* command = app.add_subcommand("perplexity", "Measure how well a model predicts a text");
  command->add_option("model", flags->model, "name or path")->required()->option_text("MODEL");
  command->add_option("file", flags->file, "text to predict")->required()->option_text("FILE");
  add_engine_options(*command, flags->engine, context.settings, ContextOption::fixed);
  flags->engine.context = 512;
  command->add_option("--ctx", flags->engine.context, "tokens per chunk (default: 512)")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 31))
      ->option_text("N");
  command->add_option("--chunks", flags->chunks, "chunks to measure (default: all)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40))
      ->option_text("K");
  flags->engine.outputs = 256;
  command
      ->add_option("--step", flags->engine.outputs, "tokens per step: 1 measures decoding (default: 256, as prompts)")
      ->check(CLI::Range(int64_t{1}, int64_t{256}))
      ->option_text("N");
  command->add_option("--logits", flags->logits, "write the logits of every scored position to OUT, as float32")
      ->option_text("OUT");
  command->add_option("--against", flags->against, "compare with the model that it was made of")->option_text("SOURCE");
  command->add_flag("--json", flags->json, "print a JSON object");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
