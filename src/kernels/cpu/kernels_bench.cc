// SPDX-License-Identifier: Apache-2.0
// Speed of the kernels as a share of what this machine can do, both measured in the same run: one activation row
// against a plain read of memory, more rows against the products from registers that the ISA's matmuls are made of (an
// activation has two planes there, and both count). The table is the widest, or the one named by NANOMIND_ISA. Weights
// take 512 MiB per thread, more than any cache. bench/kernels.py makes a table of what this prints.
#include <benchmark/benchmark.h>
#include <sys/mman.h>

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "kernels/cpu/select.h"
#include "tensor/packed.h"

namespace nanomind {
namespace {

constexpr size_t kBytesPerThread = size_t{512} << 20;
constexpr int64_t kColumns = 2048;
constexpr int kChunkGroups = 8;

const KernelTable& table() {
  static const KernelTable chosen = [] {
    const char* name = std::getenv("NANOMIND_ISA");
    const Result<KernelTable> result = select_kernels(name == nullptr ? "" : name);
    if (!result) {
      std::fprintf(stderr, "%s\n", result.error().message.c_str());
      std::exit(2);
    }
    return *result;
  }();
  return chosen;
}

struct AlignedDelete {
  void operator()(std::byte* p) const { ::operator delete(p, std::align_val_t{1 << 21}); }
};

// Bytes of thread `index`, made once; their values are valid codes and scales of every type, none so small that
// products would be subnormal.
const std::byte* memory(int index) {
  static std::mutex mutex;
  static std::vector<std::unique_ptr<std::byte, AlignedDelete>> buffers;
  const std::scoped_lock lock(mutex);
  while (static_cast<int>(buffers.size()) <= index) {
    buffers.emplace_back(static_cast<std::byte*>(::operator new(kBytesPerThread, std::align_val_t{1 << 21})));
    // With pages of 4 KiB the TLB, not memory, would be the limit of all but the largest blocks.
    madvise(buffers.back().get(), kBytesPerThread, MADV_HUGEPAGE);
    std::memset(buffers.back().get(), 0x35, kBytesPerThread);
  }
  return buffers[static_cast<size_t>(index)].get();
}

uint64_t read_all(const std::byte* from) {
  uint64_t sums[8] = {};
  for (size_t i = 0; i < kBytesPerThread; i += sizeof sums) {
    for (int k = 0; k < 8; ++k) sums[k] ^= reinterpret_cast<const uint64_t*>(from + i)[k];
  }
  return sums[0] ^ sums[1] ^ sums[2] ^ sums[3] ^ sums[4] ^ sums[5] ^ sums[6] ^ sums[7];
}

// Bytes per second of one thread, the best of a few passes.
double read_bandwidth() {
  static const double bandwidth = [] {
    const std::byte* from = memory(0);
    double best = 0;
    for (int pass = 0; pass < 5; ++pass) {
      const auto start = std::chrono::steady_clock::now();
      benchmark::DoNotOptimize(read_all(from));
      const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
      best = std::max(best, static_cast<double>(kBytesPerThread) / seconds);
    }
    return best;
  }();
  return bandwidth;
}

// Operations per second of one thread in the products that matmuls are made of, the best of a few runs.
double measure_peak() {
  constexpr int64_t kRounds = 1 << 20;
  double best = 0;
  for (int run = 0; run < 5; ++run) {
    const auto start = std::chrono::steady_clock::now();
    const double operations = table().peak(kRounds);
    best = std::max(best, operations / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  return best;
}

double int8_peak() {
  static const double peak = measure_peak();
  return peak;
}

benchmark::Counter rate(double total) { return {total, benchmark::Counter::kIsIterationInvariantRate}; }

void read(benchmark::State& state) {
  const std::byte* from = memory(state.thread_index());
  for (auto _ : state) benchmark::DoNotOptimize(read_all(from));
  state.counters["bytes/s"] = rate(static_cast<double>(kBytesPerThread));
}

void int8_dot_peak(benchmark::State& state) {
  double best = 0;
  for (auto _ : state) best = std::max(best, measure_peak());
  state.counters["ops/s"] = best;
}

struct IntType {
  DType dtype;
  IntWeight weight;
};

void int_matmul(benchmark::State& state, IntType type, int m) {
  const std::byte* weights = memory(state.thread_index());
  const size_t group_bytes = packed_group_bytes(type.dtype, kColumns);
  const int chunks = static_cast<int>(kBytesPerThread / group_bytes / kChunkGroups);
  std::vector<ActivationUnit> x(static_cast<size_t>(m * kColumns / kUnitColumns));
  std::memset(static_cast<void*>(x.data()), 1, x.size() * sizeof(ActivationUnit));
  std::vector<float> out(static_cast<size_t>(m * kChunkGroups * kGroupRows));
  IntMatmulArgs args{.weights = weights,
                     .group_bytes = group_bytes,
                     .groups = kChunkGroups,
                     .blocks = kColumns / packed_traits(type.dtype).block_columns,
                     .x = x.data(),
                     .x_stride = kColumns / kUnitColumns,
                     .m = m,
                     .out = out.data(),
                     .out_stride = kChunkGroups * kGroupRows};
  const IntMatmul matmul = table().matmul[static_cast<int>(type.weight)];
  for (auto _ : state) {
    for (int i = 0; i < chunks; ++i) {
      args.weights = weights + static_cast<size_t>(i) * kChunkGroups * group_bytes;
      matmul(args);
      benchmark::ClobberMemory();
    }
  }
  const double groups = static_cast<double>(chunks) * kChunkGroups;
  const double bytes = groups * static_cast<double>(group_bytes);
  const double ops = groups * kGroupRows * kColumns * m * 2 * 2;  // product and sum, two planes
  state.counters["bytes/s"] = rate(bytes);
  state.counters["ops/s"] = rate(ops);
  if (state.threads() == 1) {
    state.counters["of_read"] = rate(bytes / read_bandwidth());
    if (int8_peak() > 0) state.counters["of_peak"] = rate(ops / int8_peak());
  }
}

void gemm(benchmark::State& state, IntType type, GemmKernels KernelTable::* kind, int64_t rows) {
  const GemmKernels& kernels = table().*kind;
  const std::byte* weights = memory(state.thread_index());
  const size_t group_bytes = packed_group_bytes(type.dtype, kColumns);
  const int chunks = static_cast<int>(kBytesPerThread / group_bytes / kChunkGroups / static_cast<size_t>(rows));
  const auto aligned = [](size_t size) {
    return std::unique_ptr<std::byte, AlignedDelete>(
        static_cast<std::byte*>(::operator new(size, std::align_val_t{1 << 21})));
  };
  const auto x = aligned(kernels.packed_bytes(rows, kColumns)), scratch = aligned(kernels.scratch_bytes(kColumns));
  std::vector<float> source(kColumns, 0.5f);
  for (int64_t row = 0; row < rows; ++row) kernels.pack(source.data(), 0, kColumns, kColumns, row, x.get());
  std::vector<float> out(static_cast<size_t>(rows * kChunkGroups * kGroupRows));
  for (auto _ : state) {
    for (int i = 0; i < chunks; ++i) {
      kernels.multiply[static_cast<int>(type.weight)]({
          .weights = weights + static_cast<size_t>(i) * kChunkGroups * group_bytes,
          .group_bytes = group_bytes,
          .groups = kChunkGroups,
          .columns = kColumns,
          .x = x.get(),
          .rows = rows,
          .out = out.data(),
          .out_stride = kChunkGroups * kGroupRows,
          .scratch = scratch.get(),
      });
      benchmark::ClobberMemory();
    }
  }
  const double ops = static_cast<double>(chunks) * kChunkGroups * kGroupRows * kColumns * static_cast<double>(rows) * 2;
  state.counters["ops/s"] = rate(ops);
  if (state.threads() == 1 && int8_peak() > 0) state.counters["of_peak"] = rate(ops / int8_peak());
}

constexpr int kHeadWidth = 128, kQueries = 6;

void attention_scores(benchmark::State& state) {
  const std::vector<uint16_t> keys(kHeadWidth * kKvBlock, 0x3800);
  const std::vector<float> q(kHeadWidth * kQueries, 0.5f);
  std::vector<float> scores(kQueries * kKvBlock);
  for (auto _ : state) {
    table().qk(q.data(), kHeadWidth, kQueries, keys.data(), kHeadWidth, scores.data());
    benchmark::ClobberMemory();
  }
  state.counters["flop/s"] = rate(2.0 * kQueries * kKvBlock * kHeadWidth);
}

void attention_values(benchmark::State& state) {
  const std::vector<uint16_t> values(kHeadWidth * kKvBlock, 0x3800);
  const std::vector<float> p(kQueries * kKvBlock, 0.5f), correction(kQueries, 0.5f);
  std::vector<float> out(kQueries * kHeadWidth);
  for (auto _ : state) {
    table().pv(p.data(), kQueries, values.data(), 0, kKvBlock, kHeadWidth, correction.data(), out.data(), kHeadWidth);
    benchmark::ClobberMemory();
  }
  state.counters["flop/s"] = rate(2.0 * kQueries * kKvBlock * kHeadWidth);
}

void quantize(benchmark::State& state) {
  const std::vector<float> x(kColumns, 0.5f);
  std::vector<ActivationUnit> out(kColumns / kUnitColumns);
  for (auto _ : state) {
    table().quantize(x.data(), kColumns, out.data());
    benchmark::ClobberMemory();
  }
  state.counters["floats/s"] = rate(kColumns);
}

void register_all() {
  benchmark::RegisterBenchmark("read", read)->ThreadRange(1, 2)->UseRealTime();
  benchmark::RegisterBenchmark("int8_dot_peak", int8_dot_peak);
  constexpr IntType kTypes[] = {
      {DType::q4_0, IntWeight::q4_0},  {DType::q4_1, IntWeight::q4_1},     {DType::q5_0, IntWeight::q5_0},
      {DType::q5_1, IntWeight::q5_1},  {DType::q8_0, IntWeight::q8_0},     {DType::q2_k, IntWeight::q2_k},
      {DType::q3_k, IntWeight::q3_k},  {DType::q4_k, IntWeight::q4_k},     {DType::q5_k, IntWeight::q5_k},
      {DType::q6_k, IntWeight::q6_k},  {DType::iq4_nl, IntWeight::iq4_nl}, {DType::iq4_xs, IntWeight::iq4_xs},
      {DType::mxfp4, IntWeight::mxfp4}};
  for (const IntType type : kTypes) {
    for (const int m : {1, 8}) {
      const std::string name = "matmul/" + std::string(traits(type.dtype).name) + "/m:" + std::to_string(m);
      benchmark::RegisterBenchmark(name.c_str(), int_matmul, type, m)->ThreadRange(1, 2)->UseRealTime();
    }
  }
  for (const IntType type : kTypes) {
    for (const auto& [kind, kernels] :
         {std::pair{"gemm", &KernelTable::gemm}, {"gemm_fast", &KernelTable::gemm_fast}}) {
      if ((table().*kernels).packed_bytes == nullptr) continue;
      for (const int rows : {16, 32, 128, 512}) {
        const std::string name = kind + ("/" + std::string(traits(type.dtype).name)) + "/m:" + std::to_string(rows);
        benchmark::RegisterBenchmark(name.c_str(), gemm, type, kernels, rows)->ThreadRange(1, 2)->UseRealTime();
      }
    }
  }
  benchmark::RegisterBenchmark("qk", attention_scores);
  benchmark::RegisterBenchmark("pv", attention_values);
  benchmark::RegisterBenchmark("quantize", quantize);
}

}  // namespace
}  // namespace nanomind

int main(int argc, char** argv) {
  benchmark::Initialize(&argc, argv);
  if (benchmark::ReportUnrecognizedArguments(argc, argv)) return 2;
  benchmark::AddCustomContext("isa", nanomind::table().name);
  nanomind::register_all();
  benchmark::RunSpecifiedBenchmarks();
  benchmark::Shutdown();
  return 0;
}
