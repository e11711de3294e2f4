// SPDX-License-Identifier: Apache-2.0
#include "text/tool_calls.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "text/call_syntax.h"
#include "text/json_call.h"

namespace nanomind {
namespace {

constexpr std::string_view kSpace = " \t\r\n";
constexpr std::string_view kFence = "```";

// What stands around calls. Without `close` they go on to the end of the answer.
struct Markers {
  std::string_view open;
  std::string_view close;
};

std::vector<Markers> markers_of(ToolFormat format) {
  switch (format) {
    case ToolFormat::none: return {};
    case ToolFormat::hermes:
    case ToolFormat::xml: return {{"<tool_call>", "</tool_call>"}};
    case ToolFormat::llama: return {{"<|python_tag|>", ""}};
    case ToolFormat::gemma:
      return {{"```tool_code", kFence}, {"```tool_call", kFence}, {"```function_call", kFence}, {"```json", kFence}};
    case ToolFormat::mistral: return {{"[TOOL_CALLS]", ""}};
    case ToolFormat::lfm: return {{"<|tool_call_start|>", "<|tool_call_end|>"}};
  }
  return {};
}

// Where the longest end of `text` begins that is the beginning of `marker`.
size_t beginning_of(std::string_view marker, std::string_view text) {
  size_t i = text.size() - std::min(text.size(), marker.size() - 1);
  while (i < text.size() && !marker.starts_with(text.substr(i))) ++i;
  return i;
}

// The name in "f[ARGS]" or "f[CALL_ID]x[ARGS]", as Mistral writes it before the arguments.
std::string name_before_arguments(std::string_view text) {
  std::string name(text.substr(0, text.find('[')));
  name.erase(name.find_last_not_of(kSpace) + 1);
  return name;
}

}  // namespace

ToolFormat find_tool_format(std::string_view chat_template) {
  const auto has = [&](std::string_view marker) { return chat_template.find(marker) != std::string_view::npos; };
  if (!has("tools") && !has("tool_call")) return ToolFormat::none;
  if (has("<|tool_call_start|>") || has("<|tool_list_start|>")) return ToolFormat::lfm;
  if (has("<function=") && has("<parameter=")) return ToolFormat::xml;
  if (has("<tool_call>")) return ToolFormat::hermes;
  if (has("[TOOL_CALLS]") || has("[AVAILABLE_TOOLS]")) return ToolFormat::mistral;
  if (has("<|python_tag|>") || has("<|start_header_id|>")) return ToolFormat::llama;
  if (has("<start_of_turn>") || has("tool_code")) return ToolFormat::gemma;
  return ToolFormat::hermes;
}

std::vector<std::string> tool_markers(ToolFormat format) {
  std::vector<std::string> all;
  for (const auto& [open, close] : markers_of(format)) {
    for (const std::string_view marker : {open, close}) {
      if (!marker.empty() && !marker.starts_with(kFence)) all.emplace_back(marker);
    }
  }
  if (format == ToolFormat::mistral) all.insert(all.end(), {"[ARGS]", "[CALL_ID]"});
  return all;
}

class ToolCallParser::Impl {
 public:
  explicit Impl(ToolCallOptions options) : options_(std::move(options)), markers_(markers_of(options_.format)) {}

  std::vector<ToolEvent> push(std::string_view text) {
    held_ += text;
    while (step()) {
    }
    if (reader_) reader_->flush();
    return std::exchange(events_, {});
  }
  std::vector<ToolEvent> finish();

 private:
  enum class State {
    text,
    body,     // after an opening marker: which syntax?
    named,    // a name, then arguments (Mistral)
    json,     // in an object
    between,  // after an object
    whole,    // a body that is read when it is complete
  };

  // One step with what is held; false when more text is needed.
  bool step();
  bool read_text();
  bool read_body();
  bool read_named();
  bool read_json();
  bool read_between();
  bool read_whole();

  bool known(std::string_view name) const {
    return options_.names.empty() || std::ranges::find(options_.names, name) != options_.names.end();
  }
  bool may_be_bare() const { return options_.format == ToolFormat::llama || !options_.names.empty(); }
  void emit_text(std::string_view text);
  void emit(ToolEvent::Kind kind, std::string text = {}) {
    events_.push_back({.kind = kind, .index = count_, .text = std::move(text)});
  }
  void end_call(bool complete) {
    emit(complete ? ToolEvent::Kind::end : ToolEvent::Kind::cut);
    ++count_;
    reader_.reset();
  }
  // What was taken for a call is text.
  void give_up();
  void open(Markers markers, size_t start);
  void close();
  void start_reader(bool arguments_alone);
  void take_calls(std::string_view body);

