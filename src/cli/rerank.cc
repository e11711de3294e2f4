// SPDX-License-Identifier: Apache-2.0
// nanomind rerank: documents in the order in which they answer a query.
#include <fmt/format.h>

#include <algorithm>
#include <memory>
#include <nlohmann/json.hpp>

#include "cli/commands.h"
#include "cli/models.h"

namespace nanomind {
namespace {

struct RerankFlags {
  std::string model;
  std::string query;
  std::vector<std::string> documents;
  int top = 0;
  bool json = false;
  EngineFlags engine;
};

struct Scored {
  size_t index = 0;
  float score = 0;
};

std::string print(const RerankFlags& flags, const std::string& model, const std::vector<Scored>& ranking) {
  std::string out;
  nlohmann::ordered_json results = nlohmann::ordered_json::array();
  for (const Scored& entry : ranking) {
    out += fmt::format("{:.4f}\t{}\t{}\n", entry.score, entry.index, flags.documents[entry.index]);
    results.push_back({{"index", entry.index}, {"relevance_score", entry.score}});
  }
  if (!flags.json) return out;
  return nlohmann::ordered_json{{"model", model}, {"object", "list"}, {"results", std::move(results)}}.dump() + "\n";
}

Result<void> run(const Context& context, const RerankFlags& flags) {
  const LocatedModel model = TRY(locate_model(context, flags.model));
  const auto engine = TRY(load_engine(context, model, flags.engine));
  std::vector<Scored> ranking;
  for (size_t i = 0; i < flags.documents.size(); ++i)
    ranking.push_back({.index = i, .score = TRY(engine->rank(flags.query, flags.documents[i]))});
  std::ranges::stable_sort(ranking, std::ranges::greater(), &Scored::score);
  if (flags.top > 0) ranking.resize(std::min(ranking.size(), static_cast<size_t>(flags.top)));
  context.out.write(print(flags, model.name, ranking));
  return {};
}

}  // namespace

void add_rerank(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<RerankFlags>();
  CLI::App* command = app.add_subcommand("rerank", "Print documents in the order in which they answer a query");
  command->add_option("model", flags->model, "model that ranks")->option_text("MODEL")->required();
  command->add_option("document", flags->documents, "documents")->option_text("DOC...")->required();
  command->add_option("--query", flags->query, "what is asked")->required();
  command->add_option("--top", flags->top, "print so many only")->check(CLI::PositiveNumber);
  command->add_flag("--json", flags->json, "print JSON as rerank servers do");
  add_engine_options(*command, flags->engine, context.settings, ContextOption::offered);
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
