// SPDX-License-Identifier: Apache-2.0
// Brings a model into the store, with the file that makes it see if it has one: tries the sources in order, checks room
// first and the hash afterwards, and goes on where an earlier attempt stopped. A model that is already there is found
// without any connection. A file that several models have is kept as long as one of them is.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <optional>
#include <stop_token>
#include <string>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "hub/catalog.h"
#include "hub/http.h"
#include "hub/hub_repo.h"
#include "hub/model_name.h"
#include "hub/python_package.h"
#include "hub/store.h"

namespace nanomind {

enum class PullStage {
  waiting,
  downloading,
  copying,
  verifying
};  // waiting: another program is pulling the same model

struct PullProgress {
  PullStage stage = PullStage::downloading;
  uint64_t done = 0;   // bytes
  uint64_t total = 0;  // 0: not known
  std::string source;  // for people
};

struct PullOptions {
  HubOptions hub;
  HttpOptions http;
  PipOptions pip;
  std::vector<std::filesystem::path> bundled_folders;  // where files of BundledSource may be
  std::function<void(const PullProgress&)> progress;   // from the calling thread; may be empty
  Log log;                                             // sources that failed, notices about room
  // What is here already is hashed again: only if it changed since the last time, by size and time, or always, which
  // also finds what a bad disk did.
  enum class Check { if_changed, always } check = Check::if_changed;
  std::stop_token stop;  // on request: cancelled, and what has come is kept
  // Free bytes for this user on the disk of a folder; replaced in tests.
  std::function<Result<uint64_t>(const std::filesystem::path&)> free_space;
};

struct PulledModel {
  StoredModel model;
  bool already_there = false;  // with its vision file
};

struct RemovedModel {
  uint64_t bytes = 0;    // set free
  std::string kept_for;  // another model that needs the language model's file, which stays; mostly empty
};

// Errors: not_found, network, corrupt (the bytes are not those that were promised, or no GGUF), no_space, io,
// cancelled. When all sources fail the message says why for each.
Result<PulledModel> pull(const ModelName& name, const Catalog& catalog, const Store& store, const PullOptions& options);

// The stored model that `name` stands for, without any connection; empty when it, or its vision file, has to be pulled
// first.
Result<std::optional<StoredModel>> find_stored(const ModelName& name, const Catalog& catalog, const Store& store);

// Removes the stored model that `name` stands for with its side files and unfinished downloads, but for files that
// another model has too. not_found when there is nothing of it.
Result<RemovedModel> remove_stored(const ModelName& name, const Catalog& catalog, const Store& store);

}  // namespace nanomind
