// SPDX-License-Identifier: Apache-2.0
// nanomind bench: prefill and decode speed beside what this machine could do at best, measured in turns so that all see
// the same clock and the same neighbours.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <random>

#include "cli/commands.h"
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
  EngineFlags engine;
};

struct Measurements {
  std::vector<double> prefill_tok_s, decode_tok_s, read_gb_s, gemm_tflops;
  double peak_rss_mb = 0;
};

double median(std::vector<double> values) {
  if (values.empty()) return 0;
  std::ranges::sort(values);
  const size_t middle = values.size() / 2;
  return values.size() % 2 == 1 ? values[middle] : (values[middle - 1] + values[middle]) / 2;
}

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
  results.peak_rss_mb = peak_rss_mb();

  const EngineInfo& info = engine.info();
  const auto device = TRY(open_device(flags.engine.device, {.threads = info.threads, .isa = info.isa}));
  ReadProbe read = TRY(ReadProbe::create(kReadBytes, std::max(1, info.threads)));
  for (int i = 0; i < flags.repetitions; ++i) {
    context.console.progress(fmt::format("Measuring, turn {} of {}", i + 1, flags.repetitions), 0, 0);
    for (int probe = 0; probe < kProbesPerTurn; ++probe) results.gemm_tflops.push_back(device->measure_peak() / 1e12);
    results.prefill_tok_s.push_back(TRY(prefill_once(engine, flags.prefill, random)));
    for (int probe = 0; probe < kProbesPerTurn; ++probe) results.read_gb_s.push_back(read.measure());
    results.decode_tok_s.push_back(TRY(decode_once(engine, flags.decode, random)));
  }
  context.console.end_progress();
  return results;
}

nlohmann::ordered_json to_json(const BenchFlags& flags, const LocatedModel& model, const EngineInfo& info,
                               const Measurements& results) {
  const double decode = median(results.decode_tok_s);
  return {{"model", model.name},
          {"threads", info.threads},
          {"isa", info.isa},
          {"prefill",
           {{"tokens", flags.prefill}, {"tok_s", median(results.prefill_tok_s)}, {"tok_s_all", results.prefill_tok_s}}},
          {"decode",
           {{"tokens", flags.decode},
            {"tok_s", decode},
            {"gb_s", decode * static_cast<double>(info.decode_bytes) / 1e9},
            {"tok_s_all", results.decode_tok_s}}},
          {"limit",
           {{"read_gb_s", median(results.read_gb_s)},
            {"gemm_tflops", median(results.gemm_tflops)},
            {"read_gb_s_all", results.read_gb_s},
            {"gemm_tflops_all", results.gemm_tflops}}},
          {"peak_rss_mb", results.peak_rss_mb},
          {"load_ms", info.load_ms}};
}

// The same for people. Prefill does two operations per weight that decode reads and token.
std::string to_text(const BenchFlags& flags, const LocatedModel& model, const EngineInfo& info,
                    const Measurements& results) {
  const double decode = median(results.decode_tok_s), read = median(results.read_gb_s);
  const double gb_s = decode * static_cast<double>(info.decode_bytes) / 1e9;
  const double prefill = median(results.prefill_tok_s), peak = median(results.gemm_tflops);
  const double tflops = prefill * 2 * static_cast<double>(info.prompt_products) / 1e12;
  return fmt::format(
      "model    {}, {}, {} thread{}\n"
      "prefill  {:8.1f} tok/s   {} tokens, median of {}; {:.2f} Tflop/s, {:.0f} % of the {:.2f} in byte products\n"
      "decode   {:8.1f} tok/s   {} tokens; {:.1f} GB/s, {:.0f} % of the {:.1f} GB/s that this machine reads\n"
      "memory   {:8.1f} MB at most; loaded in {:.0f} ms\n",
      model.name, info.isa, info.threads, info.threads == 1 ? "" : "s", prefill, flags.prefill, flags.repetitions,
      tflops, peak > 0 ? tflops / peak * 100 : 0, peak, decode, flags.decode, gb_s, read > 0 ? gb_s / read * 100 : 0,
      read, results.peak_rss_mb, info.load_ms);
}

Result<void> run(const Context& context, BenchFlags& flags) {
  const LocatedModel model = TRY(locate_model(context, flags.model));
  flags.engine.context = std::max(flags.prefill, flags.decode + 1) + 1;
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
  command->add_flag("--json", flags->json, "print one JSON object");
  add_engine_options(*command, flags->engine, context.settings, ContextOption::fixed);
  command->callback([&context, &action, flags] { action = [&context, flags] { return run(context, *flags); }; });
}

}  // namespace nanomind
