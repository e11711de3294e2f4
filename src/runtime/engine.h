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
#include "runtime/picture.h"
#include "runtime/session_options.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"
#include "text/tool_calls.h"

namespace nanomind {

struct EngineOptions {
  std::filesystem::path model;          // a GGUF file
  std::filesystem::path packed_folder;  // where packed side files go; empty: beside the model
  std::filesystem::path vision;         // of a tower and a projector, may be `model`; empty: sees no pictures
  VisionBricks vision_bricks = VisionBricks::stay;
  std::filesystem::path picture_cache;  // folder for rows of pictures, so that known ones need no bricks; empty: none
  uint64_t picture_cache_bytes = kPictureCacheBytes;
  std::string device = "cpu";
  std::string isa;         // empty: the widest that runs
  int threads = 0;         // 0: as the two below
  int decode_threads = 0;  // 0: what suits this machine (DeviceOptions)
  int prefill_threads = 0;
  std::filesystem::path state_folder;  // where measurements of this machine are kept; empty: nowhere
  int64_t context = 0;  // tokens that a session may hold; 0: the smaller of the model's and kDefaultContext
  int64_t cache = 0;    // tokens that the KV cache holds for all sessions together; 0: those of one
  PromptPrecision precision = PromptPrecision::fast;
  KvType kv_type = KvType::f16;  // how keys and values are kept
  int64_t outputs = 16;          // most rows of logits that one step gives; `score` works in steps of that size
  uint64_t memory_bytes = 0;     // budget; 0: what the system has available less a reserve
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
  std::string_view kv_type;      // its type's name
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
  // nothing is cut unless the session slides); cancelled when the flag was set. `tokens` is not empty.
  virtual Result<void> feed(std::span<const TokenId> tokens, const std::atomic<bool>* cancel) = 0;
  // Logits [V] after the last token that `feed` evaluated; valid until the engine's next call that evaluates.
  virtual std::span<const float> logits() const = 0;
  // Those that are evaluated, also what has slid out since.
  virtual std::span<const TokenId> tokens() const = 0;
  virtual int64_t capacity() const = 0;

  // Feeds `prompt`, then samples until the end. On an error the session keeps what it had evaluated.
  virtual Result<Generation> generate(std::span<const TokenId> prompt, const GenerateOptions& options) = 0;

  // Logits of every position of `tokens` from position `first` on, in an otherwise empty session, row by row through
  // `on_row(position, logits)`. For perplexity.
  virtual Result<void> score(std::span<const TokenId> tokens, int64_t first,
                             const std::function<void(int64_t, std::span<const float>)>& on_row) = 0;

  // Writes tokens, cache and states to a file, so that a later session of the same model goes on at once. The file
  // appears when it is complete. Errors: no_space, io; invalid_argument where a picture was forgotten meanwhile.
  virtual Result<void> save(const std::filesystem::path& path) const = 0;
  // Becomes what such a file holds. Pictures in it must have been shown (Engine::see) before, in any order. Errors,
  // which leave the session as it was: not_found, corrupt, unsupported (of another version), invalid_argument (of
  // another model, kind of cache or vision file, or pictures were not shown), context_full, out_of_memory.
  virtual Result<void> restore(const std::filesystem::path& path) = 0;
};

// Answers of several sessions that are written together, several to a step, which reads the weights once for all. Not
// thread-safe; the engine must outlive it.
class Batch {
 public:
  virtual ~Batch() = default;
  // Begins another answer, at any time; the session is left alone until `on_end` is called, from `step`. What cannot
  // be answered is known here. Session, prompt and options as for Session::generate.
  virtual Result<void> add(Session& session, std::span<const TokenId> prompt, const GenerateOptions& options,
                           std::function<void(Result<Generation>)> on_end) = 0;
  // Evaluates one step; false when no answer is left. An answer that fails does not disturb the others.
  virtual bool step() = 0;
};

struct ChatOptions {
  std::string tools;             // JSON list as OpenAI has it; empty: none
  std::optional<bool> thinking;  // where the template lets one choose; absent: its own choice
};

// A conversation as the model wants it, and what to expect of its answer.
struct ChatPrompt {
  std::vector<TokenId> tokens;
  int64_t turn_end = 0;                       // for GenerateOptions
  std::optional<ReasoningOptions> reasoning;  // the same, of models that reason
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
  // A picture (a file's bytes) for messages. It is made into rows when a prompt with it is read.
  // Errors: unsupported without EngineOptions::vision and for other kinds of files, corrupt, invalid_argument (too
  // large).
  virtual Result<SeenPicture> see(std::span<const std::byte> file, const PictureDetail& detail = {}) = 0;
  // Makes rows of a picture once more, whatever was made before, and keeps none of them: for benchmarks. Errors as
  // `see`, and those of loading and running the bricks. Not beside other calls that evaluate.
  virtual Result<PictureMeasurement> measure_picture(std::span<const std::byte> file,
                                                     const PictureDetail& detail = {}) = 0;
  // A conversation by the file's template, in another order of roles where it refuses this one; unsupported when there
  // is none.
  virtual Result<ChatPrompt> chat_prompt(std::span<const Message> messages, const ChatOptions& options) const = 0;
  // Fails with out_of_memory when other sessions hold the cache, and with unsupported when the model does not write.
  virtual Result<std::unique_ptr<Session>> open_session(const SessionOptions& options = {}) = 0;
  virtual std::unique_ptr<Batch> open_batch() = 0;

  // The vector [E] of a text, of length 1, from a model that embeds; unsupported of others, context_full when the text
  // is too long. Not to be called from two threads at once, nor beside a session's calls.
  virtual Result<std::vector<float>> embed(std::string_view text) = 0;
  // How well a document answers a query, 0 to 1, from a model that ranks; errors as `embed`.
  virtual Result<float> rank(std::string_view query, std::string_view document) = 0;
};

}  // namespace nanomind
