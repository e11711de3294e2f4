// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <array>

#include "convert/tensor_changes.h"
#include "convert/vision_family.h"

namespace nanomind {
namespace {

constexpr std::array kFamilies{&kGemma3Vision, &kIdefics3Vision, &kLlavaOnevision, &kMiniCpmVision};

// What SigLIP and those that are built like it call alike.
constexpr NameRule kSiglipNames[] = {
    {"embeddings.patch_embedding", "v.patch_embd"},
    {"embeddings.position_embedding", "v.position_embd"},
    {"encoder.layers.#.layer_norm1", "v.blk.#.ln1"},
    {"encoder.layers.#.layer_norm2", "v.blk.#.ln2"},
    {"encoder.layers.#.self_attn.q_proj", "v.blk.#.attn_q"},
    {"encoder.layers.#.self_attn.k_proj", "v.blk.#.attn_k"},
    {"encoder.layers.#.self_attn.v_proj", "v.blk.#.attn_v"},
    {"encoder.layers.#.self_attn.out_proj", "v.blk.#.attn_out"},
    {"encoder.layers.#.mlp.fc1", "v.blk.#.ffn_up"},
    {"encoder.layers.#.mlp.fc2", "v.blk.#.ffn_down"},
    {"post_layernorm", "v.post_ln"},
    {"embeddings.position_ids", "", Change::leave_out},
    // What makes one vector of a picture.
    {"head.probe", "", Change::leave_out},
    {"head.attention.in_proj_weight", "", Change::leave_out},
    {"head.attention.in_proj_bias", "", Change::leave_out},
    {"head.attention.out_proj", "", Change::leave_out},
    {"head.layernorm", "", Change::leave_out},
    {"head.mlp.fc1", "", Change::leave_out},
    {"head.mlp.fc2", "", Change::leave_out},
};

std::string_view local_name(std::string_view name) {
  constexpr std::string_view kOuter[] = {"model.", "vision_tower.", "vision_model."};
  return without_prefixes(name, kOuter);
}

Precision precision_of(const OutputTensor& tensor, const VisionFamily& family) {
  if (tensor.is_vector() || tensor.name == "v.position_embd.weight") return Precision::exact;
  if (tensor.name.starts_with("v.patch_embd.")) return family.filters;
  return tensor.precision;
}

Result<void> add_tensors(const VisionHalf& half, const VisionFamily& family, std::vector<OutputTensor>& tensors) {
  for (const auto& [full_name, source] : half.checkpoint.weights.tensors()) {
    if (!is_of_vision(full_name)) continue;
    auto found = find_rule(family.names, local_name(full_name));
    if (!found) found = find_rule(kSiglipNames, local_name(full_name));
    if (!found) return unknown_tensor(full_name, half.checkpoint.whole.text_or("model_type", ""));
    if (found->rule->change == Change::leave_out) continue;
    const std::string target = found->target();
    if (family.is_unused != nullptr && family.is_unused(half, target)) continue;
    OutputTensor tensor = TRY(whole_tensor(target, *source));
    TRY(apply_change(found->rule->change, half.tower, tensor));
    tensors.push_back(std::move(tensor));
  }
  return {};
}

void add_tower_keys(const TowerSettings& tower, FamilyKeys& keys) {
  keys.count("vision.image_size", tower.image_size);
  keys.count("vision.patch_size", tower.patch_size);
  keys.count("vision.embedding_length", tower.width);
  keys.count("vision.feed_forward_length", tower.feed_forward);
  keys.count("vision.block_count", tower.blocks);
  keys.count("vision.attention.head_count", tower.heads);
  keys.number("vision.attention.layer_norm_epsilon", tower.eps);
}

Result<void> add_colours(const Config& pictures, FamilyKeys& keys) {
  for (const auto& [setting, key] : {std::pair{"image_mean", "vision.image_mean"}, {"image_std", "vision.image_std"}}) {
    const std::vector<double> values = pictures.numbers(setting);
    if (values.size() != 3) {
      return fail(ErrorCode::corrupt,
                  fmt::format("{} has no list \"{}\" of three numbers.", pictures.subject(), setting));
    }
    keys.add(key, std::vector<float>(values.begin(), values.end()));
  }
  return {};
}

// That tensors have the sizes which the settings say, so that no default stands for what a publisher left out.
Result<void> check_tower(const TowerSettings& tower, std::span<const OutputTensor> tensors) {
  int64_t blocks = 0;
  for (const OutputTensor& tensor : tensors) {
    const bool is_filter = tensor.name == "v.patch_embd.weight";
    const bool is_up = tensor.name.starts_with("v.blk.") && tensor.name.ends_with(".ffn_up.weight");
    if (is_up) ++blocks;
    const Shape expected =
        is_filter ? Shape{tower.width, 3, tower.patch_size, tower.patch_size} : Shape{tower.feed_forward, tower.width};
    if ((!is_filter && !is_up) || tensor.shape == expected) continue;
    return fail(ErrorCode::corrupt, fmt::format("The tensor for {} is {}, but config.json says {}.", tensor.name,
                                                to_string(tensor.shape), to_string(expected)));
  }
  if (blocks == tower.blocks) return {};
  return fail(ErrorCode::corrupt,
              fmt::format("The vision tower has {} blocks, but config.json says {}.", blocks, tower.blocks));
}

}  // namespace

Result<VisionHalf> VisionHalf::open(const Checkpoint& checkpoint, const char* class_settings) {
  const auto file = checkpoint.folder / "preprocessor_config.json";
  Json pictures = TRY(read_optional_config(file)).json();
  const Config processor = TRY(read_optional_config(checkpoint.folder / "processor_config.json"));
  pictures.update(processor.json());
  pictures.update(processor.part("image_processor").json());
  return VisionHalf{.checkpoint = checkpoint,
                    .tower = checkpoint.whole.part("vision_config").over(class_settings),
                    .pictures = Config(std::move(pictures), file.string())};
}

bool has_vision(const Checkpoint& checkpoint) {
  return checkpoint.whole.find("vision_config") != nullptr &&
         std::ranges::any_of(checkpoint.weights.tensors(), [](const auto& entry) { return is_of_vision(entry.first); });
}

Result<const VisionFamily*> find_vision_family(const Checkpoint& checkpoint) {
  const std::string type = checkpoint.whole.text_or("model_type", "");
  std::vector<std::string_view> known;
  for (const VisionFamily* family : kFamilies) {
    if (std::ranges::find(family->model_types, type) != family->model_types.end()) return family;
    known.insert(known.end(), family->model_types.begin(), family->model_types.end());
  }
  std::ranges::sort(known);
  return fail(ErrorCode::unsupported, fmt::format("What models of the type '{}' see with is not converted; known types "
                                                  "are {}.",
                                                  type, fmt::join(known, ", ")));
}

Result<TowerSettings> read_tower_settings(const VisionHalf& half) {
  const Config& tower = half.tower;
  const std::string activation = tower.text_or("hidden_act", "gelu_pytorch_tanh");
  if (activation != "gelu_pytorch_tanh") {
    return fail(ErrorCode::unsupported,
                fmt::format("{} asks for the activation '{}', which is not converted.", tower.subject(), activation));
  }
  return TowerSettings{.image_size = TRY(tower.integer("image_size")),
                       .patch_size = TRY(tower.integer("patch_size")),
                       .width = TRY(tower.integer("hidden_size")),
                       .feed_forward = TRY(tower.integer("intermediate_size")),
                       .blocks = TRY(tower.integer("num_hidden_layers")),
                       .heads = TRY(tower.integer("num_attention_heads")),
                       .eps = tower.number_or("layer_norm_eps", 1e-6)};
}

Result<void> check_resampling(const VisionHalf& half, int64_t filter) {
  if (half.pictures.integer_or("resample", filter) == filter) return {};
  return fail(ErrorCode::unsupported,
              fmt::format("{} resizes pictures with another filter than programs take for GGUF files of this kind.",
                          half.pictures.subject()));
}

Result<std::vector<OutputTensor>> describe_vision(const VisionHalf& half, const VisionFamily& family,
                                                  GgufMetadata& metadata) {
  FamilyKeys keys(metadata, "clip");
  keys.add("has_vision_encoder", true);
  keys.add("projector_type", family.projector_type);
  keys.count("vision.projection_dim", TRY(half.checkpoint.config.integer("hidden_size")));
  std::vector<OutputTensor> tensors;
  const TowerSettings tower = TRY(family.describe(half, keys, tensors));
  add_tower_keys(tower, keys);
  TRY(add_colours(half.pictures, keys));
  TRY(add_tensors(half, family, tensors));
  for (OutputTensor& tensor : tensors) tensor.precision = precision_of(tensor, family);
  TRY(check_tower(tower, tensors));
  return tensors;
}

}  // namespace nanomind
