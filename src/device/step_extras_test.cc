// SPDX-License-Identifier: Apache-2.0
// What steps of models that see say besides tokens: groups of rows, places, coordinates and where results go; on every
// instruction set, against the interpreter.
#include <gtest/gtest.h>

#include <numeric>
#include <random>

#include "device/registry.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/difference.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kInput = 24, kWidth = 32, kHeads = 2, kHeadDim = 16, kPlaces = 40, kResults = 48;

struct Kind {
  Mask mask = Mask::causal;
  int64_t window = 0;
  std::vector<uint8_t> axes = {};
};

// Input, places, one attention whose q and k turn by the coordinates, and a product.
Program record(const Kind& shape, testing::ProgramWeights& weights) {
  Recorder rec;
  const auto matrix = [&](int64_t rows, int64_t columns) {
    return weights.matrix(rec, DType::f32, rows, columns, 0.3F);
  };
  RopeInfo rope{.pairs = RopePairs::halves, .inverse_frequency = {1.0F, 0.5F, 0.25F, 0.1F}, .axes = shape.axes};
  const int turn = rec.rope_table(rope);
  Value x = rec.matmul(rec.input(kInput), matrix(kWidth, kInput));
  x = rec.add(x, rec.embed(matrix(kPlaces, kWidth), 1.0F, Lookup::position));
  const Value q = rec.rope(rec.matmul(x, matrix(kWidth, kWidth)), turn, kHeadDim);
  const Value k = rec.rope(rec.matmul(x, matrix(kWidth, kWidth)), turn, kHeadDim);
  const Value v = rec.matmul(x, matrix(kWidth, kWidth));
  x = rec.add(x, rec.attention({.q = q,
                                .k = k,
                                .v = v,
                                .layer = rec.kv_layer({kHeads, kHeadDim}),
                                .heads = kHeads,
                                .window = shape.window,
                                .scale = 0.25F,
                                .mask = shape.mask}));
  x = rec.matmul(rec.select_outputs(x), matrix(kResults, kWidth));
  return std::move(rec).finish(x);
}

// A step of `rows` rows after `past` others of the same kind.
struct Case {
  int64_t rows = 0;
  std::vector<int32_t> groups = {};
  std::vector<int32_t> places = {};
  std::vector<RowCoordinates> where = {};
};

class StepExtras : public ::testing::Test {
 protected:
  // Runs the cases one after another as steps of one sequence, on all instruction sets, and compares.
  void check(const Kind& shape, const std::vector<Case>& steps) {
    testing::ProgramWeights weights(7);
    const Program program = record(shape, weights);
    const auto views = weights.views();
    std::mt19937 random(5);
    std::normal_distribution<float> normal;
    for (const std::string& isa : device_isas()) {
      SCOPED_TRACE(isa);
      const auto device = std::move(*open_device("cpu", {.threads = 2, .isa = isa}));
      const auto executable =
          device->compile(program, {.weights = views, .max_tokens = 32, .max_outputs = 32, .kv_type = KvType::f32});
      ASSERT_TRUE(executable) << executable.error().message;
      const auto cache = std::move(*device->allocate((*executable)->kv_block_bytes()));
      reference::Interpreter interpreter(program, weights.floats());
      const std::vector<int32_t> blocks{0};
      int64_t past = 0;
      for (const Case& c : steps) {
        const auto rows = static_cast<size_t>(c.rows);
        std::vector<float> given(rows * kInput), results(rows * kResults);
        for (float& g : given) g = normal(random);
        std::vector<const float*> pointers;
        for (size_t i = 0; i < rows; ++i) pointers.push_back(given.data() + i * kInput);
        const std::vector<int32_t> tokens(rows, -1);
        std::vector<int32_t> outputs(rows);
        std::iota(outputs.rbegin(), outputs.rend(), 0);  // results in another order than rows
        const SequenceRows sequence{.blocks = blocks, .past = past, .rows = c.rows};
        const auto out = (*executable)
                             ->run({.tokens = tokens,
                                    .given = pointers,
                                    .sequences = {&sequence, 1},
                                    .places = c.places,
                                    .where = c.where,
                                    .groups = c.groups,
                                    .outputs = outputs,
                                    .results = results,
                                    .kv_cache = cache.get()});
        ASSERT_TRUE(out) << out.error().message;
        EXPECT_EQ(out->data, results.data());
        const auto expected = interpreter.run(
            tokens, outputs, {.given = given, .places = c.places, .where = c.where, .groups = c.groups});
        EXPECT_LT(testing::relative_difference(results, expected), 1e-3);
        past += c.rows;
      }
    }
  }
};

