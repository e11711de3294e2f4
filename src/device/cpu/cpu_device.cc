// SPDX-License-Identifier: Apache-2.0
#include "device/cpu/cpu_device.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/cpu_topology.h"
#include "base/thread_pool.h"
#include "device/cpu/calibration.h"
#include "device/cpu/compiler.h"
#include "device/cpu/host_buffer.h"
#include "device/cpu/instructions.h"
#include "device/cpu/key_rotation.h"
#include "device/cpu/step_size.h"
#include "kernels/cpu/select.h"

namespace nanomind {
namespace {

constexpr int kMaxThreads = 256;
constexpr int64_t kManyTokens = 16;  // from which a step is more like a prompt than like decoding

class CpuExecutable final : public Executable {
 public:
  CpuExecutable(cpu::CompiledProgram program, const KernelTable& kernels, ThreadPool& pool, cpu::ThreadCounts threads,
                const CompileOptions& options)
      : program_(std::move(program)),
        kernels_(kernels),
        pool_(pool),
        threads_(threads),
        max_tokens_(options.max_tokens),
        max_outputs_(options.max_outputs) {}

  Result<OutputRows> run(const Step& step) override {
    TRY(check(step));
    pool_.limit(static_cast<int64_t>(step.tokens.size()) < kManyTokens ? threads_.decode : threads_.prefill);
    cpu::fill_rope_tables(program_.ropes, step);
    if (program_.group_mask) cpu::find_groups(step, *program_.group_mask, program_.groups);
    cpu::StepContext context{.kernels = kernels_,
                             .pool = pool_,
                             .step = step,
                             .ropes = program_.ropes,
                             .groups = program_.groups,
                             .scratch = program_.scratch,
                             .attention_parts = program_.attention_parts,
                             .kv = step.kv_cache->bytes().data(),
                             .kv_block_bytes = program_.kv_block_bytes,
                             .states = step.states == nullptr ? nullptr : step.states->bytes().data(),
                             .state_bytes = program_.state_bytes};
    clear_new_states(context);
    const bool direct = send_results(step.results);
    for (const cpu::Instruction& instruction : program_.instructions) {
      if (step.cancel != nullptr && step.cancel->load(std::memory_order_relaxed))
        return fail(ErrorCode::cancelled, "Stopped.");
      std::visit([&](const auto& s) { cpu::run(s, context); }, instruction);
    }
    OutputRows rows{.data = program_.output.data,
                    .rows = static_cast<int64_t>(step.outputs.size()),
                    .columns = program_.output.columns,
                    .stride = program_.output.stride};
    if (step.results.empty()) return rows;
    if (!direct) {
      for (int64_t i = 0; i < rows.rows; ++i) std::ranges::copy(rows.row(i), step.results.begin() + i * rows.columns);
    }
    rows.data = step.results.data();
    rows.stride = rows.columns;
    return rows;
  }

  Result<void> rotate_keys(Buffer& kv_cache, std::span<const int32_t> blocks, int64_t by) override {
    if (!program_.key_ropes) return std::unexpected(program_.key_ropes.error());
    for (const int32_t block : blocks) TRY(check_block(block, kv_cache));
    std::vector<cpu::Turn> turns;
    for (const cpu::RopeTable& rope : program_.ropes) turns.emplace_back(rope.info, by);
    pool_.limit(threads_.prefill);
    const auto layers = static_cast<int64_t>(program_.kv_layers.size());
    pool_.for_each(layers * static_cast<int64_t>(blocks.size()), [&](int64_t task) {
      const auto layer = static_cast<size_t>(task % layers);
      const cpu::KvLayout& kv = program_.kv_layers[layer];
      const int32_t rope = (*program_.key_ropes)[layer];
      const auto block = static_cast<size_t>(blocks[static_cast<size_t>(task / layers)]);
      std::byte* base = kv_cache.bytes().data() + block * program_.kv_block_bytes;
      for (int head = 0; rope >= 0 && head < kv.heads; ++head) {
        cpu::turn_keys(*program_.kv_store(kv.types.keys), turns[static_cast<size_t>(rope)], kv.head_dim,
                       base + kv.keys(head));
      }
    });
    return {};
  }

  size_t kv_block_bytes() const override { return program_.kv_block_bytes; }
  size_t state_bytes() const override { return program_.state_bytes; }
  size_t activation_bytes() const override { return program_.arena_bytes; }

