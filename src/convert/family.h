// SPDX-License-Identifier: Apache-2.0
// What is particular to a family of models when it is converted: names of tensors, changes to some of them, and keys.
// A family is a constant in a file of its own; families.cc lists them.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "convert/checkpoint.h"
#include "convert/name_rules.h"
#include "convert/output_tensor.h"
#include "format/gguf_writer.h"

namespace nanomind {

// Metadata of one architecture.
class FamilyKeys {
 public:
  FamilyKeys(GgufMetadata& metadata, std::string_view architecture)
      : metadata_(metadata), architecture_(architecture) {}
  void count(std::string_view key, int64_t value) { add(key, static_cast<uint32_t>(value)); }
  void number(std::string_view key, double value) { add(key, static_cast<float>(value)); }
  template <typename T>
  void add(std::string_view key, const T& value) {
    metadata_.add(std::string(architecture_).append(".").append(key), value);
  }
  template <typename T>
  void add_to_tokenizer(std::string_view key, const T& value) {
    metadata_.add(std::string("tokenizer.").append(key), value);
  }

 private:
  GgufMetadata& metadata_;
  std::string_view architecture_;
};

enum class SharedNames { decoders, encoders, none };

struct Family {
  std::string_view architecture;                  // general.architecture
  std::span<const std::string_view> model_types;  // of config.json
  std::span<const NameRule> names;                // before the shared ones
  SharedNames shared = SharedNames::decoders;
  // Adds the architecture's keys, and tensors that the checkpoint has only as settings.
  Result<void> (*describe)(const Checkpoint& checkpoint, FamilyKeys& keys,
                           std::vector<OutputTensor>& tensors) = nullptr;
  // JSON: what publishers leave out of a "text_config" where their class (of transformers) has it so.
  const char* class_settings = "{}";
};

extern const Family kBert, kGemma, kGemma2, kGemma3, kGemma3n, kGranite, kLfm2, kLlama, kNomicBert, kPhi3, kQwen2,
    kQwen3, kQwen3Moe, kQwen35, kSmolLm3, kXlmRoberta;

// The family of a config.json's "model_type". unsupported, with the list of those that are known.
Result<const Family*> find_family(std::string_view model_type);

// All tensors of the file: the checkpoint's, by the family's rules, after `described`. Errors: a tensor that no rule
// names, experts that are missing, types that hold no floats, shapes that do not fit the settings.
Result<std::vector<OutputTensor>> map_tensors(const Checkpoint& checkpoint, const Family& family,
                                              std::vector<OutputTensor> described);

}  // namespace nanomind
