// SPDX-License-Identifier: Apache-2.0
#include "cli/bench_picture.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>

#include "base/clock.h"
#include "cli/bench_figures.h"

namespace nanomind {
namespace {

constexpr const char* kQuestion = "What is in the picture?";

double encode_ms_of(const PictureMeasurement& turn) {
  double ms = 0;
  for (const PictureMeasurement::Tile& tile : turn.tiles) ms += tile.ms;
  return ms;
}

double best(const std::vector<double>& ms) { return ms.empty() ? 0 : std::ranges::min(ms); }

}  // namespace

Result<PictureBench> PictureBench::create(Engine& engine, std::span<const std::byte> file) {
  PictureBench bench(engine);
  bench.file_.assign(file.begin(), file.end());
  bench.picture_ = TRY(engine.see(file));
  return bench;
}

Result<void> PictureBench::measure() {
  turns_.push_back(TRY(engine_->measure_picture(file_)));
  first_token_ms_.push_back(TRY(first_token_ms()));
  return {};
}

void PictureBench::forget() {
  turns_.clear();
  first_token_ms_.clear();
}

Result<double> PictureBench::first_token_ms() {
  // What stands behind the end of a picture changes the file but not the picture: its rows are not known.
  file_.push_back(std::byte{0});
  const auto start = std::chrono::steady_clock::now();
  Message message{.role = "user", .content = kQuestion};
  message.pictures.push_back(TRY(engine_->see(file_)).prompt);
  const ChatPrompt prompt = TRY(engine_->chat_prompt({&message, 1}, {}));
  const auto session = TRY(engine_->open_session());
  TRY(session->feed(prompt.tokens, nullptr));
  prompt_tokens_ = prompt.tokens.size();
  return milliseconds_since(start);
}

std::vector<double> PictureBench::encode_ms() const {
  std::vector<double> ms;
  for (const PictureMeasurement& turn : turns_) ms.push_back(encode_ms_of(turn));
  return ms;
}

std::vector<double> PictureBench::speeds() const {
  std::vector<double> speeds = encode_ms();
  for (double& speed : speeds) speed = 1000 / speed;
  return speeds;
}

double PictureBench::tflop() const {
  double products = 0;
  for (const PictureMeasurement::Tile& tile : turns_.at(0).tiles)
    products += static_cast<double>(tile.products + tile.attention_products);
  return 2 * products / 1e12;
}

nlohmann::ordered_json PictureBench::to_json(const std::vector<double>& gemm_tflops) const {
  const std::vector<double> encode = encode_ms();
  const Share share = share_of(speeds(), tflop(), gemm_tflops);
  std::vector<double> cut;
  for (const PictureMeasurement& turn : turns_) cut.push_back(turn.cut_ms);
  auto tiles = nlohmann::ordered_json::array();
  for (size_t i = 0; i < turns_.at(0).tiles.size(); ++i) {
    const PictureMeasurement::Tile& tile = turns_.at(0).tiles[i];
    std::vector<double> ms;
    for (const PictureMeasurement& turn : turns_) ms.push_back(turn.tiles[i].ms);
    tiles.push_back({{"width", tile.size.width},
                     {"height", tile.size.height},
                     {"tokens", tile.rows},
                     {"products", tile.products},
                     {"attention_products", tile.attention_products},
                     {"encode_ms", median(ms)}});
  }
  return {{"width", picture_.size.width},
          {"height", picture_.size.height},
          {"tokens", picture_.rows},
          {"cut_ms", median(cut)},
          {"encode_ms", median(encode)},
          {"encode_ms_best", best(encode)},
          {"tflops", median(speeds()) * tflop()},
          {"share", share.median},
          {"share_of_best", share.best},
          {"encode_ms_all", encode},
          {"tiles", std::move(tiles)},
          {"prompt_tokens", prompt_tokens_},
          {"first_token_ms", median(first_token_ms_)},
          {"first_token_ms_best", best(first_token_ms_)},
          {"first_token_ms_all", first_token_ms_}};
}

std::string PictureBench::to_text(const std::vector<double>& gemm_tflops) const {
  const std::vector<double> encode = encode_ms();
  const Share share = share_of(speeds(), tflop(), gemm_tflops);
  const size_t tiles = turns_.at(0).tiles.size();
  return fmt::format(
      "picture  {:8.1f} ms      {} x {}, {} of {:.1f} ms, {} tokens (best {:.1f}); {:.2f} Tflop/s, {:.0f} % of "
      "{:.2f} in byte products (best {:.0f} %)\n"
      "answer   {:8.1f} ms      from the picture's file to the first token, prompt of {} (best {:.1f})\n",
      median(encode), picture_.size.width, picture_.size.height, tiles == 1 ? "1 tile" : fmt::format("{} tiles", tiles),
      median(encode) / static_cast<double>(tiles), picture_.rows, best(encode), median(speeds()) * tflop(),
      share.median * 100, median(gemm_tflops), share.best * 100, median(first_token_ms_), prompt_tokens_,
      best(first_token_ms_));
}

}  // namespace nanomind
