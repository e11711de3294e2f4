// SPDX-License-Identifier: Apache-2.0
// The keys that all decoders have, from the settings' names that nearly all publishers use.
#pragma once

#include <string>
#include <vector>

#include "convert/family.h"

namespace nanomind {

// Rotary positions; of config.json's "rope_parameters", or of "rope_theta" and "rope_scaling" before these.
struct RotarySettings {
  double theta = 10000.0;
  std::string type = "default";
  double factor = 1.0;
  double rotated_share = 1.0;    // of a head
  int64_t original_context = 0;  // 0: not said
  Config all;                    // the object that the rest is in
};
RotarySettings read_rotary_settings(const Config& config);

// Width of a head.
Result<int64_t> head_width(const Config& config);

// context_length to rope.freq_base, and expert counts. Stretched positions as keys or as the tensor rope_freqs.
Result<void> describe_decoder(const Checkpoint& checkpoint, FamilyKeys& keys, std::vector<OutputTensor>& tensors);

}  // namespace nanomind
