// SPDX-License-Identifier: Apache-2.0
// The text of catalog/models.json as it was when the program was built.
#pragma once

#include <string_view>

namespace nanomind {

std::string_view builtin_catalog_json();

}  // namespace nanomind
