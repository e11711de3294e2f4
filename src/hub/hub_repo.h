// SPDX-License-Identifier: Apache-2.0
// Repositories of the hub (Hugging Face, or a mirror with the same interface): which file of `org/repo[:quant]` is
// meant, and its address. Interface: GET {endpoint}/api/models/{repo}/tree/{revision}?recursive=true and
// {endpoint}/{repo}/resolve/{revision}/{file}.
#pragma once

#include <cstdint>
#include <optional>
#include <stop_token>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "hub/http.h"
#include "hub/model_name.h"

namespace nanomind {

struct HubOptions {
  std::string endpoint = "https://huggingface.co";  // HF_ENDPOINT
  std::string token;                                // HF_TOKEN; empty: ask without
};

struct HubFile {
  std::string path;  // inside the repository
  uint64_t bytes = 0;
  std::string sha256;  // empty when the listing does not say
};

struct HubChoice {
  HubFile model;
  std::optional<HubFile> vision;  // what makes it see, if the repository has it
};

// The hub's JSON listing of a repository's files at a revision.
Result<std::string> list_hub_files(const HttpClient& http, const HubOptions& hub, std::string_view repo,
                                   std::string_view revision, std::stop_token stop);

// Its files, but for those whose path leads elsewhere. Errors: network for a listing that is none.
Result<std::vector<HubFile>> parse_hub_listing(std::string_view listing_json, std::string_view repo);

// Whether a file of this path is a model: GGUF, and none of what goes with some.
bool is_model_file(std::string_view path);

// Chooses from the JSON listing: the wanted quantisation or file; without one Q4_K_M, then Q8_0, then the first model.
// Vision files, importance matrices and draft heads are not models; which vision file goes with the model is told by
// hub/vision_pair.h. Errors: not_found with what there is, unsupported for split files, network for a listing that is
// none.
Result<HubChoice> choose_hub_files(std::string_view listing_json, const HubName& name);

std::string hub_file_url(std::string_view endpoint, std::string_view repo, std::string_view revision,
                         std::string_view file);

}  // namespace nanomind
