// SPDX-License-Identifier: Apache-2.0
// The cache in every type, on small programs of F32 weights whose output is attention alone, so that nothing dilutes
// what the cache does to it: against the reference interpreter, and with cached keys turned to other positions.
#include <gtest/gtest.h>

#include <cmath>
#include <functional>
#include <optional>

#include "device/registry.h"
#include "device/sim/sim_device.h"
#include "kernels/cpu/select.h"
#include "ops/recorder.h"
#include "ops/reference/interpreter.h"
#include "tests/support/difference.h"
#include "tests/support/program_weights.h"

namespace nanomind {
namespace {

constexpr int64_t kVocabulary = 50, kWidth = 64, kHeads = 4, kKvHeads = 2;

struct Shapes {
  int64_t head_dim = 64;
  std::optional<RopeInfo> rope;
  Lookup lookup = Lookup::token;  // of a second table that is added
  bool norm_keys = false;         // after their rotation
  float key_bias = 0;             // size of a bias that all keys have
};

// One layer of attention: keys and values depend on token and position only.
class OneLayer {
 public:
  explicit OneLayer(const Shapes& s) : weights_(29) {
    Value x = rec_.embed(matrix(kVocabulary, kWidth, 1));
    if (s.lookup != Lookup::token) x = rec_.add(x, rec_.embed(matrix(256, kWidth, 1), 1, s.lookup));
    // With scores of about unit size, attention looks at many keys, and its errors are those of the mean of many.
    Value q = rec_.matmul(x, matrix(kHeads * s.head_dim, kWidth, 0.2F));
    const Weight keys = matrix(kKvHeads * s.head_dim, kWidth, 0.2F);
    Value k = s.key_bias == 0 ? rec_.matmul(x, keys) : rec_.matmul(x, keys, vector(kKvHeads * s.head_dim, s.key_bias));
    const Value v = rec_.matmul(x, matrix(kKvHeads * s.head_dim, kWidth, 0.2F));
    if (s.rope) {
      const int table = rec_.rope_table(*s.rope);
      q = rec_.rope(q, table, static_cast<int>(s.head_dim));
      k = rec_.rope(k, table, static_cast<int>(s.head_dim));
    }
    if (s.norm_keys) k = rec_.rms_norm_heads(k, vector(s.head_dim, 1), 1e-6F);
    const Value out = rec_.attention({.q = q,
                                      .k = k,
                                      .v = v,
                                      .layer = rec_.kv_layer({kKvHeads, s.head_dim}),
                                      .heads = kHeads,
                                      .scale = 1.0F / std::sqrt(static_cast<float>(s.head_dim))});
    program = std::move(rec_).finish(rec_.select_outputs(out));
    views = weights_.views();
    floats = weights_.floats();
  }

  Program program;
  std::vector<std::span<const std::byte>> views;
  std::vector<std::vector<float>> floats;

 private:
  Weight matrix(int64_t rows, int64_t columns, float size) {
    return weights_.matrix(rec_, DType::f32, rows, columns, size);
  }
  Weight vector(int64_t n, float size) { return weights_.vector(rec_, n, size); }

  Recorder rec_;
  testing::ProgramWeights weights_;
};

RopeInfo rope(RopePairs pairs, int count) {
  RopeInfo info{.pairs = pairs, .inverse_frequency = {}, .magnitude = 1.1F};
  for (int i = 0; i < count; ++i)
    info.inverse_frequency.push_back(std::pow(1000.0F, -static_cast<float>(i) / static_cast<float>(count)));
  return info;
}

std::vector<int32_t> tokens(int n) {
  std::vector<int32_t> ids;
  for (int i = 0; i < n; ++i) ids.push_back((i * 31 + i * i) % static_cast<int>(kVocabulary));
  return ids;
}

// A model on a device with a cache of a type.
class CachedModel {
 public:
  CachedModel(const OneLayer& model, KvType type, const std::string& isa = "")
      : device_(std::move(*open_device("cpu", {.threads = 2, .isa = isa}))),
        executable_(std::move(*device_->compile(model.program, {.weights = model.views,
                                                                .max_tokens = 256,
                                                                .max_outputs = 1,
                                                                .precision = PromptPrecision::high,
                                                                .kv_type = type}))),
        cache_(std::move(*device_->allocate(executable_->kv_block_bytes() * 8))) {}

