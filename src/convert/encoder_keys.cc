// SPDX-License-Identifier: Apache-2.0
#include "convert/encoder_keys.h"

#include <fmt/format.h>

namespace nanomind {

Result<void> describe_encoder(const Config& config, FamilyKeys& keys) {
  const std::string positions = config.text_or("position_embedding_type", "absolute");
  const std::string activation = config.text_or("hidden_act", "gelu");
  if (positions != "absolute" || activation != "gelu") {
    return fail(ErrorCode::unsupported,
                fmt::format("Encoders with '{}' positions and '{}' are not converted, only with 'absolute' and 'gelu'.",
                            positions, activation));
  }
  keys.count("embedding_length", TRY(config.integer("hidden_size")));
  keys.count("feed_forward_length", TRY(config.integer("intermediate_size")));
  keys.count("block_count", TRY(config.integer("num_hidden_layers")));
  keys.count("attention.head_count", TRY(config.integer("num_attention_heads")));
  keys.number("attention.layer_norm_epsilon", TRY(config.number("layer_norm_eps")));
  keys.add("attention.causal", false);
  keys.count("vocab_size", TRY(config.integer("vocab_size")));
  return {};
}

}  // namespace nanomind
