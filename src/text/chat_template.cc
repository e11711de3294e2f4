// SPDX-License-Identifier: Apache-2.0
#include "text/chat_template.h"

#include <nanomind_rust.h>

#include <utility>
#include <vector>

#include "text/rust_text.h"

namespace nanomind {
namespace {

// NanomindMessage::pictures.
int32_t pictures_of(const Message& message, ContentForm form) {
  if (form == ContentForm::text || (form == ContentForm::either && message.pictures.empty())) return -1;
  return static_cast<int32_t>(message.pictures.size());
}

}  // namespace

struct ChatTemplate::Impl {
  std::unique_ptr<NanomindTemplate, decltype(&nanomind_template_free)> handle{nullptr, &nanomind_template_free};
};

Result<ChatTemplate> ChatTemplate::parse(std::string_view source) {
  RustText error;
  auto impl = std::make_unique<Impl>();
  impl->handle.reset(nanomind_template_parse(lend(source), error.slot()));
  if (impl->handle == nullptr) return fail(ErrorCode::unsupported, error.take());
  ChatTemplate result(std::move(impl));
  if (result.lets_through(ContentForm::parts))
    result.form_ = result.lets_through(ContentForm::text) ? ContentForm::either : ContentForm::parts;
  return result;
}

ChatTemplate::ChatTemplate(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
ChatTemplate::ChatTemplate(ChatTemplate&&) noexcept = default;
ChatTemplate& ChatTemplate::operator=(ChatTemplate&&) noexcept = default;
ChatTemplate::~ChatTemplate() = default;

// Whether a text that is given in this form comes out.
bool ChatTemplate::lets_through(ContentForm form) const {
  constexpr std::string_view kText = "Is anybody there?";
  const Message message{.role = "user", .content = std::string(kText)};
  const auto rendered = render({&message, 1}, {}, form);
  if (!rendered || rendered->find(kText) == std::string::npos) return false;
  // One that knows texts only may print the list as it is.
  const bool listed =
      rendered->find("{'type'") != std::string::npos || rendered->find("{\"type\"") != std::string::npos;
  return form == ContentForm::text || !listed;
}

Result<std::string> ChatTemplate::render(std::span<const Message> messages, const TemplateOptions& options) const {
  return render(messages, options, form_);
}

Result<std::string> ChatTemplate::render(std::span<const Message> messages, const TemplateOptions& options,
                                         ContentForm form) const {
  std::vector<NanomindMessage> lent;
  lent.reserve(messages.size());
  for (const Message& message : messages) {
    lent.push_back({.role = lend(message.role),
                    .content = lend(message.content),
                    .pictures = pictures_of(message, form),
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
