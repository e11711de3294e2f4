// SPDX-License-Identifier: Apache-2.0
// Turns a Program into instructions with resolved pointers: checks that it can run, then goes from its schedule and its
// layout to one instruction for each node.
#pragma once

#include <array>
#include <iterator>
#include <memory>
#include <optional>
#include <vector>

#include "base/result.h"
#include "device/cpu/host_buffer.h"
#include "device/cpu/instructions.h"
#include "device/device.h"

namespace nanomind::cpu {

struct CompiledProgram {
  std::vector<Instruction> instructions;
  std::vector<RopeTable> ropes;
  Matrix output;
  int64_t vocabulary = 0;  // rows of the embedding: token ids are below
  int64_t positions = 0;   // rows of a table of positions; 0: there is none
  std::array<std::unique_ptr<KvStore>, std::size(kKvTypes)> kv_stores;  // by type
  std::vector<KvLayout> kv_layers;
  Result<std::vector<int32_t>> key_ropes;         // see key_rotation.h
  size_t kv_block_bytes = 0;                      // all layers
  size_t state_bytes = 0;                         // of one sequence
  std::span<std::byte> scratch, attention_parts;  // see StepContext
  std::optional<Mask> group_mask;                 // of attention that looks at groups of rows
  std::vector<RowGroup> groups;                   // room for those of the largest step
  std::unique_ptr<HostBuffer> arena;
  size_t arena_bytes = 0;

  const KvStore* kv_store(KvType type) const { return kv_stores[static_cast<size_t>(type)].get(); }
};

// Where the last instruction writes the program's output; null when it changes it in place.
Matrix* output_of(Instruction& last, const Matrix& output);

// For runs by `threads` threads; `kernels` must outlive the result.
Result<CompiledProgram> compile(const Program& program, const CompileOptions& options, const KernelTable& kernels,
                                int threads);

}  // namespace nanomind::cpu
