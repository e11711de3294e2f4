// SPDX-License-Identifier: Apache-2.0
#include "kernels/cpu/select.h"

#include "kernels/cpu/isa.h"

namespace nanomind {

std::vector<std::string> runnable_isas(uint32_t features) {
  std::vector<std::string> names;
  for (const Isa& isa : isas()) {
    if ((isa.needs & ~features) == 0) names.emplace_back(isa.name);
  }
  return names;
}

Result<KernelTable> select_kernels(std::string_view name, uint32_t features) {
  KernelTable table{};
  for (const Isa& isa : isas()) {
    if ((isa.needs & ~features) != 0) continue;
    isa.install(table);
    table.name = isa.name;
    table.needs = isa.needs;
    if (name == isa.name) return table;
  }
  if (name.empty()) return table;

  std::string choices;
  for (const std::string& choice : runnable_isas(features)) choices += (choices.empty() ? "" : ", ") + choice;
  return fail(ErrorCode::unsupported,
              "This CPU cannot run kernels for '" + std::string(name) + "'. Choose one of: " + choices + ".");
}

}  // namespace nanomind
