// SPDX-License-Identifier: Apache-2.0
// Products alone on the CPU device, on every ISA: each weight type with odd numbers of rows, of columns and of tokens,
// against the reference interpreter on the same dequantised weights.
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>

#include "device/device.h"
#include "device/registry.h"
#include "kernels/cpu/select.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/random_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kMostTokens = 100, kOutputs = 37;
constexpr int64_t kTokenCounts[] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 15, 16, 17, 31, 33, kMostTokens};

// Whether the products see all tokens of a step or only those whose result is wanted.
enum class Place { tokens, outputs };

// Token t is row t of a table of floats; two products of it share a loop, one of them with a bias.
struct Products {
  Program program;
  std::vector<std::vector<testing::Line>> packed;
  std::vector<std::span<const std::byte>> views;
  std::vector<std::vector<float>> floats;

  Products(DType dtype, int64_t columns, Place place) {
    testing::RandomWeights random(29);
    Recorder rec;
    const auto matrix = [&](DType type, int64_t rows, float size) {
      const auto gguf = random.gguf(type, rows, columns, size);
      packed.push_back(testing::pack(type, gguf, rows, columns));
      floats.push_back(testing::dequantize(type, gguf, rows, columns));
      views.emplace_back(packed.back().data()->bytes, packed_bytes(type, rows, columns));
      return rec.weight({"m", type, {rows, columns}});
    };
    Value x = rec.embed(matrix(DType::f32, kMostTokens, 1.0F));
    if (place == Place::outputs) x = rec.select_outputs(x);
    const Weight a = matrix(dtype, kOutputs, 0.5F);
    const Weight b = matrix(columns % 32 == 0 ? DType::q8_0 : DType::f16, kOutputs, 0.5F);
    floats.push_back(random.floats(kOutputs, 0.1F));
    const Weight bias = rec.weight({"bias", DType::f32, {kOutputs}});
    Value y = rec.add(rec.matmul(x, a, bias), rec.matmul(x, b));
    if (place == Place::tokens) y = rec.select_outputs(y);
    program = std::move(rec).finish(y);
    views.push_back(std::as_bytes(std::span(floats.back())));
  }
};

class ProductTest : public ::testing::TestWithParam<std::tuple<std::string, DType>> {};

// Kernels of many rows have errors of up to 5e-4 of the results' size (kernels/cpu/table.h), those of few rows far
// less; a result of another row or of other columns would be off by about its own size.
void expect_rows(const OutputRows& actual, const std::vector<float>& expected) {
  double size = 0;
  for (const float v : expected) size += static_cast<double>(v) * v;
  size = std::sqrt(size / static_cast<double>(actual.rows));
  for (int64_t i = 0; i < actual.rows; ++i) {
    double error = 0;
    for (size_t n = 0; n < kOutputs; ++n) {
      error += std::pow(actual.row(i)[n] - expected[static_cast<size_t>(i * kOutputs) + n], 2);
    }
    EXPECT_LT(std::sqrt(error), 1e-3 * size) << "row " << i;
  }
}

TEST_P(ProductTest, EveryNumberOfTokensAgreesWithTheReference) {
  const auto& [isa, dtype] = GetParam();
  const auto device = std::move(*open_device("cpu", {.threads = 2, .isa = isa}));
  const int64_t block = traits(dtype).block_columns;
  const int64_t odd = block == 1 ? 133 : block == 32 ? 3 * block : block;
  for (const int64_t columns : {odd, int64_t{512}}) {
    for (const Place place : {Place::tokens, Place::outputs}) {
      const Products products(dtype, columns, place);
      const auto executable = std::move(*device->compile(products.program, {.weights = products.views,
                                                                            .max_tokens = kMostTokens,
                                                                            .max_outputs = kMostTokens,
                                                                            .precision = PromptPrecision::high}));
      const auto cache = std::move(*device->allocate(64));
      reference::Interpreter truth(products.program, products.floats);
      for (const int64_t count : kTokenCounts) {
        SCOPED_TRACE(::testing::Message() << count << " tokens, " << columns << " columns, "
                                          << (place == Place::tokens ? "before" : "after") << " the selection");
        // Another order in each step, so that what a former step left is wrong.
        std::vector<int32_t> ids(static_cast<size_t>(count)), wanted(ids.size());
        for (int64_t i = 0; i < count; ++i) ids[static_cast<size_t>(i)] = static_cast<int32_t>((7 * i + count) % 100);
        std::iota(wanted.begin(), wanted.end(), 0);
        const std::vector<int32_t> blocks{0, 0};
        const SequenceRows all{.blocks = blocks, .past = 0, .rows = count};
        const Result<OutputRows> out =
            executable->run({.tokens = ids, .sequences = {&all, 1}, .outputs = wanted, .kv_cache = cache.get()});
        ASSERT_TRUE(out) << out.error().message;
        ASSERT_EQ(out->rows, count);
        expect_rows(*out, truth.run(ids, wanted));
      }
    }
  }
}

std::vector<std::tuple<std::string, DType>> cases() {
  std::vector<std::tuple<std::string, DType>> all;
  for (const std::string& isa : runnable_isas()) {
    for (const DType type : kDTypes) {
      all.emplace_back(isa, type);
    }
  }
  return all;
}
INSTANTIATE_TEST_SUITE_P(Types, ProductTest, ::testing::ValuesIn(cases()), [](const auto& test) {
  return std::get<0>(test.param) + "_" + std::string(traits(std::get<1>(test.param)).name);
});

}  // namespace
}  // namespace nanomind
