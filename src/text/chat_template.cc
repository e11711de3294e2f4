// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <nanomind_rust.h>

#include <utility>
#include <vector>

#include "text/rust_text.h"

namespace nanomind {

struct ChatTemplate::Impl {
  std::unique_ptr<NanomindTemplate, decltype(&nanomind_template_free)> handle{nullptr, &nanomind_template_free};
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  RustText error;
  auto impl = std::make_unique<Impl>();
  impl->handle.reset(nanomind_template_parse(lend(source), error.slot()));
  if (impl->handle == nullptr) return fail(ErrorCode::unsupported, error.take());
  return ChatTemplate(std::move(impl));
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

Result<std::string> ChatTemplate::render(std::span<const Message> messages, const TemplateOptions& options) const {
  std::vector<NanomindMessage> lent;
  lent.reserve(messages.size());
  for (const Message& message : messages) {
    lent.push_back({.role = lend(message.role),
                    .content = lend(message.content),
                    .reasoning = lend(message.reasoning),
                    .tool_calls = lend(message.tool_calls),
                    .tool_call_id = lend(message.tool_call_id),
                    .name = lend(message.name)});
  }
  const NanomindTemplateInput input = {
      .messages = lent.data(),
      .message_count = lent.size(),
      .bos_token = lend(options.bos_token),
      .eos_token = lend(options.eos_token),
      .add_generation_prompt = options.prompt == TemplateOptions::Prompt::generation ? 1 : 0,
      .tools = lend(options.tools),
      .thinking = options.thinking ? (*options.thinking ? 1 : 0) : -1,
  };
  RustText result;
  const bool failed = nanomind_template_render(impl_->handle.get(), &input, result.slot()) != 0;
  if (failed) return fail(ErrorCode::invalid_argument, result.take());
  return result.take();
}

}  // namespace nanomind
