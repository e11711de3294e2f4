// SPDX-License-Identifier: Apache-2.0
// nanomind convert: a publisher's folder of safetensors to a GGUF file.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/file_work.h"
#include "cli/quantity.h"
#include "convert/convert.h"

namespace nanomind {
namespace {

struct ConvertFlags {
  std::string source, output, type;
  int threads = 0;
};

Result<std::optional<DType>> chosen_type(const std::string& text) {
  if (text.empty() || text == "auto") return std::nullopt;
  const DType dtype = TRY(parse_dtype(text));
  if (dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::q8_0) return dtype;
  return fail(ErrorCode::invalid_argument,
              fmt::format("convert writes f16, bf16, f32 or q8_0; `nanomind quantize` makes {} of such a file.", text));
}

Result<void> run(const Context& context, const ConvertFlags& flags) {
  const std::filesystem::path source = expand_home(flags.source, context.folders.home);
  const std::filesystem::path target = expand_home(flags.output, context.folders.home);
  const std::optional<DType> dtype = TRY(chosen_type(flags.type));
  TRY(check_target(source, target));
  return run_file_work(context, "converting", flags.threads, [&](const WriteOptions& options) -> Result<void> {
    const Converted made = TRY(convert_checkpoint(source, target, dtype, options));
    context.console.note(fmt::format("{} ({}, {}, {} tensors, {}): {}", made.name, made.architecture,
                                     traits(made.dtype).name, made.tensors, format_bytes(made.bytes), target.string()));
    return {};
  });
}

}  // namespace

void add_convert(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<ConvertFlags>();
  CLI::App* command = app.add_subcommand("convert", "Make a GGUF file of a publisher's safetensors");
  command->add_option("source", flags->source, "folder with config.json, tokenizer.json and safetensors")
      ->required()
      ->option_text("FOLDER");
  command->add_option("-o,--output", flags->output, "file to write")->required()->option_text("FILE");
  command->add_option("--type", flags->type, "f16, bf16, f32 or q8_0 (default: as the source)")->option_text("TYPE");
  command->add_option("-t,--threads", flags->threads, "threads (default: all cores)")->option_text("N");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
