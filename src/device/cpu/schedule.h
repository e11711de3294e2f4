// SPDX-License-Identifier: Apache-2.0
// Which instructions a program becomes, in which order: products of the same value are one, and a value that products
// read in another form than floats is brought into it where it is made, or by an instruction of its own.
#pragma once

#include <map>
#include <vector>

#include "device/cpu/forms.h"
#include "device/cpu/nodes.h"

namespace nanomind::cpu {

struct Schedule {
  std::vector<Node> nodes;        // one for each instruction; they point into the program, which outlives them
  std::map<ValueId, Form> forms;  // of the values that products read in another form than floats
};

Schedule schedule_program(const Program& program, const FormChooser& chooser);

}  // namespace nanomind::cpu
