// SPDX-License-Identifier: Apache-2.0
// What is particular to what a family of models sees with (GGUF arch "clip", "mmproj" files) when it is converted. A
// family is a constant in a file of its own; vision_families.cc lists them.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/checkpoint.h"
#include "convert/family.h"
#include "convert/name_rules.h"
#include "convert/output_tensor.h"

namespace nanomind {

// What a checkpoint says about its vision half.
struct VisionHalf {
  const Checkpoint& checkpoint;
  Config tower;     // "vision_config"
  Config pictures;  // preprocessor_config.json, and over it what processor_config.json says of pictures

  // `class_settings`: VisionFamily's.
  static Result<VisionHalf> open(const Checkpoint& checkpoint, const char* class_settings);
};

// Sizes of the tower, which its tensors are held against.
struct TowerSettings {
  int64_t image_size = 0, patch_size = 0;  // pixels of a side
  int64_t width = 0, feed_forward = 0, blocks = 0, heads = 0;
  double eps = 1e-6;
};

struct VisionFamily {
  std::string_view projector_type;
  std::span<const std::string_view> model_types;  // of config.json
  std::span<const NameRule> names;                // before those of SigLIP towers
  // Adds the keys that are the family's own, and tensors that the checkpoint has in another form. The tower's keys
  // follow from the result.
  Result<TowerSettings> (*describe)(const VisionHalf& half, FamilyKeys& keys,
                                    std::vector<OutputTensor>& tensors) = nullptr;
  // Of the first convolution.
  Precision filters = Precision::plain;
  // Whether the tensor of the file is one that the settings leave without use; may be null.
  bool (*is_unused)(const VisionHalf& half, std::string_view tensor) = nullptr;
  // JSON: what publishers leave out of "vision_config" where their class (of transformers) has it so.
  const char* class_settings = "{}";
};

extern const VisionFamily kGemma3Vision, kIdefics3Vision, kLlavaOnevision, kMiniCpmVision;

// VisionFamily::class_settings of SiglipVisionConfig.
inline constexpr const char* kSiglipSettings = R"({"hidden_size": 768, "intermediate_size": 3072,
    "num_hidden_layers": 12, "num_attention_heads": 12, "image_size": 224, "patch_size": 16})";

// Whether the checkpoint has tensors that see and settings of them.
bool has_vision(const Checkpoint& checkpoint);
// The family of a checkpoint that sees. unsupported, with the list of those that are known.
Result<const VisionFamily*> find_vision_family(const Checkpoint& checkpoint);

// The tower's sizes by the names that most publishers use. Fails for activations other than GELU by tanh.
Result<TowerSettings> read_tower_settings(const VisionHalf& half);
// Fails where pictures are resized with another filter (its number in Pillow) than readers of the file will take.
Result<void> check_resampling(const VisionHalf& half, int64_t filter);

// Adds clip.* and gives all tensors of the vision file. Errors: settings and tensors that are not known or do not fit
// each other.
Result<std::vector<OutputTensor>> describe_vision(const VisionHalf& half, const VisionFamily& family,
                                                  GgufMetadata& metadata);

}  // namespace nanomind
