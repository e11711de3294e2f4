// SPDX-License-Identifier: Apache-2.0
#include "cli/models.h"

#include <fmt/format.h>

#include <algorithm>
#include <vector>

#include "cli/interrupt.h"
#include "cli/quantity.h"
#include "format/gguf.h"
#include "hub/vision_pair.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

bool is_file(const fs::path& path) {
  std::error_code error;
  return fs::is_regular_file(path, error);
}

const char* label(PullStage stage) {
  switch (stage) {
    case PullStage::waiting: return "Waiting";
    case PullStage::downloading: return "Downloading";
    case PullStage::copying: return "Copying";
    case PullStage::verifying: return "Checking";
  }
  return "";
}

fs::path packed_folder(const Context& context, const fs::path& otherwise) {
  const std::string& chosen = context.settings.packed_folder;
  return chosen.empty() ? otherwise : expand_home(chosen, context.folders.home);
}

LocatedModel located(const Context& context, const StoredModel& model, const Store& store) {
  // What was put into the store by hand has no record that names its vision file.
  const bool by_hand = model.sha256.empty() && model.vision.empty();
  return {.name = model.name,
          .path = model.path,
          .packed_folder = packed_folder(context, store.packed_dir()),
          .vision = by_hand ? vision_file_beside(model.path) : model.vision};
}

LocatedModel located(const Context& context, const fs::path& path) {
  return {.name = path.stem().string(),
          .path = path,
          .packed_folder = packed_folder(context, {}),
          .vision = vision_file_beside(path)};
}

// The folders where an installation has its files: beside the program in a build, in share/ of its prefix otherwise.
std::vector<fs::path> bundled_folders() {
  std::error_code error;
  const fs::path program = fs::read_symlink("/proc/self/exe", error);
  if (error) return {};
  const fs::path folder = program.parent_path();
  return {folder / "share/nanomind", folder.parent_path() / "share/nanomind"};
}

// Vision files look like models to a person who has a folder of them.
Result<void> check_is_model(const LocatedModel& model) {
  const auto file = GgufFile::open(model.path);
  if (!file || file->get_string("general.architecture").value_or("") != "clip") return {};
  return fail(
      ErrorCode::invalid_argument,
      fmt::format("{0} is a vision file: it makes a model see, and answers nothing itself. Name the model that it "
                  "was published with: nanomind run MODEL --mmproj {0}",
                  model.path.string()));
}

void announce(const Context& context, const ModelName& name, const Catalog& catalog, const Store& store) {
  const auto* short_name = std::get_if<CatalogName>(&name);
  const CatalogEntry* entry = short_name != nullptr ? catalog.find(short_name->name) : nullptr;
  if (entry != nullptr) {
    context.console.note(fmt::format("Pulling {} ({}, licence {}) into {}", entry->name,
                                     format_bytes(missing_bytes(*entry, store)), entry->licence,
                                     store.root().string()));
  } else {
    context.console.note(fmt::format("Pulling {} into {}", to_string(name), store.root().string()));
  }
}

}  // namespace

Result<std::string> chosen_model(const Context& context, const std::string& text, const Catalog& catalog) {
  if (!text.empty()) return text;
  if (!context.settings.model.empty()) return context.settings.model;
  if (const CatalogEntry* entry = catalog.default_entry()) return entry->name;
  return fail(ErrorCode::invalid_argument,
              "No model was named and the catalog has no default. Name one, or set `model` in config.toml.");
}

uint64_t missing_bytes(const CatalogEntry& entry, const Store& store) {
  const auto missing = [&](const std::string& file, uint64_t bytes) {
    std::error_code error;
    const uint64_t here = fs::file_size(store.path_of(file), error);
    return !error && (bytes == 0 || here == bytes) ? 0 : bytes;
  };
  return missing(entry.file, entry.bytes) + (entry.vision ? missing(entry.vision->file, entry.vision->bytes) : 0);
}

Result<PulledModel> pull_model(const Context& context, const ModelName& name, const Catalog& catalog,
                               const Store& store, PullOptions::Check check) {
  const StoppingInterrupt interrupt;
  PullOptions options;
  options.log = context.log;
  options.stop = interrupt.token();
  options.check = check;
  if (const std::string endpoint = environment("HF_ENDPOINT"); !endpoint.empty()) options.hub.endpoint = endpoint;
  options.hub.token = environment("HF_TOKEN");
  options.bundled_folders = bundled_folders();
  options.progress = [&](const PullProgress& progress) {
    context.console.progress(fmt::format("{} ({})", label(progress.stage), progress.source), progress.done,
                             progress.total);
  };
  auto pulled = pull(name, catalog, store, options);
  context.console.end_progress();
  if (interrupt.requested() && !pulled) {
    context.console.note(
        fmt::format("Stopped. What has come is kept; `nanomind pull {}` goes on from there.", to_string(name)));
    die_of(SIGINT);
  }
  return pulled;
}