 private:
  // Lets the last instruction write to `results`, or where it is meant to if that is empty; false where it cannot.
  bool send_results(std::span<float> results) {
    cpu::Matrix* out = cpu::output_of(program_.instructions.back(), program_.output);
    // Kernels write whole row groups.
    const bool direct = out != nullptr && !results.empty() && program_.output.stride == program_.output.columns;
    if (out != nullptr) out->data = direct ? results.data() : program_.output.data;
    return direct;
  }
  static void clear_new_states(const cpu::StepContext& context) {
    if (context.state_bytes == 0) return;
    for (const SequenceRows& sequence : context.step.sequences) {
      if (sequence.past == 0) std::memset(context.state(sequence, 0), 0, context.state_bytes);
    }
  }

  Result<void> check(const Step& step) const {
    const auto tokens = static_cast<int64_t>(step.tokens.size());
    if (tokens < 1 || tokens > max_tokens_ || static_cast<int64_t>(step.outputs.size()) > max_outputs_) {
      return fail(ErrorCode::invalid_argument,
                  fmt::format("A step takes 1 to {} tokens and up to {} outputs.", max_tokens_, max_outputs_));
    }
    const auto given = std::ranges::count_if(step.tokens, [](int32_t token) { return token < 0; });
    if (!step.results.empty() && static_cast<int64_t>(step.results.size()) !=
                                     static_cast<int64_t>(step.outputs.size()) * program_.output.columns)
      return fail(ErrorCode::invalid_argument, "The room for results is not that of the rows wanted.");
    if (given != static_cast<int64_t>(step.given.size()))
      return fail(ErrorCode::invalid_argument, "The rows given do not match the tokens below 0.");
    for (int32_t token : step.tokens) {
      if (token >= program_.vocabulary) {
        return fail(ErrorCode::invalid_argument,
                    fmt::format("Token {} is outside the vocabulary of {}.", token, program_.vocabulary));
      }
    }
    for (int32_t row : step.outputs) {
      if (row < 0 || row >= tokens) return fail(ErrorCode::invalid_argument, "An output row is outside the step.");
    }
    TRY(check_extras(step));
    return check_sequences(step, tokens);
  }

  Result<void> check_extras(const Step& step) const {
    const size_t tokens = step.tokens.size();
    if ((!step.places.empty() && step.places.size() != tokens) || (!step.where.empty() && step.where.size() != tokens))
      return fail(ErrorCode::invalid_argument, "Places and coordinates are given for all rows of a step or for none.");
    for (const int32_t place : step.places) {
      if (program_.positions > 0 && (place < 0 || place >= program_.positions))
        return fail(ErrorCode::invalid_argument, fmt::format("Place {} is not one of {}.", place, program_.positions));
    }
    if (step.groups.empty()) return {};
    // Groups end where sequences do.
    size_t group = 0;
    for (const SequenceRows& sequence : step.sequences) {
      int64_t rows = 0;
      while (rows < sequence.rows && group < step.groups.size() && step.groups[group] > 0) rows += step.groups[group++];
      if (rows != sequence.rows)
        return fail(ErrorCode::invalid_argument, "The groups of a step do not add up to its sequences.");
    }
    if (group != step.groups.size())
      return fail(ErrorCode::invalid_argument, "The groups of a step do not add up to its sequences.");
    return {};
  }

  Result<void> check_sequences(const Step& step, int64_t tokens) const {
    if (step.kv_cache == nullptr) return fail(ErrorCode::invalid_argument, "A step needs a cache.");
    int64_t rows = 0;
    for (const SequenceRows& sequence : step.sequences) {
      if (sequence.past < 0 || sequence.rows < 1 ||
          sequence.past + sequence.rows > static_cast<int64_t>(sequence.blocks.size()) * kKvBlockTokens) {
        return fail(ErrorCode::invalid_argument, "A sequence's cache blocks do not cover its positions.");
      }
      if (program_.positions > 0 && step.places.empty() && sequence.past + sequence.rows > program_.positions)
        return fail(ErrorCode::context_full,
                    fmt::format("The model knows {} positions; shorten the text.", program_.positions));
      for (const int32_t block : sequence.blocks) TRY(check_block(block, *step.kv_cache));
      if (program_.state_bytes > 0 && !has_state(step, sequence))
        return fail(ErrorCode::invalid_argument, "A sequence's state is outside the states of the step.");
      rows += sequence.rows;
    }
    if (rows != tokens)
      return fail(ErrorCode::invalid_argument, "The sequences' rows do not add up to the step's tokens.");
    return {};
  }

  // A program without attention keeps nothing, so any block will do.
  Result<void> check_block(int32_t block, Buffer& kv_cache) const {
    if (block >= 0 && (static_cast<size_t>(block) + 1) * program_.kv_block_bytes <= kv_cache.bytes().size()) return {};
    return fail(ErrorCode::invalid_argument, "A cache block is outside the cache.");
  }

