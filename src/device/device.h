// SPDX-License-Identifier: Apache-2.0
// The seam between what is computed (a Program) and where: what a place that can compute must offer. CPU, GPU, NPU and
// the simulated device differ only behind these three classes.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>
#include <string>

#include "base/result.h"
#include "device/kv_type.h"
#include "ops/program.h"

namespace nanomind {

struct DeviceInfo {
  std::string name;            // "cpu", "sim:cpu"
  std::string description;     // for people: "avx512, 2 threads"
  std::string isa;             // of the kernels in use, empty where the word means nothing
  int threads = 0;             // that compute at once at most, 0 where the word means nothing
  int decode_threads = 0;      // in steps of few tokens,
  int prefill_threads = 0;     // and of many
  std::string threads_reason;  // why these: "as measured once"
};

// Memory that a device can compute on; 64-byte aligned, zeroed when allocated. Freed with the object.
class Buffer {
 public:
  virtual ~Buffer() = default;
  virtual std::span<std::byte> bytes() = 0;
};

// Rows of one sequence in a step, after its `past` tokens. Its keys and values live in blocks of kKvBlockTokens tokens:
// position p in entry p / kKvBlockTokens of `blocks`, which must cover past + rows positions.
struct SequenceRows {
  std::span<const int32_t> blocks;
  int64_t past = 0;
  int64_t rows = 0;
  int32_t state = 0;  // slot of Step::states; its content counts as zero when past is 0
};
inline constexpr int64_t kKvBlockTokens = 64;

// One forward pass. Everything is borrowed for the call.
struct Step {
  std::span<const int32_t> tokens;          // [T] vocabulary ids, or below 0 for rows that are given
  std::span<const float* const> given;      // for each token below 0, in order, its row
  std::span<const SequenceRows> sequences;  // their rows add up to T, in order
  std::span<const int32_t> places;          // [T] rows of a table of positions; empty: each row's position
  std::span<const RowCoordinates> where;    // [T] for rotary positions with axes; empty: each row's position
  std::span<const int32_t> groups;          // lengths of runs of rows (Mask), which add up to T, none across sequences
  std::span<const int32_t> outputs;         // [R] rows (0..T-1) whose result is wanted; may be empty
  std::span<float> results;                 // [R, N]: where the results go; empty: memory of the executable
  Buffer* kv_cache = nullptr;               // whole blocks of Executable::kv_block_bytes
  Buffer* states = nullptr;                 // whole slots of Executable::state_bytes; null where those are 0
  const std::atomic<bool>* cancel = nullptr;  // set from any thread: the step ends soon, with `cancelled`; may be null
};

// Rows of floats: Step::results, else they belong to the executable and live until its next run.
struct OutputRows {
  const float* data = nullptr;
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // floats from one row to the next
  std::span<const float> row(int64_t i) const { return {data + i * stride, static_cast<size_t>(columns)}; }
};

class Executable {
 public:
  virtual ~Executable() = default;
  // Runs one step: T in 1..max_tokens, R in 0..max_outputs. Allocates nothing. One call at a time. An error leaves the
  // executable usable, and the cache rows and the states of this step undefined.
  virtual Result<OutputRows> run(const Step& step) = 0;
  // Bytes of one cache block over all layers: of each token, a kv_row_bytes for its key and one for its value in each
  // head.
  virtual size_t kv_block_bytes() const = 0;
  // Turns the keys in whole cache blocks, each named once, to positions that are lower by `by`, so that a sequence can
  // go on after tokens before them were dropped (StreamingLLM, arXiv 2309.17453). Layers whose keys carry no position
  // are left alone. One call at a time, none beside a run. `unsupported` where that cannot be right: models with
  // learned positions, with keys whose size grows with the position, or that change keys after their rotation; and of
  // devices that cannot do it. Nothing is changed by a call that fails.
  virtual Result<void> rotate_keys(Buffer& /*kv_cache*/, std::span<const int32_t> /*blocks*/, int64_t /*by*/) {
    return fail(ErrorCode::unsupported, "This device cannot move cached keys to other positions.");
  }
  // Bytes of what recurrent operations keep of one sequence; 0 for models without. To keep a state, copy a slot.
  virtual size_t state_bytes() const { return 0; }
  // Bytes that were allocated for activations.
  virtual size_t activation_bytes() const = 0;
};

// How exactly prompts are computed. Steps of few tokens are always as exact as `high`.
enum class PromptPrecision : uint8_t {
  fast,  // a device may trade accuracy for speed where a model loses least; it says how in its own documentation
  high,  // as exact as this device can
};

struct CompileOptions {
  // Parallel to Program::weights, and alive as long as the executable: matrices in the packed layout of
  // tensor/packed.h, vectors as floats.
  std::span<const std::span<const std::byte>> weights;
  int64_t max_tokens = 0;   // largest T of a step
  int64_t max_outputs = 0;  // largest R
  PromptPrecision precision = PromptPrecision::fast;
  KvType kv_type = KvType::f16;  // of the cache
};

class Device {
 public:
  virtual ~Device() = default;
  virtual const DeviceInfo& info() const = 0;
  virtual Result<std::unique_ptr<Buffer>> allocate(size_t bytes) = 0;
  // Operations per second (two per product and sum) of the widest product that this device's matmuls are made of,
  // measured now on everything that computes at once (some 10 ms): the ceiling of reading prompts.
  virtual double measure_peak() = 0;
  // The largest step that makes sense for prompts of a program, in tokens.
  virtual int64_t step_tokens(const Program& program) const = 0;
  // No step comes soon: threads that wait for one sleep at once, and leave their processors to another device. Not
  // while a step runs. Without it they sleep a little later.
  virtual void rest() {}
  // Checks the whole program and builds everything that run needs. `unsupported` names the first operation that this
  // device cannot run. The executable must not outlive the device.
  virtual Result<std::unique_ptr<Executable>> compile(const Program& program, const CompileOptions& options) = 0;
};

}  // namespace nanomind
