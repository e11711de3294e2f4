// SPDX-License-Identifier: Apache-2.0
#include "hub/checkpoint_repo.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cctype>

namespace nanomind {
namespace {

constexpr std::string_view kConfig = "config.json", kPictures = "preprocessor_config.json";

// What convert/ reads besides weights; paths as publishers have them.
constexpr std::array kRead = {kConfig,
                              kPictures,
                              std::string_view("processor_config.json"),
                              std::string_view("generation_config.json"),
                              std::string_view("tokenizer.json"),
                              std::string_view("tokenizer.model"),
                              std::string_view("tokenizer_config.json"),
                              std::string_view("special_tokens_map.json"),
                              std::string_view("added_tokens.json"),
                              std::string_view("chat_template.jinja"),
                              std::string_view("chat_template.json"),
                              std::string_view("model.safetensors.index.json"),
                              std::string_view("modules.json"),
                              std::string_view("1_Pooling/config.json")};

bool is_weights(std::string_view path) {
  return path.find('/') == std::string_view::npos && path.starts_with("model") && path.ends_with(".safetensors");
}

bool is_read(const HubFile& file) {
  return is_weights(file.path) || std::ranges::find(kRead, std::string_view(file.path)) != kRead.end();
}

bool is_checkpoint(const std::vector<HubFile>& files) {
  return std::ranges::find(files, kConfig, &HubFile::path) != files.end() &&
         std::ranges::any_of(files, is_weights, &HubFile::path) &&
         std::ranges::none_of(files, is_model_file, &HubFile::path);
}

Result<DType> converted_type(const HubName& name) {
  std::string type = name.quant.empty() ? "Q8_0" : name.quant;
  std::ranges::transform(type, type.begin(), [](unsigned char c) { return static_cast<char>(std::toupper(c)); });
  for (const DType dtype : {DType::f32, DType::f16, DType::bf16, DType::q8_0}) {
    if (type == traits(dtype).name) return dtype;
  }
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("{0} has safetensors, which become F32, F16, BF16 or Q8_0 when they are pulled, not {1}. Pull "
                  "{0}:F16, and make smaller weights of it with `nanomind quantize`.",
                  name.repo, name.quant));
}

}  // namespace

bool lists_checkpoint(std::string_view listing_json) {
  const auto files = parse_hub_listing(listing_json, "");
  return files && is_checkpoint(*files);
}

Result<std::vector<CheckpointFile>> checkpoint_files(std::string_view listing_json, std::string_view repo) {
  const std::vector<HubFile> listed = TRY(parse_hub_listing(listing_json, repo));
  if (!is_checkpoint(listed)) {
    return fail(ErrorCode::not_found,
                fmt::format("{} has no model in safetensors ({} and model*.safetensors).", repo, kConfig));
  }
  std::vector<CheckpointFile> files;
  for (const HubFile& file : listed) {
    if (is_read(file)) files.push_back({.name = file.path, .sha256 = file.sha256, .bytes = file.bytes});
  }
  return files;
}

Result<CheckpointSource> checkpoint_source(std::string_view listing_json, const HubName& name) {
  return CheckpointSource{.title = name.repo.substr(name.repo.rfind('/') + 1),
                          .dtype = TRY(converted_type(name)),
                          .repo = name.repo,
                          .files = TRY(checkpoint_files(listing_json, name.repo))};
}

bool sees(const std::vector<CheckpointFile>& files) {
  return std::ranges::find(files, kPictures, &CheckpointFile::name) != files.end();
}

}  // namespace nanomind
