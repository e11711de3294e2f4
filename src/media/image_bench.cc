// SPDX-License-Identifier: Apache-2.0
// What a photograph of 12 megapixels costs on one core on its way to a model: decoding, turning upright, scaling to
// 448.
#include <benchmark/benchmark.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <vector>

// clang-format off
#include <jpeglib.h>  // needs <cstdio> before
// clang-format on

#include "media/decode.h"
#include "media/fit.h"
#include "media/orientation.h"

namespace nanomind {
namespace {

constexpr Size kPhoto{4000, 3000};
constexpr Size kModel{448, 448};
constexpr Rgb kGray{122, 116, 104};

// Soft shapes with some grain, which code to about as many bits as a photograph.
const Image& photo() {
  static const Image kImage = [] {
    Image image(kPhoto);
    uint32_t state = 1;
    for (int y = 0; y < kPhoto.height; ++y) {
      for (int x = 0; x < kPhoto.width; ++x) {
        state = state * 1664525 + 1013904223;
        const double shape = 110 + 70 * std::sin(x * 0.01 + y * 0.003) + 30 * std::sin(x * 0.13) * std::sin(y * 0.11);
        for (int c = 0; c < 3; ++c) {
          image.row(y)[3 * x + c] = static_cast<uint8_t>(shape + c * 10 + static_cast<int>(state >> 28));
        }
      }
    }
    return image;
  }();
  return kImage;
}

// As cameras write: quality 90, colours at half the resolution.
std::vector<std::byte> encoded() {
  jpeg_compress_struct info{};
  jpeg_error_mgr errors{};
  info.err = jpeg_std_error(&errors);
  jpeg_create_compress(&info);
  unsigned char* buffer = nullptr;
  unsigned long bytes = 0;
  jpeg_mem_dest(&info, &buffer, &bytes);
  info.image_width = static_cast<JDIMENSION>(kPhoto.width);
  info.image_height = static_cast<JDIMENSION>(kPhoto.height);
  info.input_components = 3;
  info.in_color_space = JCS_RGB;
  jpeg_set_defaults(&info);
  jpeg_set_quality(&info, 90, TRUE);
  jpeg_start_compress(&info, TRUE);
  while (info.next_scanline < info.image_height) {
    auto* row = const_cast<JSAMPROW>(photo().row(static_cast<int>(info.next_scanline)));
    jpeg_write_scanlines(&info, &row, 1);
  }
  jpeg_finish_compress(&info);
  jpeg_destroy_compress(&info);
  const auto* first = reinterpret_cast<const std::byte*>(buffer);
  std::vector<std::byte> result(first, first + bytes);
  std::free(buffer);
  return result;
}

void bench_decode(benchmark::State& state) {
  const std::vector<std::byte> file = encoded();
  for (auto _ : state) benchmark::DoNotOptimize(decode_image(file));
  state.counters["file_mb"] = static_cast<double>(file.size()) / 1e6;
}

void bench_turn(benchmark::State& state) {
  for (auto _ : state) {
    state.PauseTiming();
    Image image = photo();
    state.ResumeTiming();
    benchmark::DoNotOptimize(oriented(std::move(image), static_cast<int>(state.range(0))));
  }
}

void bench_scale(benchmark::State& state) {
  const auto filter = static_cast<Filter>(state.range(0));
  for (auto _ : state) benchmark::DoNotOptimize(fit_inside(photo(), kModel, filter, kGray));
}

void bench_all(benchmark::State& state) {
  const std::vector<std::byte> file = encoded();
  for (auto _ : state) {
    const auto image = decode_image(file);
    benchmark::DoNotOptimize(fit_inside(*image, kModel, Filter::bicubic, kGray));
  }
}

BENCHMARK(bench_decode)->Unit(benchmark::kMillisecond);
BENCHMARK(bench_turn)->Arg(3)->Arg(6)->Unit(benchmark::kMillisecond);
BENCHMARK(bench_scale)
    ->Arg(static_cast<int>(Filter::bilinear))
    ->Arg(static_cast<int>(Filter::bicubic))
    ->Arg(static_cast<int>(Filter::lanczos))
    ->Unit(benchmark::kMillisecond);
BENCHMARK(bench_all)->Unit(benchmark::kMillisecond);

}  // namespace
}  // namespace nanomind

BENCHMARK_MAIN();
