// SPDX-License-Identifier: Apache-2.0
// nanomind show: what is known about a model; for one that is here, also what its file says.
#include <fmt/format.h>

#include <map>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>

#include "cli/commands.h"
#include "cli/models.h"
#include "cli/quantity.h"
#include "format/gguf.h"
#include "hub/vision_pair.h"

namespace nanomind {
namespace {

using Json = nlohmann::ordered_json;

struct ShowFlags {
  std::string model;
  bool json = false;
};

Json describe_file(const GgufFile& file) {
  const auto text = [&](const char* key) { return std::string(file.get_string(key).value_or("")); };
  const std::string architecture = text("general.architecture");
  const auto number = [&](const char* key) {
    return file.get_uint(fmt::format("{}.{}", architecture, key)).value_or(0);
  };
  int64_t parameters = 0;
  std::map<std::string, int> types;
  for (const GgufTensor& tensor : file.tensors()) {
    parameters += tensor.shape.elements();
    const std::string_view type = gguf_type_name(tensor.type_number);
    ++types[type.empty() ? fmt::format("type {}", tensor.type_number) : std::string(type)];
  }
  return {{"architecture", architecture},
          {"title", text("general.name")},
          {"parameters", parameters},
          {"context", number("context_length")},
          {"layers", number("block_count")},
          {"width", number("embedding_length")},
          {"tensors", types},
          {"tokenizer", text("tokenizer.ggml.model")},
          {"pretokenizer", text("tokenizer.ggml.pre")},
          {"chat_template", file.find("tokenizer.chat_template") != nullptr},
          {"gguf_version", file.version()}};
}

// What is made of a publisher's weights has neither size nor hash before it is here.
Json known(uint64_t bytes) { return bytes == 0 ? Json() : Json(bytes); }
Json known(const std::string& sha256) { return sha256.empty() ? Json() : Json(sha256); }

// Name, path, bytes, hash, source and licence, as far as they are known.
Result<Json> collect(const Context& context, const std::string& typed) {
  const Catalog catalog = TRY(open_catalog(context));
  const ModelName name = TRY(parse_model_name(typed));
  const auto* short_name = std::get_if<CatalogName>(&name);
  const CatalogEntry* entry = short_name != nullptr ? catalog.find(short_name->name) : nullptr;
  Json json = {{"name", typed}, {"path", nullptr}};
  if (entry != nullptr) {
    json.update({{"name", entry->name},
                 {"summary", entry->summary},
                 {"bytes", known(entry->bytes)},
                 {"sha256", known(entry->sha256)},
                 {"licence", entry->licence},
                 {"architecture", entry->architecture}});
    for (const ModelSource& source : entry->sources) json["sources"].push_back(describe(source));
    if (entry->vision) {
      json.update({{"vision", nullptr},
                   {"vision_bytes", known(entry->vision->bytes)},
                   {"vision_sha256", known(entry->vision->sha256)}});
      for (const ModelSource& source : entry->vision->sources) json["vision_sources"].push_back(describe(source));
    }
  }
  std::filesystem::path path, vision;
  if (const auto* path_name = std::get_if<PathName>(&name))
    path = expand_home(path_name->path.string(), context.folders.home);
  std::error_code error;
  if (path.empty() || !std::filesystem::exists(path, error)) {
    const Store store = TRY(open_store(context));
    const auto stored = TRY(find_stored(name, catalog, store));
    if (!stored && entry != nullptr) return json;
    if (!stored && short_name != nullptr) return std::unexpected(catalog.unknown(short_name->name));
    if (!stored)
      return fail(ErrorCode::not_found, fmt::format("{} is not here. `nanomind pull {}` fetches it.", typed, typed));
    path = stored->path;
    vision = stored->vision;
    json.update(
        {{"name", stored->name}, {"bytes", stored->bytes}, {"sha256", stored->sha256}, {"source", stored->source}});
    if (!stored->licence.empty()) json["licence"] = stored->licence;
  } else {
    vision = vision_file_beside(path);
  }
  const GgufFile file = TRY(GgufFile::open(path));
  if (std::holds_alternative<PathName>(name) && json["name"] == typed) json["name"] = path.stem().string();
  json["path"] = std::filesystem::absolute(path, error).string();
  json["bytes"] = file.size_bytes();
  if (!vision.empty()) {
    json["vision"] = std::filesystem::absolute(vision, error).string();
    json["vision_bytes"] = std::filesystem::file_size(vision, error);
  }
  json.update(describe_file(file));
  return json;
}

std::string to_text(const Json& json) {
  std::string text;
  for (const auto& [key, value] : json.items()) {
    std::string shown = value.is_string() ? value.get<std::string>() : value.dump();
    if (value.is_null()) shown = "not here; `nanomind pull` fetches it";
    if (key == "bytes" || key == "vision_bytes") shown += fmt::format(" ({})", format_bytes(value.get<uint64_t>()));
    if (value.is_object() || value.is_array()) {
      shown.clear();
      for (const auto& [name, item] : value.items()) {
        shown += shown.empty() ? "" : ", ";
        shown += value.is_array() ? item.get<std::string>() : fmt::format("{} {}", item.dump(), name);
      }
    }
    text += fmt::format("{:<15}{}\n", key, shown);
  }
  return text;
}

Result<void> run(const Context& context, const ShowFlags& flags) {
  const Json json = TRY(collect(context, flags.model));
  if (flags.json) {
    context.out.write(json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n");
  } else {
    context.out.write_answer(to_text(json));
  }
  return {};
}

}  // namespace

void add_show(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<ShowFlags>();
  CLI::App* command = app.add_subcommand("show", "Tell about a model; `path` is the file on disk");
  command->add_option("model", flags->model, "name or path")->required()->option_text("MODEL");
  command->add_flag("--json", flags->json, "print a JSON object");
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
