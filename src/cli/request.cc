// SPDX-License-Identifier: Apache-2.0
#include "cli/request.h"

#include <fmt/format.h>

#include "cli/models.h"

namespace nanomind {

Result<Request> split_words(const Context& context, std::string_view command, const std::vector<std::string>& words) {
  if (words.size() > 2) {
    return fail(ErrorCode::invalid_argument,
                fmt::format("{} takes MODEL and one question, but there are {} words. Put the question in quotes.",
                            command, words.size()));
  }
  if (words.size() == 2) return Request{.model = words[0], .question = words[1]};
  if (words.empty()) return Request{};
  if (TRY(names_model(context, words[0]))) return Request{.model = words[0], .question = {}};
  return Request{.model = {}, .question = words[0]};
}

}  // namespace nanomind
