// SPDX-License-Identifier: Apache-2.0
// nanomind convert: a publisher's folder of safetensors to a GGUF file, or two where the model sees.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/file_work.h"
#include "cli/quantity.h"
#include "convert/convert.h"
#include "hub/vision_pair.h"

namespace nanomind {
namespace {

struct ConvertFlags {
  std::string source, output, type, only;
  int threads = 0;
};

Result<std::optional<DType>> chosen_type(const std::string& text) {
  if (text.empty() || text == "auto") return std::nullopt;
  const DType dtype = TRY(parse_dtype(text));
  if (dtype == DType::f32 || dtype == DType::f16 || dtype == DType::bf16 || dtype == DType::q8_0) return dtype;
  return fail(ErrorCode::invalid_argument,
              fmt::format("convert writes f16, bf16, f32 or q8_0; `nanomind quantize` makes {} of such a file.", text));
}

Halves halves_of(const std::string& only) {
  return only == "text" ? Halves::text : only == "vision" ? Halves::vision : Halves::all;
}

// Which file is which is told by names alone.
Result<void> check_name(const std::filesystem::path& target, Halves halves) {
  if (is_vision_file(target.filename().string()) == (halves == Halves::vision)) return {};
  if (halves == Halves::vision) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("'{}' would not be found as a vision file, which have \"mmproj\" in their names. {} would.",
                            target.string(), vision_path(target).string()));
  }
  return fail(ErrorCode::invalid_argument,
              fmt::format("'{}' would be taken for a vision file, which have \"mmproj\" in their names. Choose another "
                          "name; the vision file's is made of it.",
                          target.string()));
}

Result<void> run(const Context& context, const ConvertFlags& flags) {
  const std::filesystem::path source = expand_home(flags.source, context.folders.home);
  const std::filesystem::path target = expand_home(flags.output, context.folders.home);
  const ConvertChoice choice{.dtype = TRY(chosen_type(flags.type)), .halves = halves_of(flags.only)};
  TRY(check_target(source, target));
  TRY(check_name(target, choice.halves));
  return run_file_work(context, "converting", flags.threads, [&](const WriteOptions& options) -> Result<void> {
    const Converted made = TRY(convert_checkpoint(source, target, choice, options));
    for (const std::string& warning : made.warnings) context.log.warning(warning);
    for (const ConvertedFile& file : made.files) {
      context.console.note(fmt::format("{} ({}, {}, {} tensors, {}): {}", made.name, file.architecture,
                                       traits(made.dtype).name, file.tensors, format_bytes(file.bytes),
                                       file.path.string()));
    }
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
  command->add_option("-o,--output", flags->output, "file to write; what the model sees with goes to mmproj-FILE")
      ->required()
      ->option_text("FILE");
  command->add_option("--only", flags->only, "text or vision: write that half of a model that sees alone")
      ->check(CLI::IsMember({"text", "vision"}))
      ->option_text("HALF");
  command->add_option("--type", flags->type, "f16, bf16, f32 or q8_0 (default: as the source)")->option_text("TYPE");
  command->add_option("-t,--threads", flags->threads, "threads (default: all cores)")->option_text("N");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
