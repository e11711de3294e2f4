// SPDX-License-Identifier: Apache-2.0
// nanomind quantize: a GGUF file again with smaller weights.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/mapped_file.h"
#include "cli/commands.h"
#include "cli/comparison.h"
#include "cli/environment.h"
#include "cli/file_work.h"
#include "cli/quantity.h"
#include "convert/quantize.h"
#include "format/gguf.h"
#include "runtime/perplexity.h"
#include "text/tokenizer.h"

namespace nanomind {
namespace {

struct QuantizeFlags {
  std::string source, output, type, head, embedding;
  std::vector<std::string> rules;
  int threads = 0;
  bool is_pure = false;
  std::string report;  // text
  int64_t context = 512, chunks = 8;
  bool json = false;
};

Result<TypeRule> parse_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' is no rule; it should look like \"ffn_down=q6_k\".", text));
  }
  return TypeRule{text.substr(0, equals), TRY(parse_dtype(std::string_view(text).substr(equals + 1)))};
}

Result<TypeChoice> read_choice(const QuantizeFlags& flags) {
  TypeChoice choice{.mix = TRY(parse_mix(flags.type))};
  if (flags.is_pure) choice.mix.size = MixSize::plain, choice.head_default = HeadDefault::as_others;
  for (const std::string& rule : flags.rules) choice.rules.push_back(TRY(parse_rule(rule)));
  if (!flags.head.empty()) choice.head = TRY(parse_dtype(flags.head));
  if (!flags.embedding.empty()) choice.embedding = TRY(parse_dtype(flags.embedding));
  return choice;
}

struct Paths {
  std::filesystem::path source, target;
};

Result<Quantized> write_file(const Context& context, const QuantizeFlags& flags, const Paths& paths) {
  const TypeChoice choice = TRY(read_choice(flags));
  Quantized made;
  const auto write = [&](const WriteOptions& options) -> Result<void> {
    made = TRY(quantize_file(paths.source, paths.target, choice, options));
    return {};
  };
  TRY(run_file_work(context, "quantizing", flags.threads, write));
  if (made.taken_up > 0) context.console.note(fmt::format("{} tensors were there from an earlier run", made.taken_up));
  for (const std::string& warning : made.warnings) context.log.warning(warning);
  return made;
}

// Prompts are read with high precision, so that what differs are the weights.
Result<Comparison> report(const Context& context, const QuantizeFlags& flags, const Paths& paths) {
  EngineFlags engine{.device = context.settings.device,
                     .isa = context.settings.isa,
                     .threads = flags.threads,
                     .context = flags.context,
                     .outputs = 256,
                     .precision = "high",
                     .memory = {}};
  return run_comparison(context, {.reference = TRY(locate_model(context, paths.source.string())),
                                  .model = TRY(locate_model(context, paths.target.string())),
                                  .text = expand_home(flags.report, context.folders.home),
                                  .engine = engine,
                                  .options = {.context = flags.context, .chunks = flags.chunks},
                                  .side_files = ComparisonTask::SideFiles::keep_none});
}

// What is wrong with the text is better known before the work than after it.
Result<void> check_report(const Context& context, const QuantizeFlags& flags, const Paths& paths) {
  const GgufFile source = TRY(GgufFile::open(paths.source));
  if (source.get_string("general.architecture").value_or("") == "clip") {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} predicts no text that could be compared. Leave out --report.", paths.source.string()));
  }
  const MappedFile text = TRY(MappedFile::open(expand_home(flags.report, context.folders.home)));
  const auto tokenizer = TRY(make_tokenizer(source));
  TRY(perplexity_chunks(*tokenizer, {reinterpret_cast<const char*>(text.bytes().data()), text.bytes().size()},
                        {.context = flags.context, .chunks = flags.chunks}));
  return {};
}

Result<void> run(const Context& context, const QuantizeFlags& flags) {
  const Paths paths{std::filesystem::absolute(expand_home(flags.source, context.folders.home)),
                    std::filesystem::absolute(expand_home(flags.output, context.folders.home))};
  TRY(check_target(paths.source, paths.target));
  if (!flags.report.empty()) TRY(check_report(context, flags, paths));
  const Quantized made = TRY(write_file(context, flags, paths));
  context.console.note(fmt::format("{}: {} instead of {}, {} tensors changed", paths.target.string(),
                                   format_bytes(made.bytes), format_bytes(made.source_bytes), made.changed));
  nlohmann::ordered_json json = {{"output", paths.target.string()},
                                 {"bytes", made.bytes},
                                 {"source_bytes", made.source_bytes},
                                 {"changed", made.changed}};
  if (!flags.report.empty()) {
    const Comparison comparison = TRY(report(context, flags, paths));
    if (!flags.json) context.out.write(describe(comparison));
    json["report"] = to_json(comparison, paths.source.string());
  }
  if (flags.json) context.out.write(json.dump() + "\n");
  return {};
}

}  // namespace

void add_quantize(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<QuantizeFlags>();
  CLI::App* command = app.add_subcommand("quantize", "Write a GGUF file again with smaller weights");
  command->add_option("source", flags->source, "file to read")->required()->option_text("IN");
  command->add_option("output", flags->output, "file to write")->required()->option_text("OUT");
  command->add_option("--type", flags->type, "of the matrices: q8_0, q4_0, q6_k ..., or a mix like q4_k_m")
      ->required()
      ->option_text("TYPE");
  command->add_flag("--pure", flags->is_pure, "give all matrices the same type, also where mixes give more bits");
  command->add_option("--rule", flags->rules, "type of the tensors whose names match; the first rule that does decides")
      ->option_text("REGEX=TYPE")
      ->allow_extra_args(false);
  command->add_option("--head", flags->head, "type of the matrix that makes logits (default: q6_k at least)")
      ->option_text("TYPE");
  command->add_option("--embedding", flags->embedding, "type of the table of tokens")->option_text("TYPE");
  command->add_option("-t,--threads", flags->threads, "threads (default: all cores)")->option_text("N");
  command->add_option("--report", flags->report, "then compare with the source how well a text is predicted")
      ->option_text("TEXTFILE");
  command->add_option("--ctx", flags->context, "tokens per chunk of the report (default: 512)")
      ->check(CLI::Range(int64_t{4}, int64_t{1} << 31))
      ->option_text("N");
  command->add_option("--chunks", flags->chunks, "chunks of the report, -1 for all (default: 8)")
      ->check(CLI::Range(int64_t{-1}, int64_t{1} << 40))
      ->option_text("K");
  command->add_flag("--json", flags->json, "print a JSON object");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
