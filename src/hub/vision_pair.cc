// SPDX-License-Identifier: Apache-2.0
#include "hub/vision_pair.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <set>
#include <system_error>
#include <tuple>
#include <vector>

#include "format/gguf.h"

namespace nanomind {
namespace {

namespace fs = std::filesystem;

constexpr std::string_view kEnding = ".gguf";
constexpr std::string_view kMark = "mmproj";
constexpr std::string_view kSeparators = "-._ ";

std::string_view base_name(std::string_view path) { return path.substr(path.rfind('/') + 1); }

std::string_view folder_of(std::string_view path) {
  const size_t slash = path.rfind('/');
  return slash == std::string_view::npos ? std::string_view() : path.substr(0, slash);
}

std::string lower(std::string_view text) {
  std::string out(text);
  std::ranges::transform(out, out.begin(), [](unsigned char c) { return static_cast<char>(std::tolower(c)); });
  return out;
}

bool is_weight_type(std::string_view text) {
  constexpr std::array kPlain = {std::string_view("f16"), std::string_view("bf16"), std::string_view("f32"),
                                 std::string_view("fp16"), std::string_view("fp32")};
  if (std::ranges::find(kPlain, text) != kPlain.end() || text.starts_with("mxfp4")) return true;
  if (text.starts_with('i') || text.starts_with('t')) text.remove_prefix(1);
  return text.size() >= 2 && text[0] == 'q' && std::isdigit(static_cast<unsigned char>(text[1])) != 0;
}

// What a file's name says: "mmproj-SmolVLM-500M-Q8_0.gguf" has the words smolvlm and 500m, and the type q8_0.
struct NameParts {
  std::set<std::string> words;
  std::string type;
};

NameParts parse_name(std::string_view path) {
  std::string stem = lower(base_name(path));
  stem.resize(stem.size() - (stem.ends_with(kEnding) ? kEnding.size() : 0));
  NameParts parts;
  // A type stands at the end and has underscores of its own.
  for (size_t at = 0; at < stem.size(); ++at) {
    const bool begins = at == 0 || kSeparators.find(stem[at - 1]) != std::string_view::npos;
    if (!begins || !is_weight_type(std::string_view(stem).substr(at))) continue;
    parts.type = stem.substr(at);
    stem.resize(at);
    break;
  }
  for (size_t at = 0; at < stem.size();) {
    const size_t end = std::min(stem.find_first_of("-. ", at), stem.size());
    std::string word = stem.substr(at, end - at);
    at = end + 1;
    if (const size_t mark = word.find(kMark); mark != std::string::npos) word.erase(mark, kMark.size());
    const size_t first = word.find_first_not_of('_');
    word = first == std::string::npos ? "" : word.substr(first, word.find_last_not_of('_') - first + 1);
    if (!word.empty() && word != "model" && word != "ggml") parts.words.insert(std::move(word));
  }
  return parts;
}

// Smaller is closer: rank of the kind, words that the model lacks, words that both have (negative).
using Distance = std::tuple<int, size_t, int64_t>;

Distance distance(const NameParts& vision, const NameParts& model) {
  size_t foreign = 0;
  int64_t shared = 0;
  for (const std::string& word : vision.words) {
    if (model.words.contains(word)) {
      ++shared;
    } else {
      ++foreign;
    }
  }
  const bool names_no_model = vision.words.empty();
  return {names_no_model ? 1 : foreign == 0 ? 0 : 2, foreign, -shared};
}

size_t type_rank(const std::string& type, const std::string& wanted) {
  if (!type.empty() && type == wanted) return 0;
  constexpr std::array kOrder = {std::string_view("q8_0"), std::string_view("f16"), std::string_view("bf16"),
                                 std::string_view("f32")};
  return 1 + static_cast<size_t>(std::ranges::find(kOrder, type) - kOrder.begin());
}

// The best of one folder.
std::optional<std::string> choose_in_folder(const NameParts& model, std::string_view folder,
                                            std::span<const std::string> files) {
  std::vector<NameParts> others;
  for (const std::string& file : files) {
    if (folder_of(file) == folder && lower(file).ends_with(kEnding) && !is_vision_file(file))
      others.push_back(parse_name(file));
  }
  std::optional<std::string> best;
  std::tuple<Distance, size_t, std::string> best_key;
  for (const std::string& file : files) {
    if (folder_of(file) != folder || !is_vision_file(file)) continue;
    const NameParts vision = parse_name(file);
    const Distance mine = distance(vision, model);
    if (std::ranges::any_of(others, [&](const NameParts& other) { return distance(vision, other) < mine; })) continue;
    std::tuple key{mine, type_rank(vision.type, model.type), file};
    if (best && best_key <= key) continue;
    best = file;
    best_key = std::move(key);
  }
  return best;
}

}  // namespace

bool is_vision_file(std::string_view path) {
  const std::string name = lower(base_name(path));
  return name.ends_with(kEnding) && name.find(kMark) != std::string::npos;
}

std::optional<std::string> choose_vision_file(std::string_view model, std::span<const std::string> files) {
  const NameParts parts = parse_name(model);
  for (std::string_view folder = folder_of(model);; folder = folder_of(folder)) {
    if (auto found = choose_in_folder(parts, folder, files)) return found;
    if (folder.empty()) return std::nullopt;
  }
}

fs::path vision_file_beside(const fs::path& model) {
  const fs::path folder = model.has_parent_path() ? model.parent_path() : fs::path(".");
  std::vector<std::string> names;
  std::error_code error;
  fs::directory_iterator it(folder, error);
  for (const fs::directory_iterator end; !error && it != end; it.increment(error)) {
    std::error_code ignored;
    if (it->is_regular_file(ignored)) names.push_back(it->path().filename().string());
  }
  const auto chosen = choose_vision_file(model.filename().string(), names);
  return chosen ? folder / *chosen : fs::path();
}

bool holds_vision(const fs::path& model) {
  const auto file = GgufFile::open(model);
  return file && (file->find("clip.projector_type") != nullptr || file->find("clip.vision.projector_type") != nullptr);
}

}  // namespace nanomind
