// SPDX-License-Identifier: Apache-2.0
#include "convert/pooling.h"

#include <fmt/format.h>

#include <optional>

namespace nanomind {
namespace {

// The folder of the pooling module; the usual one where no list names it.
Result<std::filesystem::path> pooling_folder(const Checkpoint& checkpoint) {
  const auto list = checkpoint.folder / "modules.json";
  std::filesystem::path folder = "1_Pooling";
  const auto text = TRY(read_optional_text(list));
  if (!text) return folder;
  const auto modules = parse_json(*text);
  if (!modules || !modules->is_array())
    return fail(ErrorCode::corrupt, fmt::format("{} is no JSON list.", list.string()));
  for (const Json& module : *modules) {
    const std::string type = json_text(module, "type").value_or("");
    const std::string path = json_text(module, "path").value_or("");
    const bool is_inside = !path.empty() && path.find("..") == std::string::npos && path.front() != '/';
    if (type.ends_with("Pooling") && is_inside) folder = path;
    if (type.ends_with("Dense")) {
      return fail(ErrorCode::unsupported,
                  fmt::format("{} has a layer after the pooling, {}, which GGUF files of this architecture cannot say.",
                              list.string(), type));
    }
  }
  return folder;
}

// Nothing of a model without a pooling module.
Result<std::optional<Pooling>> read_pooling(const Checkpoint& checkpoint) {
  const auto folder = TRY(pooling_folder(checkpoint));
  const Config config = TRY(read_optional_config(checkpoint.folder / folder / "config.json"));
  if (config.json().empty()) return std::nullopt;
  const std::string mode = config.text_or("pooling_mode", "");  // of newer files
  if (config.flag_or("pooling_mode_mean_tokens", mode == "mean")) return Pooling::mean;
  if (config.flag_or("pooling_mode_cls_token", mode == "cls")) return Pooling::first;
  if (config.flag_or("pooling_mode_lasttoken", mode == "lasttoken")) return Pooling::last;
  return fail(ErrorCode::unsupported, fmt::format("{} asks for a pooling that is neither the mean nor the first nor "
                                                  "the last token.",
                                                  config.subject()));
}

}  // namespace

Result<void> describe_pooling(const Checkpoint& checkpoint, FamilyKeys& keys) {
  if (const auto pooling = TRY(read_pooling(checkpoint))) add_pooling(*pooling, keys);
  return {};
}

void add_pooling(Pooling pooling, FamilyKeys& keys) { keys.count("pooling_type", static_cast<int64_t>(pooling)); }

bool is_classifier(const Checkpoint& checkpoint) {
  const auto classes = checkpoint.config.texts("architectures");
  return !classes.empty() && classes.front().ends_with("ForSequenceClassification");
}

}  // namespace nanomind
