// SPDX-License-Identifier: Apache-2.0
#include "runtime/engine.h"

#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/thread_pool.h"
#include "device/device.h"
#include "device/registry.h"
#include "format/gguf.h"
#include "format/packed_file.h"
#include "models/registry.h"
#include "runtime/batch.h"
#include "runtime/embedding.h"
#include "runtime/kv_cache.h"
#include "runtime/memory_budget.h"
#include "runtime/picture_places.h"
#include "runtime/session.h"
#include "runtime/sight.h"
#include "runtime/state_store.h"
#include "runtime/vision_match.h"
#include "runtime/weight_binding.h"
#include "tensor/packed.h"

namespace nanomind {
namespace {

// Of recurrent models: open sessions and snapshots.
constexpr int32_t kStateSlots = 8;

uint64_t bytes_per_step(const Program& program) {
  double bytes = 0;
  for_each_product(program, [&](const WeightInfo& info, double part, Rows) {
    bytes += part * static_cast<double>(packed_bytes(info.dtype, info.shape.rows(), info.shape.columns()));
  });
  return static_cast<uint64_t>(bytes);
}

uint64_t products_per_prompt_token(const Program& program) {
  double products = 0;
  for_each_product(program, [&](const WeightInfo& info, double part, Rows rows) {
    if (rows == Rows::tokens) products += part * static_cast<double>(info.shape.elements());
  });
  return static_cast<uint64_t>(products);
}

int64_t count_parameters(const GgufFile& file) {
  int64_t count = 0;
  for (const GgufTensor& tensor : file.tensors()) count += tensor.shape.elements();
  return count;
}

DeviceOptions device_options(const EngineOptions& options) {
  return {.threads = options.threads,
          .decode_threads = options.decode_threads,
          .prefill_threads = options.prefill_threads,
          .state_folder = options.state_folder,
          .isa = options.isa};
}

class LocalEngine final : public Engine {
 public:
  explicit LocalEngine(GgufFile file) : file_(std::move(file)) {}

  Result<void> load(const EngineOptions& options, std::chrono::steady_clock::time_point start) {
    Model model = TRY(build_model(file_));
    TRY(choose_context(model, options));
    fit_context(model, context_);
    tokenizer_ = TRY(make_tokenizer(file_));
    if (tokenizer_->vocabulary_size() > model.vocabulary) {
      return fail(
          ErrorCode::corrupt,
          fmt::format("The tokenizer has {} tokens, but the model's vocabulary is {}; the file does not fit together.",
                      tokenizer_->vocabulary_size(), model.vocabulary));
    }
    grammar_vocabulary_.emplace(*tokenizer_);
    load_template(options.log);
    TRY(load_weights(model, options));
    TRY(prepare_device(model, options));
    describe(model);
    info_.load_ms = milliseconds_since(start);
    return {};
  }

  const EngineInfo& info() const override { return info_; }
  const Tokenizer& tokenizer() const override { return *tokenizer_; }
  const ChatTemplate* chat_template() const override { return template_ ? &*template_ : nullptr; }

  Result<ChatPrompt> chat_prompt(std::span<const Message> messages, const ChatOptions& options) const override {
    if (!template_)
      return fail(ErrorCode::unsupported,
                  "The model's file has no chat template: it continues text (--raw) and does not chat.");
    const auto spelling = [&](std::optional<TokenId> id) { return id ? tokenizer_->piece(*id) : std::string_view(); };
    const std::string_view bos = spelling(tokenizer_->beginning_token());
    ChatPrompt prompt{.reasoning = reasoning_, .tool_format = tool_format_};
    const PicturePlaces places(messages);
    const auto encode = [&](TemplateOptions::Prompt opening) -> Result<std::vector<TokenId>> {
      const std::string text = TRY(places.render(*template_, {.bos_token = bos,
                                                              .eos_token = spelling(tokenizer_->end_token()),
                                                              .prompt = opening,
                                                              .tools = options.tools,
                                                              .thinking = options.thinking}));
      if (opening == TemplateOptions::Prompt::generation && reasoning_ && opens_reasoning(reasoning_->markers, text))
        prompt.reasoning->start = ReasoningSplitter::Start::reasoning;
      // Most templates write the beginning token themselves; it must not come twice.
      const bool has_bos = !bos.empty() && text.starts_with(bos);
      return places.encode(*tokenizer_, text, has_bos ? Beginning::omit : Beginning::add_if_model_does);
    };
    prompt.tokens = TRY(encode(TemplateOptions::Prompt::generation));
    if (executable_->state_bytes() == 0) return prompt;
    // What a template opens an answer with, such as empty thoughts, often goes when the answer is history.
    if (const auto closed = encode(TemplateOptions::Prompt::none))
      prompt.turn_end = std::ranges::mismatch(prompt.tokens, *closed).in1 - prompt.tokens.begin();
    return prompt;
  }

