// SPDX-License-Identifier: Apache-2.0
// What commands that write model files share: their threads, their type names, their progress.
#pragma once

#include <filesystem>
#include <functional>
#include <string>
#include <string_view>

#include "base/result.h"
#include "cli/context.h"
#include "convert/row_writer.h"
#include "tensor/dtype.h"

namespace nanomind {

// Calls `work` with all threads that compute here (or `threads`, when it is positive), with progress on standard error,
// and with Ctrl-C as the request to stop.
Result<void> run_file_work(const Context& context, std::string_view label, int threads,
                           const std::function<Result<void>(const WriteOptions&)>& work);

// "q8_0", in any case.
Result<DType> parse_dtype(std::string_view text);

// Fails when `target` is no name for a GGUF file, or is the source itself.
Result<void> check_target(const std::filesystem::path& source, const std::filesystem::path& target);

}  // namespace nanomind
