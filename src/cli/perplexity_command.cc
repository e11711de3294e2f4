// SPDX-License-Identifier: Apache-2.0
// nanomind perplexity: how well a model predicts a text; the last number printed is the perplexity.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/models.h"
#include "runtime/perplexity.h"

namespace nanomind {
namespace {

struct PerplexityFlags {
  std::string model;
  std::string file;
  std::string logits;
  int64_t chunks = -1;
  bool json = false;
  EngineFlags engine;
};

Result<PerplexityResult> measure(const Context& context, const PerplexityFlags& flags, Engine& engine,
                                 std::string_view text) {
  std::optional<AtomicFile> logits;
  if (!flags.logits.empty()) logits = TRY(AtomicFile::create(flags.logits));
  uint64_t written = 0;
  Result<void> write_status;
  PerplexityOptions options{.context = flags.engine.context, .chunks = flags.chunks, .on_chunk = {}, .on_logits = {}};
  options.on_chunk = [&](int64_t done, int64_t total, double perplexity) {
    context.console.note(fmt::format("chunk {} of {}: {:.4f} so far", done, total, perplexity));
  };
  if (logits) {
    options.on_logits = [&](std::span<const float> row) {
      if (write_status) write_status = logits->write_at(written, std::as_bytes(row));
      written += row.size_bytes();
    };
  }
  PerplexityResult result = TRY(perplexity(engine, text, options));
  TRY(write_status);
  if (logits) TRY(logits->commit());
  return result;
}

Result<void> run(const Context& context, const PerplexityFlags& flags) {
  const MappedFile file = TRY(MappedFile::open(flags.file));
  const auto bytes = file.bytes();
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const LocatedModel model = TRY(locate_model(context, flags.model));
  const auto engine = TRY(load_engine(context, model, flags.engine));
  const PerplexityResult result = TRY(measure(context, flags, *engine, text));
  if (flags.json) {
    const nlohmann::ordered_json json = {{"model", model.name},
                                         {"ctx", flags.engine.context},
                                         {"chunks", result.chunks},
                                         {"tokens", result.log_probabilities.size()},
                                         {"perplexity", result.perplexity},
                                         {"logprobs", result.log_probabilities}};
    context.out.write(json.dump() + "\n");
  } else {
    context.out.write(fmt::format("{:.4f}\n", result.perplexity));
  }
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
  command->add_flag("--json", flags->json, "print a JSON object");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
