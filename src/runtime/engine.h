// SPDX-License-Identifier: Apache-2.0
// The facade of the runtime: load a model, open sessions, generate text. The only header of runtime/ that programs
// include, besides sampler_options.h and generation.h for their options, and perplexity.h.
#pragma once

#include <atomic>
#include <cstdint>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/log.h"
#include "base/result.h"
#include "device/device.h"
#include "runtime/generation.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tool_calls.h"

namespace nanomind {

struct EngineOptions {
  std::filesystem::path model;          // a GGUF file
  std::filesystem::path packed_folder;  // where packed side files go; empty: beside the model
  std::string device = "cpu";
  std::string isa;         // empty: the widest that runs
  int threads = 0;         // 0: as the two below
  int decode_threads = 0;  // 0: what suits this machine (DeviceOptions)
  int prefill_threads = 0;
  std::filesystem::path state_folder;  // where measurements of this machine are kept; empty: nowhere
  int64_t context = 0;                 // tokens of the KV cache; 0: the smaller of the model's and kDefaultContext
  PromptPrecision precision = PromptPrecision::fast;
  int64_t outputs = 16;       // most rows of logits that one step gives; `score` works in steps of that size
  uint64_t memory_bytes = 0;  // budget; 0: what the system has available less a reserve
  Log log;
};
inline constexpr int64_t kDefaultContext = 8192;

struct EngineInfo {
  std::string architecture;
  std::string name;    // general.name of the file
  std::string device;  // DeviceInfo::description
  std::string isa;
  int threads = 0;  // at most; these in steps of few tokens and of many, and why:
  int decode_threads = 0;
  int prefill_threads = 0;
  std::string threads_reason;
  int64_t parameters = 0;
  uint64_t weight_bytes = 0;     // packed and mapped
  uint64_t decode_bytes = 0;     // weight bytes that one decode step reads
  uint64_t prompt_products = 0;  // multiply-adds of weights per token of a prompt, the output head left out
  uint64_t kv_bytes = 0;         // allocated for the cache
  uint64_t activation_bytes = 0;
  int64_t context = 0;  // tokens
  int64_t trained_context = 0;
  double load_ms = 0;       // open to ready
  bool packed_now = false;  // the side file was written by this load
};

// A conversation's tokens and its part of the KV cache. Not thread-safe; the engine must outlive it.
class Session {
 public:
  virtual ~Session() = default;

  // Makes the session hold exactly `tokens`, reusing the longest common prefix that is cached, and evaluates the rest,
  // so that `logits` are those after the last token. context_full when they do not fit (nothing is changed then, and
  // never is anything cut); cancelled when the flag was set. `tokens` is not empty.
  virtual Result<void> feed(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) = 0;
  // Logits [V] after the last token; valid until the next call that evaluates.
  virtual std::span<const float> logits() const = 0;
  virtual std::span<const TokenId> tokens() const = 0;
  virtual int64_t capacity() const = 0;

  // Feeds `prompt`, then samples until the end. On an error the session keeps what it had evaluated.
  virtual Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options) = 0;

  // Logits of every position of `tokens` from position `first` on, in an otherwise empty session, row by row through
  // `on_row(position, logits)`. For perplexity.
  virtual Result<void> score(std::span<const TokenId> tokens, int64_t first,
                             const std::function<void(int64_t, std::span<const float>)>& on_row) = 0;
};

struct ChatOptions {
  std::string tools;             // JSON list as OpenAI has it; empty: none
  std::optional<bool> thinking;  // where the template lets one choose; absent: its own choice
};

// A conversation as the model wants it, and what to expect of its answer.
struct ChatPrompt {
  std::vector<TokenId> tokens;
  std::optional<ReasoningOptions> reasoning;  // for GenerateOptions, of models that reason
  ToolFormat tool_format = ToolFormat::none;  // how the model writes calls
};

class Engine {
 public:
  static Result<std::unique_ptr<Engine>> load(const EngineOptions& options);
  virtual ~Engine() = default;

  virtual const EngineInfo& info() const = 0;
  virtual const Tokenizer& tokenizer() const = 0;
  // Null when the file carries no chat template (a base model).
  virtual const ChatTemplate* chat_template() const = 0;
  // A conversation by the file's template; unsupported when there is none.
  virtual Result<ChatPrompt> chat_prompt(std::span<const Message> messages, const ChatOptions& options) const = 0;
  // Fails with out_of_memory when other sessions hold the cache, and with unsupported when the model does not write.
  virtual Result<std::unique_ptr<Session>> open_session() = 0;

  // The vector [E] of a text, of length 1, from a model that embeds; unsupported of others, context_full when the text
  // is too long. Not to be called from two threads at once, nor beside a session's calls.
  virtual Result<std::vector<float>> embed(std::string_view text) = 0;
  // How well a document answers a query, 0 to 1, from a model that ranks; errors as `embed`.
  virtual Result<float> rank(std::string_view query, std::string_view document) = 0;
};

}  // namespace nanomind
