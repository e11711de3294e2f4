// SPDX-License-Identifier: Apache-2.0
// nanomind quantize: a GGUF file again with smaller weights.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/file_work.h"
#include "cli/quantity.h"
#include "convert/quantize.h"

namespace nanomind {
namespace {

struct QuantizeFlags {
  std::string source, output, type, head, embedding;
  std::vector<std::string> rules;
  int threads = 0;
};

// A type that is no mix.
Result<DType> plain_type(std::string_view text) {
  const Mix mix = TRY(parse_mix(text));
  if (mix.size == MixSize::plain) return mix.base;
  return fail(ErrorCode::invalid_argument, fmt::format("'{}' is a mix; here one type is meant, like q6_k.", text));
}

Result<TypeRule> parse_rule(const std::string& text) {
  const size_t equals = text.rfind('=');
  if (equals == std::string::npos || equals == 0) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' is no rule; it should look like \"ffn_down=q6_k\".", text));
  }
  return TypeRule{text.substr(0, equals), TRY(plain_type(std::string_view(text).substr(equals + 1)))};
}

Result<TypeChoice> read_choice(const QuantizeFlags& flags) {
  TypeChoice choice{.mix = TRY(parse_mix(flags.type))};
  for (const std::string& rule : flags.rules) choice.rules.push_back(TRY(parse_rule(rule)));
  if (!flags.head.empty()) choice.head = TRY(plain_type(flags.head));
  if (!flags.embedding.empty()) choice.embedding = TRY(plain_type(flags.embedding));
  return choice;
}

Result<void> run(const Context& context, const QuantizeFlags& flags) {
  const std::filesystem::path source = expand_home(flags.source, context.folders.home);
  const std::filesystem::path target = expand_home(flags.output, context.folders.home);
  const TypeChoice choice = TRY(read_choice(flags));
  TRY(check_target(source, target));
  return run_file_work(context, "quantizing", flags.threads, [&](const WriteOptions& options) -> Result<void> {
    const Quantized made = TRY(quantize_file(source, target, choice, options));
    context.console.end_progress();
    for (const std::string& warning : made.warnings) context.log.warning(warning);
    context.console.note(fmt::format("{}: {} instead of {}, {} tensors changed", target.string(),
                                     format_bytes(made.bytes), format_bytes(made.source_bytes), made.changed));
    return {};
  });
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
  command->add_option("--rule", flags->rules, "type of the tensors whose names match; the first rule that does decides")
      ->option_text("REGEX=TYPE")
      ->allow_extra_args(false);
  command->add_option("--head", flags->head, "type of the matrix that makes logits (default: q6_k at least)")
      ->option_text("TYPE");
  command->add_option("--embedding", flags->embedding, "type of the table of tokens")->option_text("TYPE");
  command->add_option("-t,--threads", flags->threads, "threads (default: all cores)")->option_text("N");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
