// SPDX-License-Identifier: Apache-2.0
// Models that see come as two files: the language model, and beside it a vision file with "mmproj" in its name. Which
// belong together is told by folder and name alone, in the rules that llama.cpp and the hub's repositories follow.
#pragma once

#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>

namespace nanomind {

// Whether a file of this name makes a model see, instead of being a model.
bool is_vision_file(std::string_view path);

// Which of `files` (paths with '/', of models and vision files alike) makes the model `model` see. The nearest folder
// comes first: the model's own, then those above it. In there the closest name: one without words that the model's
// lacks, then one that names no model ("mmproj-F16.gguf"), then the one with the fewest other words. A file that is
// closer to another model of its folder is left to that. Of several weight types the model's own is taken, then Q8_0,
// F16, BF16, F32, others.
std::optional<std::string> choose_vision_file(std::string_view model, std::span<const std::string> files);

// The same among the files beside `model`; empty when there is none.
std::filesystem::path vision_file_beside(const std::filesystem::path& model);

// Whether the model's own file has a tower and a projector (`nanomind join`). Reads its header.
bool holds_vision(const std::filesystem::path& model);

}  // namespace nanomind