  ToolCallOptions options_;
  std::vector<Markers> markers_;
  State state_ = State::text;
  bool at_start_ = true;     // nothing but white space so far
  bool after_call_ = false;  // white space is dropped
  std::string held_;
  std::string raw_;  // since the opening marker
  std::string_view close_;
  size_t count_ = 0;
  std::optional<JsonCallReader> reader_;
  std::vector<ToolEvent> events_;
};

void ToolCallParser::Impl::emit_text(std::string_view text) {
  if (text.empty()) return;
  at_start_ = at_start_ && text.find_first_not_of(kSpace) == std::string_view::npos;
  if (!events_.empty() && events_.back().kind == ToolEvent::Kind::text) {
    events_.back().text += text;
  } else {
    events_.push_back({.kind = ToolEvent::Kind::text, .index = count_, .text = std::string(text)});
  }
}

void ToolCallParser::Impl::give_up() {
  reader_.reset();
  at_start_ = after_call_ = false;
  emit_text(std::exchange(raw_, {}));
  state_ = State::text;
}

// A call begins at `start` of what is held, with white space before it that belongs to neither.
void ToolCallParser::Impl::open(Markers markers, size_t start) {
  const size_t text_end = start == 0 ? 0 : held_.find_last_not_of(kSpace, start - 1) + 1;
  emit_text(std::string_view(held_).substr(0, text_end));
  const size_t end = start + markers.open.size();
  raw_ = held_.substr(text_end, end - text_end);
  held_.erase(0, end);
  close_ = markers.close;
  state_ = State::body;
}

void ToolCallParser::Impl::close() {
  raw_.clear();
  state_ = State::text;
  after_call_ = true;
  at_start_ = false;
}

bool ToolCallParser::Impl::read_text() {
  if (markers_.empty()) {
    emit_text(std::exchange(held_, {}));
    return false;
  }
  const size_t first = held_.find_first_not_of(kSpace);
  if (after_call_) {
    held_.erase(0, first);
    if (held_.empty()) return false;
    after_call_ = false;
  }
  if (at_start_ && may_be_bare() && first != std::string::npos) {
    // Small models often forget the markers.
    const std::string_view rest = std::string_view(held_).substr(first);
    constexpr std::string_view kJsonFence = "```json";
    if (rest.starts_with('{')) return open({"", ""}, first), true;
    if (rest.starts_with(kJsonFence)) return open({kJsonFence, kFence}, first), true;
    if (kJsonFence.starts_with(rest)) return false;
  }
  size_t start = std::string::npos, certain = held_.size();
  Markers found;
  for (const Markers& markers : markers_) {
    if (const size_t at = held_.find(markers.open); at < start) start = at, found = markers;
    certain = std::min(certain, beginning_of(markers.open, held_));
  }
  if (start != std::string::npos) return open(found, start), true;
  certain = certain == 0 ? 0 : held_.find_last_not_of(kSpace, certain - 1) + 1;
  emit_text(std::string_view(held_).substr(0, certain));
  held_.erase(0, certain);
  return false;
}

void ToolCallParser::Impl::start_reader(bool arguments_alone) {
  const JsonCallReader::Sink sink = {
      .begin = [this](std::string name) { emit(ToolEvent::Kind::call, std::move(name)); },
      .arguments = [this](std::string piece) { emit(ToolEvent::Kind::arguments, std::move(piece)); }};
  if (arguments_alone) {
    reader_.emplace(JsonCallReader::of_arguments(sink));
  } else {
    reader_.emplace([this](std::string_view name) { return known(name); }, sink);
  }
  state_ = State::json;
}

bool ToolCallParser::Impl::read_body() {
  const size_t first = held_.find_first_not_of(kSpace);
  if (first == std::string::npos) return false;
  const char c = held_[first];
  if (c == '[') {
    const size_t second = held_.find_first_not_of(kSpace, first + 1);
    if (second == std::string::npos) return false;
    if (held_[second] == '{') {  // a list of objects
      raw_ += held_.substr(0, second);
      held_.erase(0, second);
      return start_reader(false), true;
    }
  }
  raw_ += held_.substr(0, first);
  held_.erase(0, first);
  if (c == '{') {
    start_reader(false);
  } else if (options_.format == ToolFormat::mistral && c != '[') {
    state_ = State::named;
  } else {
    state_ = State::whole;
  }
  return true;
}

bool ToolCallParser::Impl::read_named() {
  const size_t start = held_.find('{');
  if (start == std::string::npos) return false;
  const std::string name = name_before_arguments(std::string_view(held_).substr(0, start));
  raw_ += held_.substr(0, start);
  held_.erase(0, start);
  if (name.empty() || !known(name) || name.find_first_of(kSpace) != std::string::npos) return give_up(), true;
  emit(ToolEvent::Kind::call, name);
  start_reader(true);
  return true;
}

bool ToolCallParser::Impl::read_json() {
  for (size_t i = 0; i < held_.size(); ++i) {
    const JsonCallReader::State state = reader_->push(held_[i]);
    if (state == JsonCallReader::State::reading) continue;
    // The character that failed belongs to what follows.
    const size_t end = state == JsonCallReader::State::done ? i + 1 : i;
    raw_ += held_.substr(0, end);
    held_.erase(0, end);
    if (!reader_->begun()) return give_up(), true;
    end_call(state == JsonCallReader::State::done || reader_->end_early());
    state_ = State::between;
    return true;
  }
  raw_ += std::exchange(held_, {});
  return false;
}

bool ToolCallParser::Impl::read_between() {
  held_.erase(0, held_.find_first_not_of(" \t\r\n,;]"));
  if (held_.empty()) return false;
  if (held_[0] == '{') return raw_.clear(), start_reader(false), true;
  if (!close_.empty()) {
    if (held_.starts_with(close_)) return held_.erase(0, close_.size()), close(), true;
    if (close_.starts_with(held_)) return false;
  }
  close();
  return true;
}

void ToolCallParser::Impl::take_calls(std::string_view body) {
  auto calls = body.starts_with('<') ? read_xml_calls(body, options_.takes_text) : read_python_calls(body);
  if (!calls || !std::ranges::all_of(*calls, [this](const WrittenCall& call) { return known(call.name); })) {
    raw_ += body;
    raw_ += close_;
    return give_up();
  }
  for (WrittenCall& call : *calls) {
    emit(ToolEvent::Kind::call, std::move(call.name));
    emit(ToolEvent::Kind::arguments, std::move(call.arguments));
    end_call(true);
  }
  close();
}

bool ToolCallParser::Impl::read_whole() {
  const size_t end = close_.empty() ? std::string::npos : held_.find(close_);
  if (end == std::string::npos) return false;
  const std::string body = held_.substr(0, end);
  held_.erase(0, end + close_.size());
  take_calls(body);
  return true;
}

bool ToolCallParser::Impl::step() {
  switch (state_) {
    case State::text: return read_text();
    case State::body: return read_body();
    case State::named: return read_named();
    case State::json: return read_json();
    case State::between: return read_between();
    case State::whole: return read_whole();
  }
  return false;
}

std::vector<ToolEvent> ToolCallParser::Impl::finish() {
  if (state_ == State::json && reader_->begun()) {
    end_call(reader_->end_early());
  } else if (state_ == State::whole) {
    close_ = {};
    take_calls(std::exchange(held_, {}));
  } else if (state_ == State::between) {
    held_.clear();
  } else {
    emit_text(std::exchange(raw_, {}) + std::exchange(held_, {}));
  }
  return std::exchange(events_, {});
}

ToolCallParser::ToolCallParser(ToolCallOptions options) : impl_(std::make_unique<Impl>(std::move(options))) {}
ToolCallParser::~ToolCallParser() = default;
ToolCallParser::ToolCallParser(ToolCallParser&&) noexcept = default;
ToolCallParser& ToolCallParser::operator=(ToolCallParser&&) noexcept = default;

std::vector<ToolEvent> ToolCallParser::push(std::string_view text) { return impl_->push(text); }
std::vector<ToolEvent> ToolCallParser::finish() { return impl_->finish(); }

}  // namespace nanomind
