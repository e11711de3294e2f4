// SPDX-License-Identifier: Apache-2.0
// Where everything that an executable computes with lies in its arena: values and their forms, rope tables, workspaces
// of instructions and of threads. What is never needed at the same time shares bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "device/cpu/compilation.h"
#include "device/cpu/forms.h"
#include "device/cpu/schedule.h"

namespace nanomind::cpu {

// Bytes of the arena. The offset is a multiple of 64.
struct Region {
  size_t offset = 0, bytes = 0;
};

struct Layout {
  std::vector<Region> values;            // parallel to Program::values: rows of the largest step, row_stride apart
  std::map<ValueId, Region> forms;       // of the schedule's forms
  std::vector<Region> ropes;             // parallel to Program::ropes: cosines, then sines, each [T, pairs] floats
  std::map<ValueId, Region> workspaces;  // result -> memory that experts and attention in integers have to themselves
  Region scratch, attention_parts;       // see StepContext
  size_t arena_bytes = 0;
};

// Floats from one row of a value to the next.
int64_t row_stride(const Program& program, ValueId id);

// For the largest step that the options allow. A pure function; the caller allocates the arena.
Layout lay_out(const Compilation& compilation, const Schedule& schedule, const FormChooser& chooser);

}  // namespace nanomind::cpu