  Result<SeenPicture> see(std::span<const std::byte> file, const PictureDetail& detail) override {
    TRY(expect_sight());
    const Picture* picture = TRY(sight_->see(file, detail));
    return SeenPicture{
        .prompt = picture->prompt, .size = picture->size, .rows = picture->count, .tiles = picture->places};
  }

  Result<PictureMeasurement> measure_picture(std::span<const std::byte> file, const PictureDetail& detail) override {
    TRY(expect_sight());
    return sight_->measure(file, detail);
  }

  Result<std::unique_ptr<Session>> open_session(const SessionOptions& options) override {
    TRY(expect(ResultKind::logits));
    return LocalSession::open(host_, options);
  }
  std::unique_ptr<Batch> open_batch() override { return std::make_unique<LocalBatch>(host_); }

  Result<std::vector<float>> embed(std::string_view text) override {
    TRY(expect(ResultKind::embedding));
    std::vector<float> vector = TRY(pool_text(host_, embedding_, text_tokens(*tokenizer_, text)));
    normalise(vector);
    return vector;
  }

  Result<float> rank(std::string_view query, std::string_view document) override {
    TRY(expect(ResultKind::rank));
    const std::string_view rank_template = file_.get_string("tokenizer.chat_template.rerank").value_or("");
    const std::vector<TokenId> tokens = pair_tokens(*tokenizer_, rank_template, query, document);
    return score_of(TRY(pool_text(host_, embedding_, tokens)));
  }

 private:
  Result<void> expect_sight() const {
    if (sight_) return {};
    return fail(
        ErrorCode::unsupported,
        "This model cannot see: it was opened without a vision file (--mmproj FILE, published with the model).");
  }

  Result<void> expect(ResultKind kind) const {
    if (kind == kind_) return {};
    switch (kind_) {
      case ResultKind::embedding:
        return fail(ErrorCode::unsupported, "This model makes vectors of texts; use it with `nanomind embed`.");
      case ResultKind::rank:
        return fail(ErrorCode::unsupported, "This model ranks documents; use it with `nanomind rerank`.");
      case ResultKind::logits: break;
    }
    return fail(ErrorCode::unsupported,
                "This model writes text; choose one that was made for this, for example `minilm` to embed.");
  }

  Result<void> choose_context(const Model& model, const EngineOptions& options) {
    if (options.context < 0)
      return fail(ErrorCode::invalid_argument, "The context must be a positive number of tokens.");
    context_ = options.context > 0 ? options.context : std::min(model.context_length, kDefaultContext);
    if (context_ > model.context_length) {
      options.log.warning(fmt::format(
          "A context of {} tokens is longer than the {} that the model was trained for; answers may suffer.", context_,
          model.context_length));
    }
    cache_tokens_ = std::max(options.cache, context_);
    const uint64_t budget = options.memory_bytes > 0 ? options.memory_bytes : available_memory();
    const double kv_bytes =
        static_cast<double>(cache_tokens_) * static_cast<double>(kv_bytes_per_token(model.program, options.kv_type));
    const uint64_t capped = kv_bytes < 9e18 ? static_cast<uint64_t>(kv_bytes) : uint64_t{9'000'000'000'000'000'000};
    return check_memory({.weight_bytes = matrix_bytes(model.program), .kv_bytes = capped, .context = cache_tokens_},
                        budget);
  }

  void load_template(const Log& log) {
    const Result<std::string_view> source = file_.get_string("tokenizer.chat_template");
    if (!source) return;
    Result<ChatTemplate> parsed = ChatTemplate::parse(*source);
    if (parsed) {
      template_.emplace(std::move(*parsed));
      if (const auto markers = find_reasoning_markers(*source)) reasoning_ = ReasoningOptions{.markers = *markers};
      tool_format_ = find_tool_format(*source);
    } else {
      log.warning("The model's chat template cannot be used, so it only continues text: " + parsed.error().message);
    }
  }

  Result<void> load_weights(const Model& model, const EngineOptions& options) {
    const std::filesystem::path folder =
        options.packed_folder.empty() ? options.model.parent_path() : options.packed_folder;
    std::error_code ignored;
    info_.packed_now = !std::filesystem::exists(packed_path(options.model, folder), ignored);
    device_ = TRY(open_device(options.device, device_options(options)));
    ThreadPool pool(std::max(1, device_->info().threads));
    weights_.emplace(
        TRY(open_or_pack(file_, options.model, {.directory = folder, .pool = &pool, .log = &options.log})));
    binding_.emplace(TRY(WeightBinding::bind(model.program, file_, *weights_)));
    return {};
  }

