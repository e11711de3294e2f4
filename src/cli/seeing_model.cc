// SPDX-License-Identifier: Apache-2.0
#include "cli/seeing_model.h"

#include <fmt/format.h>

#include <algorithm>

#include "cli/quantity.h"
#include "hub/vision_pair.h"

namespace nanomind {
namespace {

// As many of the catalog's are offered as a person reads.
constexpr size_t kOffered = 2;

// The word for a POSIX shell.
std::string quoted(const std::string& word) {
  const bool plain = !word.empty() && std::ranges::all_of(word, [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
           std::string_view("-_./:,+@").contains(c);
  });
  if (plain) return word;
  std::string out = "'";
  for (const char c : word) out += c == '\'' ? std::string("'\\''") : std::string(1, c);
  return out + "'";
}

std::string command(const std::string& model, const PictureQuestion& picture) {
  std::string line = "nanomind " + picture.command + " " + quoted(model);
  for (const std::string& option : picture.options) line += " " + quoted(option);
  return line + " " + quoted(picture.question);
}

// Names of the models here that see.
Result<std::vector<std::string>> seeing_here(const Catalog& catalog, const Store& store) {
  std::vector<std::string> names;
  for (const CatalogEntry& entry : catalog.entries()) {
    if (entry.vision && TRY(find_stored(CatalogName{entry.name}, catalog, store))) names.push_back(entry.name);
  }
  for (const StoredModel& model : TRY(store.list())) {
    if (!model.vision.empty() && catalog.find(model.name) == nullptr) names.push_back(model.name);
  }
  return names;
}

std::string advice(const std::vector<std::string>& here, const Catalog& catalog, const Store& store,
                   const PictureQuestion& picture) {
  std::string text;
  const auto offer = [&](const std::string& name, const std::string& about) {
    text += fmt::format("\n  {}\n      {}", command(name, picture), about);
  };
  for (const std::string& name : here) {
    const CatalogEntry* entry = catalog.find(name);
    offer(name, entry != nullptr ? entry->summary : "is here");
  }
  size_t offered = 0;
  for (const CatalogEntry& entry : catalog.entries()) {
    if (!entry.vision || ++offered > kOffered) continue;
    if (std::ranges::find(here, entry.name) != here.end()) continue;
    offer(entry.name, fmt::format("{}; {} to fetch", entry.summary, format_bytes(missing_bytes(entry, store))));
  }
  return text;
}

}  // namespace

Result<LocatedModel> locate_seeing_model(const Context& context, const std::string& text, const EngineFlags& flags,
                                         const PictureQuestion& picture) {
  if (!flags.vision.empty()) return locate_model(context, text);
  if (flags.no_vision)
    return fail(ErrorCode::invalid_argument, "A picture needs the model's vision file: leave out --no-mmproj.");
  const Catalog catalog = TRY(open_catalog(context));
  const std::string chosen = TRY(chosen_model(context, text, catalog));
  const ModelName name = TRY(parse_model_name(chosen));
  const auto* short_name = std::get_if<CatalogName>(&name);
  const CatalogEntry* entry = short_name != nullptr ? catalog.find(short_name->name) : nullptr;
  if (entry == nullptr || entry->vision) {
    LocatedModel model = TRY(locate_model(context, chosen));
    if (!model.vision.empty() || holds_vision(model.path)) return model;
  }
  const Store store = TRY(open_store(context));
  const auto here = TRY(seeing_here(catalog, store));
  if (text.empty() && here.size() == 1) {
    context.console.note(fmt::format("{} sees no pictures; {} answers.", chosen, here.front()));
    return locate_model(context, here.front());
  }
  return fail(
      ErrorCode::unsupported,
      fmt::format("{0} sees no pictures. Models that do:{1}\nOr name the vision file that was published with {0}: "
                  "--mmproj FILE",
                  chosen, advice(here, catalog, store, picture)));
}

}  // namespace nanomind
