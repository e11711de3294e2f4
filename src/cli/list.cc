// SPDX-License-Identifier: Apache-2.0
// nanomind list: the models that are here, and those of the catalog that could be; the architectures that run.
#include <fmt/format.h>

#include <algorithm>
#include <iterator>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>

#include "cli/commands.h"
#include "cli/quantity.h"
#include "hub/pull.h"
#include "models/registry.h"

namespace nanomind {
namespace {

struct Row {
  std::string name;
  uint64_t bytes = 0;  // 0: not known before it is here
  std::string path;    // empty: not here
  std::string architecture;
  std::string licence;
  std::string summary;
  bool sees = false;
};

uint64_t bytes_of(const StoredModel& model) {
  std::error_code error;
  const uint64_t vision = model.vision.empty() ? 0 : std::filesystem::file_size(model.vision, error);
  return model.bytes + (error ? 0 : vision);
}

Row row_of(const CatalogEntry& entry, const StoredModel* stored) {
  return {.name = entry.name,
          .bytes = stored != nullptr ? bytes_of(*stored) : entry.total_bytes(),
          .path = stored != nullptr ? stored->path.string() : "",
          .architecture = entry.architecture,
          .licence = entry.licence,
          .summary = entry.summary,
          .sees = entry.vision.has_value()};
}

// What is here comes first. Models of the catalog that have a file in common are both here when it is.
Result<std::vector<Row>> collect(const Context& context) {
  const Catalog catalog = TRY(open_catalog(context));
  const Store store = TRY(open_store(context));
  std::vector<Row> rows, absent;
  std::set<std::string> known;  // paths
  for (const CatalogEntry& entry : catalog.entries()) {
    const auto stored = TRY(find_stored(CatalogName{entry.name}, catalog, store));
    if (stored) known.insert(stored->path.string());
    (stored ? rows : absent).push_back(row_of(entry, stored ? &*stored : nullptr));
  }
  for (const StoredModel& model : TRY(store.list())) {
    if (known.contains(model.path.string())) continue;
    rows.push_back({.name = model.name,
                    .bytes = bytes_of(model),
                    .path = model.path.string(),
                    .architecture = model.architecture,
                    .licence = model.licence,
                    .summary = model.source,
                    .sees = !model.vision.empty()});
  }
  std::ranges::sort(rows, {}, &Row::name);
  std::ranges::move(absent, std::back_inserter(rows));
  return rows;
}

std::string to_json(const std::vector<Row>& rows) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    json.push_back({{"name", row.name},
                    {"bytes", row.bytes == 0 ? nlohmann::ordered_json() : nlohmann::ordered_json(row.bytes)},
                    {"path", row.path.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.path)},
                    {"architecture", row.architecture},
                    {"licence", row.licence},
                    {"summary", row.summary},
                    {"sees_pictures", row.sees}});
  }
  return json.dump(2) + "\n";
}

std::string to_table(const std::vector<Row>& rows) {
  size_t width = 4;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  std::string table = fmt::format("{:<{}}  {:>8}  HERE  ABOUT\n", "NAME", width, "SIZE");
  for (const Row& row : rows) {
    table += fmt::format("{:<{}}  {:>8}  {:<4}  {}\n", row.name, width, row.bytes == 0 ? "?" : format_bytes(row.bytes),
                         row.path.empty() ? "no" : "yes", row.summary);
  }
  return table;
}

// As docs/models.md has it.
std::string architecture_table() {
  std::string table = "| architecture | models | differs from `llama` by |\n|---|---|---|\n";
  for (const ArchitectureInfo& a : architectures())
    table += fmt::format("| `{}` | {} | {} |\n", a.name, a.models, a.difference);
  return table;
}

std::string architecture_json() {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const ArchitectureInfo& a : architectures())
    json.push_back({{"architecture", a.name}, {"models", a.models}, {"difference", a.difference}});
  return json.dump(2) + "\n";
}

}  // namespace

void add_list(CLI::App& app, Context& context, Action& action) {
  struct Flags {
    bool json = false, architectures = false;
  };
  auto flags = std::make_shared<Flags>();
  CLI::App* command = app.add_subcommand("list", "Show the models that are here, and those of the catalog");
  command->add_flag("--json", flags->json, "print a JSON list");
  command->add_flag("--architectures", flags->architectures, "show the kinds of models that run instead");
  command->callback([&context, &action, flags] {
    action = [&context, flags]() -> Result<void> {
      if (flags->architectures) {
        context.out.write(flags->json ? architecture_json() : architecture_table());
        return {};
      }
      const auto rows = TRY(collect(context));
      context.out.write(flags->json ? to_json(rows) : to_table(rows));
      return {};
    };
  });
}

}  // namespace nanomind