  bool has_state(const Step& step, const SequenceRows& sequence) const {
    if (step.states == nullptr || sequence.state < 0) return false;
    return (static_cast<size_t>(sequence.state) + 1) * program_.state_bytes <= step.states->bytes().size();
  }

  cpu::CompiledProgram program_;
  const KernelTable& kernels_;
  ThreadPool& pool_;
  cpu::ThreadCounts threads_;
  int64_t max_tokens_, max_outputs_;
};

class CpuDevice final : public Device {
 public:
  CpuDevice(const KernelTable& kernels, const CpuTopology& topology, const cpu::Calibration& chosen)
      : kernels_(kernels),
        threads_(chosen.threads),
        cache_bytes_(topology.cache_bytes),
        pool_(most(threads_), thread_places(topology, most(threads_))) {
    info_ = {.name = "cpu",
             .description = describe(kernels, threads_),
             .isa = kernels.name,
             .threads = most(threads_),
             .decode_threads = threads_.decode,
             .prefill_threads = threads_.prefill,
             .threads_reason = chosen.reason};
  }

  const DeviceInfo& info() const override { return info_; }

  double measure_peak() override {
    constexpr int64_t kRounds = int64_t{1} << 14, kChunks = 100;  // chunks of a fraction of a millisecond
    pool_.limit(pool_.threads());
    const auto start = std::chrono::steady_clock::now();
    double operations = kernels_.peak(kRounds);
    pool_.for_each(kChunks * pool_.threads(), [&](int64_t) { (void)kernels_.peak(kRounds); });
    operations *= static_cast<double>(1 + kChunks * pool_.threads());
    return operations / std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  }

  void rest() override { pool_.rest(); }

  int64_t step_tokens(const Program& program) const override { return cpu::step_tokens(program, cache_bytes_); }

  Result<std::unique_ptr<Buffer>> allocate(size_t bytes) override { return TRY(HostBuffer::allocate(bytes)); }

  Result<std::unique_ptr<Executable>> compile(const Program& program, const CompileOptions& options) override {
    cpu::CompiledProgram compiled = TRY(cpu::compile(program, options, kernels_, pool_.threads()));
    return std::make_unique<CpuExecutable>(std::move(compiled), kernels_, pool_, threads_, options);
  }

 private:
  static int most(cpu::ThreadCounts threads) { return std::max(threads.decode, threads.prefill); }
  static std::string describe(const KernelTable& kernels, cpu::ThreadCounts threads) {
    if (threads.decode != threads.prefill) {
      return fmt::format("{}, {} threads for answers and {} for prompts", kernels.name, threads.decode,
                         threads.prefill);
    }
    return fmt::format("{}, {} thread{}", kernels.name, threads.decode, threads.decode == 1 ? "" : "s");
  }

  KernelTable kernels_;
  cpu::ThreadCounts threads_;
  uint64_t cache_bytes_;
  ThreadPool pool_;
  DeviceInfo info_;
};

// What was asked for, and a measurement for the rest.
cpu::Calibration choose_threads(const DeviceOptions& options, const KernelTable& kernels, const CpuTopology& topology) {
  cpu::ThreadCounts asked{.decode = options.decode_threads, .prefill = options.prefill_threads};
  if (options.threads > 0) asked = {.decode = options.threads, .prefill = options.threads};
  if (asked.decode > 0 && asked.prefill > 0) return {.threads = asked, .reason = "as asked for"};
  cpu::Calibration chosen = cpu::calibrate(kernels, topology, options.state_folder);
  if (asked.decode > 0) chosen.threads.decode = asked.decode;
  if (asked.prefill > 0) chosen.threads.prefill = asked.prefill;
  if (asked.decode > 0 || asked.prefill > 0) chosen.reason = "one as asked for, the other " + chosen.reason;
  return chosen;
}

}  // namespace

Result<std::unique_ptr<Device>> open_cpu_device(const DeviceOptions& options) {
  for (const int threads : {options.threads, options.decode_threads, options.prefill_threads}) {
    if (threads >= 0 && threads <= kMaxThreads) continue;
    return fail(
        ErrorCode::invalid_argument,
        fmt::format("{} threads asked for; choose 1 to {}, or 0 for what suits the machine.", threads, kMaxThreads));
  }
  const KernelTable kernels = TRY(select_kernels(options.isa));
  const CpuTopology topology = read_cpu_topology("/", allowed_processors());
  return std::make_unique<CpuDevice>(kernels, topology, choose_threads(options, kernels, topology));
}

}  // namespace nanomind