  Result<void> prepare_device(const Model& model, const EngineOptions& options) {
    kind_ = model.result.kind;
    embedding_ = {.pooling = model.result.pooling, .whole_sequences = model.whole_sequences};
    int64_t step = model.whole_sequences ? context_ : std::min(device_->step_tokens(model.program), context_);
    if (!options.vision.empty()) {
      TRY(open_sight(model, options, step));
      step = std::max(step, sight_->least_step_rows());
    }
    // Results of all rows are needed at once where the sequence is one step, and soon where rows are averaged.
    const bool pools_all =
        model.whole_sequences || (kind_ == ResultKind::embedding && embedding_.pooling == Pooling::mean);
    const int64_t outputs = pools_all ? step : std::clamp(options.outputs, int64_t{1}, step);
    executable_ = TRY(device_->compile(model.program, {.weights = binding_->views(),
                                                       .max_tokens = step,
                                                       .max_outputs = outputs,
                                                       .precision = options.precision,
                                                       .kv_type = options.kv_type}));
    info_.kv_type = kv_type_name(options.kv_type);
    const int64_t blocks = (cache_tokens_ + kKvBlockTokens - 1) / kKvBlockTokens;
    info_.kv_bytes = executable_->kv_block_bytes() * static_cast<uint64_t>(blocks) +
                     executable_->state_bytes() * static_cast<uint64_t>(kStateSlots);
    info_.activation_bytes = executable_->activation_bytes();
    const uint64_t budget = options.memory_bytes > 0 ? options.memory_bytes : available_memory();
    TRY(check_memory({.weight_bytes = matrix_bytes(model.program) + info_.activation_bytes,
                      .kv_bytes = info_.kv_bytes,
                      .context = cache_tokens_},
                     budget));
    if (sight_ && options.memory_bytes > 0) {
      const uint64_t used = matrix_bytes(model.program) + info_.activation_bytes + info_.kv_bytes;
      sight_->set_budget(std::max<uint64_t>(1, options.memory_bytes - used));
    }
    cache_.emplace(TRY(KvCache::create(*device_, executable_->kv_block_bytes(), blocks)));
    states_.emplace(TRY(StateStore::create(*device_, executable_->state_bytes(), kStateSlots)));
    host_ = {.executable = executable_.get(),
             .cache = &*cache_,
             .states = &*states_,
             .sight = sight_.get(),
             .tokenizer = tokenizer_.get(),
             .grammar_vocabulary = &*grammar_vocabulary_,
             .model_id = weights_->source_sha256(),
             .vocabulary = model.vocabulary,
             .capacity = context_,
             .max_tokens = step,
             .max_outputs = outputs};
    return {};
  }

  // The bricks that see have a device of their own, so that they work beside the language model.
  Result<void> open_sight(const Model& model, const EngineOptions& options, int64_t step) {
    sight_ = TRY(Sight::open(
        *device_,
        {.encoder = {.file = options.vision,
                     .packed_folder = options.packed_folder,
                     .precision = options.precision,
                     .log = options.log},
         .open_device = [name = options.device, device = device_options(options)] { return open_device(name, device); },
         .step_rows = step,
         .bricks = options.vision_bricks,
         .cache = {.folder = options.picture_cache, .most_bytes = options.picture_cache_bytes, .log = options.log}}));
    return check_match({.model = model, .tokenizer = *tokenizer_, .file = file_.subject()},
                       {.model = sight_->model(), .file = options.vision.native()});
  }

  void describe(const Model& model) {
    info_.architecture = model.architecture;
    info_.name = file_.get_string("general.name").value_or("");
    info_.device = device_->info().description;
    info_.isa = device_->info().isa;
    info_.threads = device_->info().threads;
    info_.decode_threads = device_->info().decode_threads;
    info_.prefill_threads = device_->info().prefill_threads;
    info_.threads_reason = device_->info().threads_reason;
    info_.parameters = count_parameters(file_);
    info_.weight_bytes = weights_->size_bytes();
    info_.decode_bytes = bytes_per_step(model.program);
    info_.prompt_products = products_per_prompt_token(model.program);
    info_.context = context_;
    info_.trained_context = model.context_length;
  }

  // Order matters: what is declared later is destroyed first and may refer to what stands above.
  GgufFile file_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<LazyGrammarVocabulary> grammar_vocabulary_;
  std::optional<ChatTemplate> template_;
  std::optional<ReasoningOptions> reasoning_;
  ToolFormat tool_format_ = ToolFormat::none;
  std::optional<PackedWeights> weights_;
  std::optional<WeightBinding> binding_;
  std::unique_ptr<Device> device_;
  std::unique_ptr<Executable> executable_;
  ResultKind kind_ = ResultKind::logits;
  EmbeddingPlan embedding_;
  std::optional<KvCache> cache_;
  std::optional<StateStore> states_;
  std::unique_ptr<Sight> sight_;  // null: sees no pictures
  SessionHost host_;
  EngineInfo info_;
  int64_t context_ = 0;       // tokens of a session,
  int64_t cache_tokens_ = 0;  // and of all together
};

}  // namespace

Result<std::unique_ptr<Engine>> Engine::load(const EngineOptions& options) {
  const auto start = std::chrono::steady_clock::now();
  auto engine = std::make_unique<LocalEngine>(TRY(GgufFile::open(options.model)));
  TRY(engine->load(options, start));
  return engine;
}

}  // namespace nanomind
