// SPDX-License-Identifier: Apache-2.0
#include "models/blocks/rope.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <numbers>
#include <string>
#include <vector>

namespace nanomind {
namespace {

constexpr int64_t kLongestContext = int64_t{1} << 40;

void divide(RopeInfo& info, const std::vector<float>& factors) {
  for (size_t i = 0; i < factors.size(); ++i) info.inverse_frequency[i] /= factors[i];
}

void divide(RopeInfo& info, double factor) {
  for (float& f : info.inverse_frequency) f = static_cast<float>(f / factor);
}

// YaRN, sections 3.2 to 3.4: pairs that turn often within the original context stay, those that turn less than once are
// stretched by the factor, and a ramp lies between.
void stretch_by_parts(WeightReader& reader, RopeInfo& info, double theta, double factor, double original) {
  const double rotated = 2.0 * static_cast<double>(info.inverse_frequency.size());
  const double fast = reader.number_or("rope.scaling.yarn_beta_fast", 32.0);
  const double slow = reader.number_or("rope.scaling.yarn_beta_slow", 1.0);
  if (fast <= 0 || slow <= 0) return reader.complain("The numbers of turns of YaRN must be positive.");
  // The pair that turns so many times in the original context.
  const auto pair_of = [&](double turns) {
    return rotated * std::log(original / (turns * 2.0 * std::numbers::pi)) / (2.0 * std::log(theta));
  };
  const double low = std::max(0.0, std::floor(pair_of(fast)));
  const double high = std::min(rotated - 1.0, std::ceil(pair_of(slow)));
  for (size_t i = 0; i < info.inverse_frequency.size(); ++i) {
    const double ramp = std::clamp((static_cast<double>(i) - low) / std::max(0.001, high - low), 0.0, 1.0);
    const double f = info.inverse_frequency[i];
    info.inverse_frequency[i] = static_cast<float>(f / factor * ramp + f * (1.0 - ramp));
  }
  const double magnitude = factor > 1.0 ? 1.0 + 0.1 * std::log(factor) : 1.0;
  info.magnitude = static_cast<float>(magnitude * reader.number_or("rope.scaling.attn_factor", 1.0));
}

void stretch_by_tables(WeightReader& reader, const RotaryDefaults& defaults, RotaryPlan& plan) {
  const auto pairs = static_cast<int64_t>(plan.info.inverse_frequency.size());
  plan.beyond = reader.count("rope.scaling.original_context_length", 2, kLongestContext);
  const auto original = static_cast<double>(plan.beyond);
  const double ratio = static_cast<double>(defaults.trained_context) / original;
  const double usual = ratio > 1.0 ? std::sqrt(1.0 + std::log(ratio) / std::log(original)) : 1.0;  // section 3.3
  plan.info.magnitude = static_cast<float>(reader.number_or("rope.scaling.attn_factor", usual));
  plan.long_info = plan.info;
  divide(plan.info, reader.floats("rope_factors_short", pairs));
  divide(*plan.long_info, reader.floats("rope_factors_long", pairs));
}

}  // namespace

RopeInfo rope_table(RopePairs pairs, double theta, int64_t rotated) {
  RopeInfo info{.pairs = pairs, .inverse_frequency = {}};
  for (int64_t i = 0; i < rotated / 2; ++i) {
    const double exponent = -2.0 * static_cast<double>(i) / static_cast<double>(rotated);
    info.inverse_frequency.push_back(static_cast<float>(std::pow(theta, exponent)));
  }
  return info;
}

std::vector<uint8_t> read_rope_axes(WeightReader& reader, RopeSections sections, int64_t pairs) {
  const std::vector<float> counts = reader.list("rope.dimension_sections", GgufType::i32, 4);
  const auto time = static_cast<int64_t>(counts[0]), height = static_cast<int64_t>(counts[1]);
  const auto width = static_cast<int64_t>(counts[2]);
  std::vector<uint8_t> axes(static_cast<size_t>(pairs), 0);
  if (time < 0 || height < 0 || width < 0 || time + height + width > pairs) {
    reader.complain("rope.dimension_sections does not divide the rotary pairs.");
    return axes;
  }
  for (int64_t i = 0; i < pairs; ++i) {
    uint8_t axis = 0;
    if (sections == RopeSections::in_order) {
      axis = i < time ? 0 : i < time + height ? 1 : 2;
    } else if (i % 3 == 1 && i < 3 * height) {
      axis = 1;
    } else if (i % 3 == 2 && i < 3 * width) {
      axis = 2;
    }
    axes[static_cast<size_t>(i)] = axis;
  }
  return axes;
}

RotaryPlan read_rotary(WeightReader& reader, const RotaryDefaults& defaults) {
  const int64_t rotated = reader.count_or("rope.dimension_count", defaults.rotated, 2, defaults.head_dim);
  const double theta = reader.number_or("rope.freq_base", defaults.theta);
  const std::string type = reader.text_or("rope.scaling.type", "none");
  const double old_factor = reader.number_or("rope.scale_linear", 1.0);  // before rope.scaling.* there was this
  const double factor = reader.number_or("rope.scaling.factor", old_factor);
  if (theta <= 1.0 || factor <= 0.0) {
    reader.complain("The rotary base must be above 1 and its scaling factor above 0.");
    return {.info = rope_table(defaults.pairs, 10000.0, rotated), .long_info = {}};
  }
  RotaryPlan plan{.info = rope_table(defaults.pairs, theta, rotated), .long_info = {}};
  if (reader.has_tensor("rope_freqs")) {
    divide(plan.info, reader.floats("rope_freqs", rotated / 2));
  } else if (reader.has_tensor("rope_factors_long")) {
    stretch_by_tables(reader, defaults, plan);
  } else if (type == "yarn") {
    const int64_t original = reader.count("rope.scaling.original_context_length", 1, kLongestContext);
    stretch_by_parts(reader, plan.info, theta, factor, static_cast<double>(original));
  } else if (type == "linear" || (type == "none" && factor != 1.0 && !reader.has("rope.scaling.type"))) {
    divide(plan.info, factor);
  } else if (type != "none" && type != "longrope") {
    reader.refuse(fmt::format("Rotary positions that are scaled by \"{}\" are not supported.", type));
  }
  return plan;
}

}  // namespace nanomind
