// SPDX-License-Identifier: Apache-2.0
// Expected values of tests/golden, as tools/golden wrote them. Tests run in the root of the source tree.
#pragma once

#include <fstream>
#include <nlohmann/json.hpp>
#include <string>

namespace nanomind::testing {

inline nlohmann::json golden(const std::string& name) {
  std::ifstream file("tests/golden/" + name + ".json");
  return nlohmann::json::parse(file);
}

}  // namespace nanomind::testing