Result<LocatedModel> locate_model(const Context& context, const std::string& text) {
  const Catalog catalog = TRY(open_catalog(context));
  const std::string typed = TRY(chosen_model(context, text, catalog));
  ModelName name = TRY(parse_model_name(typed));
  const auto* path = std::get_if<PathName>(&name);
  if (path != nullptr) {
    const fs::path file = expand_home(path->path.string(), context.folders.home);
    if (is_file(file)) return located(context, file);
  }
  const Store store = TRY(open_store(context));
  if (const auto model = TRY(find_stored(name, catalog, store))) return located(context, *model, store);
  if (path != nullptr)
    return fail(ErrorCode::not_found,
                fmt::format("There is no file {}. Check the path, or name a model of `nanomind list`.", typed));
  if (const auto* short_name = std::get_if<CatalogName>(&name);
      short_name != nullptr && catalog.find(short_name->name) == nullptr) {
    if (is_file(typed)) return located(context, fs::path(typed));
    return std::unexpected(catalog.unknown(short_name->name));
  }
  announce(context, name, catalog, store);
  return located(context, TRY(pull_model(context, name, catalog, store)).model, store);
}

Result<bool> names_model(const Context& context, const std::string& text) {
  if (is_file(expand_home(text, context.folders.home))) return true;
  // The parser is generous with path-like text, so that a question that begins with "/" needs more than that to be a
  // path.
  const bool has_space = text.find_first_of(" \t\n") != std::string::npos;
  const auto name = parse_model_name(text);
  if (!name || has_space) return false;
  const auto* short_name = std::get_if<CatalogName>(&*name);
  if (short_name == nullptr) return true;
  const Catalog catalog = TRY(open_catalog(context));
  if (catalog.find(short_name->name) != nullptr) return true;
  std::vector<StoredModel> stored;
  if (const auto store = open_store(context)) stored = store->list().value_or(std::vector<StoredModel>());
  std::vector<std::string_view> names;
  for (const StoredModel& model : stored) names.push_back(model.name);
  if (std::ranges::find(names, short_name->name) != names.end()) return true;
  for (const CatalogEntry& entry : catalog.entries()) names.push_back(entry.name);
  if (const auto close = closest_name(text, names)) {
    return fail(ErrorCode::invalid_argument, fmt::format("There is no model '{0}'; did you mean '{1}'? To ask it as a "
                                                         "question, name the model too: nanomind run {1} \"{0}\"",
                                                         text, *close));
  }
  return false;
}

void use_vision(const LocatedModel& model, EngineFlags& flags) {
  if (!flags.vision.empty() || flags.no_vision) return;
  flags.vision = (holds_vision(model.path) ? model.path : model.vision).string();
}

Result<std::unique_ptr<Engine>> load_engine(const Context& context, const LocatedModel& model,
                                            const EngineFlags& flags) {
  EngineOptions options{.model = model.path,
                        .packed_folder = model.packed_folder,
                        .device = flags.device,
                        .isa = flags.isa,
                        .threads = flags.threads,
                        .decode_threads = context.settings.decode_threads,
                        .prefill_threads = context.settings.prefill_threads,
                        .state_folder = context.folders.state,
                        .context = flags.context,
                        .outputs = flags.outputs,
                        .memory_bytes = context.settings.memory_bytes,
                        .log = context.log};
  if (!flags.vision.empty()) options.vision = expand_home(flags.vision, context.folders.home);
  if (flags.lean) options.vision_bricks = VisionBricks::leave;
  options.picture_cache_bytes = context.settings.picture_cache_bytes;
  if (!flags.no_picture_cache && options.picture_cache_bytes > 0 && !context.folders.cache.empty())
    options.picture_cache = context.folders.cache / "pictures";
  options.kv_type = TRY(parse_kv_type(flags.kv_type));
  if (flags.precision == "high") options.precision = PromptPrecision::high;
  if (!flags.memory.empty()) {
    auto bytes = parse_bytes(flags.memory);
    if (!bytes) return fail(ErrorCode::invalid_argument, "--memory: " + bytes.error().message);
    options.memory_bytes = *bytes;
  }
  auto engine = Engine::load(options);
  if (!engine) TRY(check_is_model(model));
  return engine;
}

}  // namespace nanomind