TEST_F(StepExtras, RowsOfAGroupSeeEachOtherOnly) {
  check({.mask = Mask::group}, {{.rows = 20, .groups = {4, 1, 7, 4, 4}}});
  check({.mask = Mask::group}, {{.rows = 5}});  // without groups all of it
}

TEST_F(StepExtras, RowsOfAGroupSeeEachOtherAndWhatIsBefore) {
  const std::vector<Case> steps{{.rows = 3}, {.rows = 18, .groups = {1, 1, 12, 1, 3}}, {.rows = 2, .groups = {1, 1}}};
  check({.mask = Mask::causal_group}, steps);
  check({.mask = Mask::causal_group, .window = 6}, steps);
}

TEST_F(StepExtras, PlacesAndCoordinatesTakeTheRoomOfPositions) {
  std::vector<RowCoordinates> where;
  std::vector<int32_t> places;
  for (int32_t i = 0; i < 17; ++i) {
    where.push_back({i / 5, i % 5, 3 * i});
    places.push_back((i * 7) % kPlaces);
  }
  check({.mask = Mask::none, .axes = {0, 1, 2, 1}}, {{.rows = 17, .places = places, .where = where}});
  check({.mask = Mask::causal, .axes = {0, 1, 2, 1}}, {{.rows = 4}, {.rows = 17, .places = places, .where = where}});
}

TEST_F(StepExtras, WhatDoesNotFitTheStepIsRefused) {
  testing::ProgramWeights weights(7);
  const Program program = record({.mask = Mask::group}, weights);
  const auto views = weights.views();
  const auto device = std::move(*open_device("cpu", {.threads = 1}));
  const auto executable = std::move(*device->compile(program, {.weights = views, .max_tokens = 8, .max_outputs = 8}));
  const auto cache = std::move(*device->allocate(executable->kv_block_bytes()));
  const std::vector<float> row(kInput);
  const std::vector<const float*> given(4, row.data());
  const std::vector<int32_t> tokens(4, -1), blocks{0}, outputs{3};
  const SequenceRows sequence{.blocks = blocks, .past = 0, .rows = 4};
  std::vector<float> results(kResults);
  const auto refused = [&](const Case& c, size_t room) {
    const auto out = executable->run({.tokens = tokens,
                                      .given = given,
                                      .sequences = {&sequence, 1},
                                      .places = c.places,
                                      .where = c.where,
                                      .groups = c.groups,
                                      .outputs = outputs,
                                      .results = std::span(results).first(room),
                                      .kv_cache = cache.get()});
    return !out && out.error().code == ErrorCode::invalid_argument;
  };
  EXPECT_FALSE(refused({.groups = {1, 3}}, kResults));
  EXPECT_TRUE(refused({.groups = {1, 2}}, kResults));
  EXPECT_TRUE(refused({.groups = {5}}, kResults));
  EXPECT_TRUE(refused({.groups = {4, 0}}, kResults));
  EXPECT_TRUE(refused({.places = {0, 1, 2, kPlaces}}, kResults));
  EXPECT_TRUE(refused({.places = {0, 1}}, kResults));
  EXPECT_TRUE(refused({.where = {{0, 0, 0}}}, kResults));
  EXPECT_TRUE(refused({}, kResults - 1));
}

}  // namespace
}  // namespace nanomind
