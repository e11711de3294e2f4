// SPDX-License-Identifier: Apache-2.0
// nanomind embed: the vector of each text.
#include <fmt/format.h>

#include <memory>
#include <nlohmann/json.hpp>

#include "base/base64.h"
#include "cli/commands.h"
#include "cli/input.h"
#include "cli/models.h"

namespace nanomind {
namespace {

struct EmbedFlags {
  std::string model;
  EngineFlags engine;
  std::vector<std::string> texts;
  std::string format = "text";
};

using Vectors = std::vector<std::vector<float>>;

// One line per text, numbers that read back as the same floats.
std::string as_text(const Vectors& vectors) {
  std::string out;
  for (const std::vector<float>& vector : vectors) {
    for (size_t i = 0; i < vector.size(); ++i) out += fmt::format("{}{}", i == 0 ? "" : " ", vector[i]);
    out += '\n';
  }
  return out;
}

// The list of an OpenAI-style answer.
std::string as_json(const Vectors& vectors, const std::string& model, bool encoded) {
  nlohmann::ordered_json data = nlohmann::ordered_json::array();
  for (size_t i = 0; i < vectors.size(); ++i) {
    nlohmann::ordered_json entry{{"object", "embedding"}, {"index", i}};
    if (encoded)
      entry["embedding"] = base64(std::as_bytes(std::span(vectors[i])));
    else
      entry["embedding"] = vectors[i];
    data.push_back(std::move(entry));
  }
  return nlohmann::ordered_json{{"object", "list"}, {"model", model}, {"data", std::move(data)}}.dump() + "\n";
}

// NumPy's format 1.0: a matrix [texts, E] of little-endian floats.
std::string as_npy(const Vectors& vectors) {
  std::string header = fmt::format("{{'descr': '<f4', 'fortran_order': False, 'shape': ({}, {}), }}", vectors.size(),
                                   vectors.empty() ? 0 : vectors[0].size());
  constexpr size_t kPrefix = 10, kAlignment = 64;
  header.append(kAlignment - (kPrefix + header.size() + 1) % kAlignment, ' ');
  header += '\n';
  std::string out("\x93NUMPY\x01\x00", 8);
  out += static_cast<char>(header.size() & 0xFF);
  out += static_cast<char>(header.size() >> 8);
  out += header;
  for (const std::vector<float>& vector : vectors)
    out.append(reinterpret_cast<const char*>(vector.data()), vector.size() * sizeof(float));
  return out;
}

Result<void> run(const Context& context, const EmbedFlags& flags) {
  std::vector<std::string> texts = flags.texts;
  if (texts.empty()) {
    const std::string all = TRY(read_all_input());
    for (size_t begin = 0; begin < all.size();) {
      const size_t end = std::min(all.find('\n', begin), all.size());
      texts.push_back(all.substr(begin, end - begin));
      begin = end + 1;
    }
  }
  if (texts.empty()) return fail(ErrorCode::invalid_argument, "There is no text: give some, or one per line on input.");
  const LocatedModel model = TRY(locate_model(context, flags.model));
  const auto engine = TRY(load_engine(context, model, flags.engine));
  Vectors vectors;
  for (const std::string& text : texts) vectors.push_back(TRY(engine->embed(text)));
  if (flags.format == "npy")
    context.out.write(as_npy(vectors));
  else if (flags.format == "text")
    context.out.write(as_text(vectors));
  else
    context.out.write(as_json(vectors, model.name, flags.format == "base64"));
  return {};
}

}  // namespace

void add_embed(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<EmbedFlags>();
  CLI::App* command = app.add_subcommand("embed", "Print the vector of each text, from a model that embeds");
  command->add_option("model", flags->model, "model that embeds, for example minilm")->option_text("MODEL");
  command->add_option("text", flags->texts, "texts; without, one per line of standard input")->option_text("[TEXT...]");
  auto* json = command->add_flag_callback("--json", [flags] { flags->format = "json"; }, "print OpenAI-style JSON");
  auto* npy = command->add_flag_callback("--npy", [flags] { flags->format = "npy"; }, "print NumPy's format");
  auto* base64 = command->add_flag_callback(
      "--base64", [flags] { flags->format = "base64"; }, "as --json, vectors as base64 of little-endian floats");
  json->excludes(npy, base64);
  npy->excludes(base64);
  add_engine_options(*command, flags->engine, context.settings, ContextOption::offered);
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
