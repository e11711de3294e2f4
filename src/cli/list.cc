// SPDX-License-Identifier: Apache-2.0
// nanomind list: the models that are here, and those of the catalog that could be.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/quantity.h"

namespace nanomind {
namespace {

struct Row {
  std::string name;
  uint64_t bytes = 0;
  std::string path;  // empty: not here
  std::string architecture;
  std::string licence;
  std::string summary;
};

Result<std::vector<Row>> collect(const Context& context) {
  const Catalog catalog = TRY(open_catalog(context));
  const Store store = TRY(open_store(context));
  std::vector<Row> rows;
  for (const StoredModel& model : TRY(store.list())) {
    const CatalogEntry* entry = catalog.find(model.name);
    rows.push_back({.name = model.name,
                    .bytes = model.bytes,
                    .path = model.path.string(),
                    .architecture = model.architecture,
                    .licence = model.licence,
                    .summary = entry != nullptr ? entry->summary : model.source});
  }
  for (const CatalogEntry& entry : catalog.entries()) {
    if (std::ranges::find(rows, entry.name, &Row::name) != rows.end()) continue;
    rows.push_back({.name = entry.name,
                    .bytes = entry.bytes,
                    .path = {},
                    .architecture = entry.architecture,
                    .licence = entry.licence,
                    .summary = entry.summary});
  }
  return rows;
}

std::string to_json(const std::vector<Row>& rows) {
  nlohmann::ordered_json json = nlohmann::ordered_json::array();
  for (const Row& row : rows) {
    json.push_back({{"name", row.name},
                    {"bytes", row.bytes},
                    {"path", row.path.empty() ? nlohmann::ordered_json() : nlohmann::ordered_json(row.path)},
                    {"architecture", row.architecture},
                    {"licence", row.licence},
                    {"summary", row.summary}});
  }
  return json.dump(2) + "\n";
}

std::string to_table(const std::vector<Row>& rows) {
  size_t width = 4;
  for (const Row& row : rows) width = std::max(width, row.name.size());
  std::string table = fmt::format("{:<{}}  {:>8}  HERE  ABOUT\n", "NAME", width, "SIZE");
  for (const Row& row : rows) {
    table += fmt::format("{:<{}}  {:>8}  {:<4}  {}\n", row.name, width, format_bytes(row.bytes),
                         row.path.empty() ? "no" : "yes", row.summary);
  }
  return table;
}

}  // namespace

void add_list(CLI::App& app, Context& context, Action& action) {
  auto json = std::make_shared<bool>(false);
  CLI::App* command = app.add_subcommand("list", "Show the models that are here, and those of the catalog");
  command->add_flag("--json", *json, "print a JSON list");
  command->callback([&context, &action, json] {
    action = [&context, json]() -> Result<void> {
      const auto rows = TRY(collect(context));
      context.out.write(*json ? to_json(rows) : to_table(rows));
      return {};
    };
  });
}

}  // namespace nanomind
