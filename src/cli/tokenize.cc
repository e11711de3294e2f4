// SPDX-License-Identifier: Apache-2.0
// nanomind tokenize: the token ids of the text on standard input.
#include <fmt/format.h>

#include <memory>

#include "cli/commands.h"
#include "cli/input.h"
#include "cli/models.h"
#include "format/gguf.h"
#include "text/tokenizer.h"

namespace nanomind {
namespace {

struct TokenizeFlags {
  std::string model;
  bool json = false;
  bool special = false;
  bool no_beginning = false;
};

// One line of printable text for any bytes.
std::string escaped(std::string_view bytes) {
  std::string text;
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    if (c == '\n') {
      text += "\\n";
    } else if (c == '\t') {
      text += "\\t";
    } else if (c == '\\') {
      text += "\\\\";
    } else if (byte < 0x20 || byte == 0x7F) {
      text += fmt::format("\\x{:02x}", byte);
    } else {
      text += c;
    }
  }
  return text;
}

Result<void> run(const Context& context, const TokenizeFlags& flags) {
  const LocatedModel model = TRY(locate_model(context, flags.model));
  const GgufFile file = TRY(GgufFile::open(model.path));
  const auto tokenizer = TRY(make_tokenizer(file));
  const std::string text = TRY(read_all_input());
  const auto control = flags.special ? ControlTokens::recognise : ControlTokens::as_text;
  const auto beginning = flags.no_beginning ? Beginning::omit : Beginning::add_if_model_does;
  const std::vector<TokenId> ids = tokenizer->encode(text, control, beginning);
  std::string printed;
  if (flags.json) {
    for (const TokenId id : ids) printed += fmt::format("{}{}", printed.empty() ? "" : ",", id);
    printed = "{\"ids\":[" + printed + "]}\n";
  } else {
    for (const TokenId id : ids) {
      const std::string_view bytes = tokenizer->bytes(id);
      printed += fmt::format("{}\t{}\n", id, escaped(bytes.empty() ? tokenizer->piece(id) : bytes));
    }
  }
  context.out.write(printed);
  return {};
}

}  // namespace

void add_tokenize(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<TokenizeFlags>();
  CLI::App* command = app.add_subcommand("tokenize", "Print the token ids of the text on standard input");
  command->add_option("model", flags->model, "model (default: the catalog's)")->option_text("[MODEL]");
  command->add_flag("--json", flags->json, "print {\"ids\":[...]}");
  command->add_flag("--special", flags->special, "read control tokens such as <|im_end|> as what they stand for");
  command->add_flag("--no-bos", flags->no_beginning, "leave out the beginning token that some models want first");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
