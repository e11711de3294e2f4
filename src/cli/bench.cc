// SPDX-License-Identifier: Apache-2.0
// nanomind bench: prefill and decode speed beside what this machine could do at best, measured in turns so that all see
// the same clock and the same neighbours.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <random>

#include "base/mapped_file.h"
#include "cli/bench_figures.h"
#include "cli/bench_picture.h"
#include "cli/commands.h"
#include "cli/environment.h"
#include "cli/models.h"
#include "device/registry.h"
#include "runtime/limits.h"

namespace nanomind {
namespace {

constexpr size_t kReadBytes = size_t{512} << 20;
constexpr int kProbesPerTurn = 3;

struct BenchFlags {
  std::string model;
  int64_t prefill = 512;
  int64_t decode = 64;
  int repetitions = 5;
  bool json = false;
  bool isas = false;
  std::string image;  // a file; empty: no picture is measured
  EngineFlags engine;
};

struct Measurements {
  std::vector<double> prefill_tok_s, decode_tok_s, read_gb_s, gemm_tflops;
  std::vector<std::pair<std::string, double>> isa_tflops;  // peak of each instruction set, where asked for
  std::optional<PictureBench> picture;
  double peak_rss_mb = 0;
};

double best(const std::vector<double>& values) { return values.empty() ? 0 : std::ranges::max(values); }

double gigabytes(const EngineInfo& info) { return static_cast<double>(info.decode_bytes) / 1e9; }
// A prompt's token takes two operations per weight: a product and a sum.
double teraflops(const EngineInfo& info) { return 2 * static_cast<double>(info.prompt_products) / 1e12; }

// High-water mark of this process's memory, MB (10^6).
double peak_rss_mb() {
  std::ifstream status("/proc/self/status");
  for (std::string line; std::getline(status, line);) {
    if (line.starts_with("VmHWM:")) return std::strtod(line.c_str() + 6, nullptr) * 1024 / 1e6;
  }
  return 0;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

// Tokens of a model's ordinary text; which ones does not matter for speed.
std::vector<TokenId> random_tokens(const Engine& engine, int64_t count, std::mt19937& random) {
  std::uniform_int_distribution<TokenId> any(0, engine.tokenizer().vocabulary_size() - 1);
  std::vector<TokenId> tokens(static_cast<size_t>(count));
  for (TokenId& token : tokens) token = any(random);
  return tokens;
}

Result<double> prefill_once(Engine& engine, int64_t count, std::mt19937& random) {
  const auto session = TRY(engine.open_session());
  const auto tokens = random_tokens(engine, count, random);
  const auto start = std::chrono::steady_clock::now();
  TRY(session->feed(tokens, nullptr));
  return static_cast<double>(count) / seconds_since(start);
}

// One token after another, each the likeliest.
Result<double> decode_once(Engine& engine, int64_t count, std::mt19937& random) {
  const auto session = TRY(engine.open_session());
  std::vector<TokenId> tokens = random_tokens(engine, 1, random);
  TRY(session->feed(tokens, nullptr));
  tokens.reserve(static_cast<size_t>(count) + 1);
  const auto start = std::chrono::steady_clock::now();
  for (int64_t i = 0; i < count; ++i) {
    const auto logits = session->logits();
    tokens.push_back(static_cast<TokenId>(std::ranges::max_element(logits) - logits.begin()));
    TRY(session->feed(tokens, nullptr));
  }
  return static_cast<double>(count) / seconds_since(start);
}

Result<Measurements> measure(const Context& context, const BenchFlags& flags, Engine& engine) {
  std::mt19937 random(1);
  Measurements results;
  // A first turn warms everything up, and shows the memory of the model alone.
  TRY(prefill_once(engine, flags.prefill, random));
  TRY(decode_once(engine, std::min<int64_t>(flags.decode, 8), random));
  if (!flags.image.empty()) {
    const MappedFile file = TRY(MappedFile::open(expand_home(flags.image, context.folders.home)));
    results.picture.emplace(TRY(PictureBench::create(engine, file.bytes())));
    TRY(results.picture->measure());
    results.picture->forget();
  }
  results.peak_rss_mb = peak_rss_mb();

  const EngineInfo& info = engine.info();
  const auto device = TRY(open_device(flags.engine.device, {.threads = info.threads, .isa = info.isa}));
  ReadProbe read = TRY(ReadProbe::create(kReadBytes, std::max(1, info.threads)));
  for (int i = 0; i < flags.repetitions; ++i) {
    context.console.progress(fmt::format("Measuring, turn {} of {}", i + 1, flags.repetitions), 0, 0);
    for (int probe = 0; probe < kProbesPerTurn; ++probe) results.gemm_tflops.push_back(device->measure_peak() / 1e12);
    device->rest();
    results.prefill_tok_s.push_back(TRY(prefill_once(engine, flags.prefill, random)));
    if (results.picture) TRY(results.picture->measure());
    for (int probe = 0; probe < kProbesPerTurn; ++probe) results.read_gb_s.push_back(read.measure());
    results.decode_tok_s.push_back(TRY(decode_once(engine, flags.decode, random)));
  }
  context.console.end_progress();
  if (flags.isas) {
    for (const std::string& isa : device_isas()) {
      const auto other = TRY(open_device("cpu", {.threads = std::max(1, info.threads), .isa = isa}));
      double peak = 0;
      for (int probe = 0; probe < kProbesPerTurn; ++probe) peak = std::max(peak, other->measure_peak() / 1e12);
      results.isa_tflops.emplace_back(isa, peak);
    }
  }
  return results;
}

nlohmann::ordered_json to_json(int64_t tokens, int threads, const std::vector<double>& tok_s, Share share) {
  return {{"tokens", tokens},      {"tok_s", median(tok_s)},      {"tok_s_best", best(tok_s)},
          {"share", share.median}, {"share_of_best", share.best}, {"threads", threads},
          {"tok_s_all", tok_s}};
}

nlohmann::ordered_json to_json(const BenchFlags& flags, const LocatedModel& model, const EngineInfo& info,
                               const Measurements& results) {
  const Share prefill = share_of(results.prefill_tok_s, teraflops(info), results.gemm_tflops);
  const Share decode = share_of(results.decode_tok_s, gigabytes(info), results.read_gb_s);
  nlohmann::ordered_json json = {
      {"model", model.name},
      {"threads", info.threads},
      {"isa", info.isa},
      {"prefill", to_json(flags.prefill, info.prefill_threads, results.prefill_tok_s, prefill)},
      {"decode", to_json(flags.decode, info.decode_threads, results.decode_tok_s, decode)},
      {"limit",
       {{"read_gb_s", median(results.read_gb_s)},
        {"gemm_tflops", median(results.gemm_tflops)},
        {"read_gb_s_all", results.read_gb_s},
        {"gemm_tflops_all", results.gemm_tflops}}},
      {"peak_rss_mb", results.peak_rss_mb},
      {"load_ms", info.load_ms}};
  json["decode"]["gb_s"] = median(results.decode_tok_s) * gigabytes(info);
  if (results.picture) json["picture"] = results.picture->to_json(results.gemm_tflops);
  for (const auto& [isa, tflops] : results.isa_tflops) json["limit"]["gemm_tflops_by_isa"][isa] = tflops;
  return json;
}

// The same for people.
std::string to_text(const BenchFlags& flags, const LocatedModel& model, const EngineInfo& info,
                    const Measurements& results) {
  const double prefill = median(results.prefill_tok_s), decode = median(results.decode_tok_s);
  const Share prefill_share = share_of(results.prefill_tok_s, teraflops(info), results.gemm_tflops);
  const Share decode_share = share_of(results.decode_tok_s, gigabytes(info), results.read_gb_s);
  std::string text = fmt::format(
      "model    {}, {}\n"
      "threads  {:8} for answers, {} for prompts: {}\n"
      "prefill  {:8.1f} tok/s   {} tokens, median of {} (best {:.1f}); {:.2f} Tflop/s, {:.0f} % of {:.2f} in byte "
      "products (best {:.0f} %)\n"
      "decode   {:8.1f} tok/s   {} tokens (best {:.1f}); {:.1f} GB/s, {:.0f} % of the {:.1f} GB/s that this machine "
      "reads (best {:.0f} %)\n"
      "memory   {:8.1f} MB at most; loaded in {:.0f} ms\n",
      model.name, info.isa, info.decode_threads, info.prefill_threads, info.threads_reason, prefill, flags.prefill,
      flags.repetitions, best(results.prefill_tok_s), prefill * teraflops(info), prefill_share.median * 100,
      median(results.gemm_tflops), prefill_share.best * 100, decode, flags.decode, best(results.decode_tok_s),
      decode * gigabytes(info), decode_share.median * 100, median(results.read_gb_s), decode_share.best * 100,
      results.peak_rss_mb, info.load_ms);
  if (results.picture) text += results.picture->to_text(results.gemm_tflops);
  for (const auto& [isa, tflops] : results.isa_tflops)
    text += fmt::format("peak     {:8.2f} Tflop/s {}\n", tflops, isa);
  return text;
}

Result<void> run(const Context& context, BenchFlags& flags) {
  const LocatedModel model = TRY(locate_model(context, flags.model));
  flags.engine.context = std::max(flags.prefill, flags.decode + 1) + 1;
  if (!flags.image.empty()) {
    use_vision(model, flags.engine);
    // How much of it the picture takes is not known yet.
    if (flags.engine.context < kDefaultContext) flags.engine.context = 0;
  }
  flags.engine.no_picture_cache = true;  // known rows would be measured as made
  auto engine = TRY(load_engine(context, model, flags.engine));
  if (engine->info().packed_now) {  // packing is done once; the time to load is that of every other start
    engine.reset();
    engine = TRY(load_engine(context, model, flags.engine));
  }
  const Measurements results = TRY(measure(context, flags, *engine));
  context.out.write(flags.json ? to_json(flags, model, engine->info(), results).dump() + "\n"
                               : to_text(flags, model, engine->info(), results));
  return {};
}

}  // namespace

void add_bench(CLI::App& app, Context& context, Action& action) {
  auto flags = std::make_shared<BenchFlags>();
  CLI::App* command = app.add_subcommand("bench", "Measure speed as a share of what this machine could do");
  command->add_option("model", flags->model, "model (default: the catalog's)")->option_text("[MODEL]");
  command->add_option("-p,--prefill", flags->prefill, "tokens of the prompt (default: 512)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->option_text("N");
  command->add_option("-n,--decode", flags->decode, "tokens of the answer (default: 64)")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 20))
      ->option_text("N");
  command->add_option("-r,--repetitions", flags->repetitions, "turns, of which medians are taken (default: 5)")
      ->check(CLI::Range(1, 1000))
      ->option_text("REPS");
  command
      ->add_option("-i,--image", flags->image,
                   "also measure how long this picture takes, and the first token of an answer about it")
      ->option_text("FILE");
  command->add_flag("--isas", flags->isas, "also print the peak of each instruction set that runs here");
  command->add_flag("--json", flags->json, "print one JSON object");
  add_engine_options(*command, flags->engine, context.settings, ContextOption::fixed);
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