  // The result of the last of these tokens.
  std::vector<float> feed(std::span<const int32_t> ids, std::span<const int32_t> blocks, int64_t past) {
    const auto rows = static_cast<int64_t>(ids.size());
    const SequenceRows sequence{.blocks = blocks, .past = past, .rows = rows};
    const std::vector<int32_t> last{static_cast<int32_t>(rows - 1)};
    const auto out =
        executable_->run({.tokens = ids, .sequences = {&sequence, 1}, .outputs = last, .kv_cache = cache_.get()});
    EXPECT_TRUE(out) << out.error().message;
    return {out->row(0).begin(), out->row(0).end()};
  }
  Result<void> rotate(std::span<const int32_t> blocks, int64_t by) {
    return executable_->rotate_keys(*cache_, blocks, by);
  }
  size_t block_bytes() const { return executable_->kv_block_bytes(); }
  std::vector<std::byte> cache() { return {cache_->bytes().begin(), cache_->bytes().end()}; }

 private:
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
  std::unique_ptr<Buffer> cache_;
};

using testing::relative_difference;

// Of attention's result, relative. A number is off by so much of the root mean square of its run (uniform within a step
// of the codes; 32 normal numbers have their largest at about 2.1, some at 3): f16 2^-12, q8_0 0.0065, q4_0 0.08.
// Values pass that on as it is, keys move scores of unit size by it, which moves the weights by as much: the square
// root of two, with as much again for what the sample is not; f32 has the rounding of sums of floats.
double bound(KvType type) {
  switch (type) {
    case KvType::f32: return 2e-6;
    case KvType::f16: return 1e-3;
    case KvType::q8_0: return 0.018;
    case KvType::q4_0: return 0.23;
  }
  return 0;
}

std::string name_of(KvType type) { return std::string(kv_type_name(type)); }

TEST(KvType, NamesAreReadBack) {
  for (const KvType type : kKvTypes) EXPECT_EQ(parse_kv_type(kv_type_name(type)), type);
  const auto unknown = parse_kv_type("q2_0");
  ASSERT_FALSE(unknown);
  EXPECT_NE(unknown.error().message.find("f32, f16, q8_0, q4_0"), std::string::npos) << unknown.error().message;
}

TEST(KvType, SizesAreThoseOfCodesAndScales) {
  EXPECT_EQ(kv_row_bytes(KvType::f32, 64), 256u);
  EXPECT_EQ(kv_row_bytes(KvType::f16, 64), 128u);
  EXPECT_EQ(kv_row_bytes(KvType::q8_0, 64), 68u);
  EXPECT_EQ(kv_row_bytes(KvType::q4_0, 64), 36u);
  EXPECT_EQ(kv_row_bytes(KvType::q8_0, 40), 44u);  // a run of 32 and one of 8
  EXPECT_EQ(kv_row_bytes(KvType::q4_0, 8), 6u);
  for (const KvType type : kKvTypes) {
    const OneLayer model({.head_dim = 40});
    EXPECT_EQ(CachedModel(model, type).block_bytes(), 2 * kKvHeads * kv_row_bytes(type, 40) * kKvBlockTokens);
  }
}

TEST(KvType, BiasedKeysHaveEightBitsWhereValuesHaveFour) {
  const auto keys_of = [](const Shapes& shapes, KvType type) {
    const OneLayer model(shapes);
    const KvTypes types = kv_layer_types(model.program, type).at(0);
    EXPECT_EQ(types.values, type);
    EXPECT_EQ(CachedModel(model, type).block_bytes(),
              kKvHeads * (kv_row_bytes(types.keys, 64) + kv_row_bytes(type, 64)) * kKvBlockTokens);
    return types.keys;
  };
  for (const KvType type : kKvTypes) EXPECT_EQ(keys_of({.key_bias = 0}, type), type);
  for (const KvType type : {KvType::f32, KvType::f16, KvType::q8_0}) EXPECT_EQ(keys_of({.key_bias = 1}, type), type);
  EXPECT_EQ(keys_of({.key_bias = 1}, KvType::q4_0), KvType::q8_0);
  // Also where something stands between the product and the cache.
  EXPECT_EQ(keys_of({.rope = rope(RopePairs::halves, 32), .norm_keys = true, .key_bias = 1}, KvType::q4_0),
            KvType::q8_0);
}

// Head widths with whole and with partial runs; the last step is a decoding one.
TEST(KvCache, EveryTypeAgreesWithTheReferenceOnEveryIsa) {
  const std::vector<int32_t> ids = tokens(150), blocks{3, 0, 6};
  for (const int64_t head_dim : {8, 40, 64, 256}) {
    const OneLayer model({.head_dim = head_dim, .rope = rope(RopePairs::halves, 4)});
    const std::vector<int32_t> last{149};
    const std::vector<float> expected = reference::Interpreter(model.program, model.floats).run(ids, last);
    for (const std::string& isa : runnable_isas()) {
      for (const KvType type : kKvTypes) {
        CachedModel run(model, type, isa);
        run.feed(std::span(ids).first(97), blocks, 0);
        run.feed(std::span(ids).subspan(97, 52), blocks, 97);
        const double off = relative_difference(run.feed(std::span(ids).last(1), blocks, 149), expected);
        EXPECT_LT(off, bound(type)) << name_of(type) << " on " << isa << ", heads of " << head_dim;
        if (type != KvType::f32) {
          EXPECT_GT(off, bound(type) / 20) << name_of(type) << " is another type";
        }
      }
    }
  }
}

// A bias that all keys have in common leaves the weights of keys as they are, but makes steps of codes larger: here it
// is some 20 times the rest of the keys, and four bits would be off by about as much as that rest is. In eight, keys
// are off by a sixteenth of it, and what remains are the values' 0.08.
TEST(KvCache, LargeBiasesOfKeysDoFourBitsNoHarm) {
  const std::vector<int32_t> ids = tokens(150), blocks{3, 0, 6}, last{149};
  const OneLayer model({.key_bias = 16});
  const std::vector<float> expected = reference::Interpreter(model.program, model.floats).run(ids, last);
  for (const std::string& isa : runnable_isas())
    EXPECT_LT(relative_difference(CachedModel(model, KvType::q4_0, isa).feed(ids, blocks, 0), expected),
              bound(KvType::q4_0) / 2)
        << isa;
}

struct Rotary {
  RopePairs pairs;
  int count;  // of pairs, in heads of 64
};
constexpr Rotary kRotaries[] = {
    {RopePairs::halves, 32}, {RopePairs::adjacent, 32}, {RopePairs::halves, 10}, {RopePairs::adjacent, 20}};

// The first block is dropped and the rest turned back by its 64 tokens: as if it had never been there. Values are the
// same on both sides; scores have a size of about 0.3, and keys an error on one side and two, of two codings, on the
// other: a quarter of the bound.
TEST(RotateKeys, DroppedTokensLeaveNoTrace) {
  const std::vector<int32_t> ids = tokens(171), before{0, 1, 2}, after{1, 2}, fresh{5, 6};
  for (const Rotary& rotary : kRotaries) {
    const OneLayer model({.rope = rope(rotary.pairs, rotary.count)});
    for (const KvType type : kKvTypes) {
      CachedModel run(model, type);
      const std::string what = name_of(type) + ", " + std::to_string(rotary.count) + " pairs";
      run.feed(std::span(ids).first(170), before, 0);
      run.feed(std::span(ids).subspan(64, 106), fresh, 0);
      const std::vector<float> expected = run.feed(std::span(ids).last(1), fresh, 106);
      const double unturned = relative_difference(run.feed(std::span(ids).last(1), after, 106), expected);
      ASSERT_TRUE(run.rotate(after, 64)) << what;
      const double off = relative_difference(run.feed(std::span(ids).last(1), after, 106), expected);
      EXPECT_LT(off, bound(type) / 4) << what;
      EXPECT_GT(unturned, 2 * off) << what << ": keys at other positions are other keys";
    }
  }
}

TEST(RotateKeys, StepsAddUpAndTurnBack) {
  const std::vector<int32_t> ids = tokens(100), blocks{2, 4};
  const OneLayer model({.rope = rope(RopePairs::halves, 32)});
  CachedModel run(model, KvType::f32);
  run.feed(std::span(ids).first(99), blocks, 0);
  const std::vector<float> expected = run.feed(std::span(ids).last(1), blocks, 99);
  for (const int64_t by : {30, 34, -64}) ASSERT_TRUE(run.rotate(blocks, by));
  EXPECT_LT(relative_difference(run.feed(std::span(ids).last(1), blocks, 99), expected), 1e-5);
}

TEST(RotateKeys, LeavesOtherBlocksAndKeysWithoutPositionsAlone) {
  const std::vector<int32_t> ids = tokens(130), blocks{0, 1, 2}, middle{1};
  const OneLayer rotary({.rope = rope(RopePairs::halves, 32)}), unplaced({.rope = std::nullopt});
  CachedModel turned(rotary, KvType::q4_0);
  turned.feed(ids, blocks, 0);
  const std::vector<std::byte> before = turned.cache();
  ASSERT_TRUE(turned.rotate(middle, 5));
  const std::vector<std::byte> after = turned.cache();
  const auto part = [&](const std::vector<std::byte>& cache, size_t half) {  // of the blocks: keys, then values
    const auto begin = cache.begin() + static_cast<ptrdiff_t>(half * turned.block_bytes() / 2);
    return std::vector(begin, begin + static_cast<ptrdiff_t>(turned.block_bytes() / 2));
  };
  for (const size_t half : {0, 1, 3, 4, 5}) EXPECT_EQ(part(before, half), part(after, half)) << half;
  EXPECT_NE(part(before, 2), part(after, 2));

  CachedModel plain(unplaced, KvType::f16);
  plain.feed(ids, blocks, 0);
  const std::vector<std::byte> same = plain.cache();
  ASSERT_TRUE(plain.rotate(blocks, 64));
  EXPECT_EQ(plain.cache(), same);
}

TEST(RotateKeys, RefusesWhatCannotBeRight) {
  const std::vector<int32_t> block{0}, outside{8};
  const auto refusal = [&](const Shapes& shapes) {
    const auto done = CachedModel(OneLayer(shapes), KvType::f16).rotate(block, 64);
    return done ? "" : done.error().code == ErrorCode::unsupported ? done.error().message : "another error";
  };
  EXPECT_NE(refusal({.rope = rope(RopePairs::halves, 32), .lookup = Lookup::position}).find("learned positions"),
            std::string::npos);
  EXPECT_NE(refusal({.rope = rope(RopePairs::halves, 32), .norm_keys = true}).find("after rotating"),
            std::string::npos);
  RopeInfo growing = rope(RopePairs::halves, 32);
  growing.growth = 0.1F;
  growing.growth_period = 64;
  EXPECT_NE(refusal({.rope = growing}).find("grow"), std::string::npos);
  EXPECT_EQ(refusal({.rope = rope(RopePairs::halves, 32), .lookup = Lookup::first}), "");

  const auto beyond = CachedModel(OneLayer({}), KvType::f16).rotate(outside, 64);
  ASSERT_FALSE(beyond);
  EXPECT_EQ(beyond.error().code, ErrorCode::invalid_argument);
}

TEST(RotateKeys, SimulatedDevicesPassItOn) {
  const OneLayer model({.rope = rope(RopePairs::halves, 32)});
  const auto device = simulate(std::move(*open_device("cpu", {.threads = 1, .isa = ""})), {}, nullptr);
  const auto executable =
      std::move(*device->compile(model.program, {.weights = model.views, .max_tokens = 4, .max_outputs = 1}));
  const auto cache = std::move(*device->allocate(executable->kv_block_bytes()));
  const std::vector<int32_t> block{0};
  EXPECT_TRUE(executable->rotate_keys(*cache, block, 1));
}

}  // namespace
}  // namespace nanomind
