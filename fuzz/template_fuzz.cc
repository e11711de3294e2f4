// SPDX-License-Identifier: Apache-2.0
// Any bytes as a chat template: parsing and rendering end in a prompt or an error, soon and within bounds.
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/result.h"
#include "text/chat_template.h"

using namespace nanomind;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<Message> messages = {{"system", "Be brief."}, {"user", "Why?\n"}, {"assistant", " <b> "}};
  const auto chat_template = ChatTemplate::parse({reinterpret_cast<const char*>(data), size});
  if (!chat_template) {
    CHECK(!chat_template.error().message.empty());
    return 0;
  }
  const auto prompt = chat_template->render(messages, {.bos_token = "<s>", .eos_token = "</s>"});
  CHECK(prompt ? prompt->size() < (17u << 20) : !prompt.error().message.empty());
  return 0;
}
