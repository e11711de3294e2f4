// SPDX-License-Identifier: Apache-2.0
// The part of `nanomind bench` that measures a picture: how long its tiles take to become rows, as a share of what this
// machine multiplies, and how long it is from the file to the first token of an answer.
#pragma once

#include <cstddef>
#include <nlohmann/json.hpp>
#include <span>
#include <string>
#include <vector>

#include "base/result.h"
#include "runtime/engine.h"

namespace nanomind {

class PictureBench {
 public:
  // `engine` outlives the result. Errors: those of Engine::see, and a model without a chat template.
  static Result<PictureBench> create(Engine& engine, std::span<const std::byte> file);

  // One turn; the first that is kept should not be the first of all, which loads the bricks.
  Result<void> measure();
  // The turns so far are not counted.
  void forget();

  // `gemm_tflops` are measurements of what this machine multiplies at best.
  nlohmann::ordered_json to_json(const std::vector<double>& gemm_tflops) const;
  std::string to_text(const std::vector<double>& gemm_tflops) const;

 private:
  explicit PictureBench(Engine& engine) : engine_(&engine) {}
  Result<double> first_token_ms();
  // Of each turn.
  std::vector<double> encode_ms() const;
  std::vector<double> speeds() const;  // pictures per second
  double tflop() const;                // of a picture: a product is a multiplication and a sum

  Engine* engine_;
  std::vector<std::byte> file_;
  SeenPicture picture_;
  size_t prompt_tokens_ = 0;
  std::vector<PictureMeasurement> turns_;
  std::vector<double> first_token_ms_;
};

}  // namespace nanomind
