// SPDX-License-Identifier: Apache-2.0
#include "runtime/divergence.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <numeric>
#include <system_error>
#include <utility>

#include "base/file_io.h"
#include "runtime/logprobs.h"

namespace nanomind {
namespace {

size_t best_of(std::span<const float> logits) {
  return static_cast<size_t>(std::ranges::max_element(logits) - logits.begin());
}

// Rows of logits in a file without a name, which nobody has to remove.
class LogitsFile {
 public:
  LogitsFile() = default;
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;
  ~LogitsFile() {
    if (fd_ >= 0) ::close(fd_);
  }

  Result<void> open(uint64_t bytes) {
    std::error_code error;
    const std::filesystem::path folder = std::filesystem::temp_directory_path(error);
    std::string name = ((error ? "/tmp" : folder) / "nanomind-logits-XXXXXX").string();
    fd_ = ::mkostemp(name.data(), O_CLOEXEC);
    if (fd_ < 0) return failed(errno);
    ::unlink(name.c_str());
    return checked(reserve_bytes(fd_, bytes));
  }
  bool is_open() const { return fd_ >= 0; }

  // One row after another, and after `rewind` the same for reading.
  Result<void> write(std::span<const float> row) {
    const auto bytes = std::as_bytes(row);
    return checked(write_bytes(fd_, std::exchange(offset_, offset_ + bytes.size()), bytes));
  }
  void rewind() { offset_ = 0; }
  Result<void> read(std::span<float> row) {
    const auto bytes = std::as_writable_bytes(row);
    size_t read = 0;
    TRY(checked(read_bytes(fd_, std::exchange(offset_, offset_ + bytes.size()), bytes, read)));
    return checked(read == bytes.size() ? 0 : EIO);
  }

 private:
  static Result<void> checked(int code) { return code == 0 ? Result<void>() : failed(code); }
  static Result<void> failed(int code) {
    const bool is_full = code == ENOSPC || code == EDQUOT || code == EFBIG;
    return fail(is_full ? ErrorCode::no_space : ErrorCode::io,
                fmt::format("The logits of the reference cannot be kept in the folder for temporary files: {}. Choose "
                            "another with TMPDIR, or fewer --chunks.",
                            std::generic_category().message(code)));
  }
  int fd_ = -1;
  uint64_t offset_ = 0;
};

}  // namespace

void DivergenceMeter::add(std::span<const float> reference, std::span<const float> other) {
  CHECK(reference.size() == other.size());
  const double p_sum = log_sum_exp(reference), q_sum = log_sum_exp(other);
  double sum = 0;
  for (size_t i = 0; i < reference.size(); ++i) {
    const double p = reference[i] - p_sum, q = other[i] - q_sum;
    sum += std::exp(p) * (p - q);
  }
  values_.push_back(sum);
  same_ += best_of(reference) == best_of(other);
}

Divergence DivergenceMeter::result() const {
  if (values_.empty()) return {};
  std::vector<double> sorted = values_;
  std::ranges::sort(sorted);
  const auto n = static_cast<double>(sorted.size());
  return {.positions = static_cast<int64_t>(sorted.size()),
          .mean = std::accumulate(values_.begin(), values_.end(), 0.0) / n,
          .worst_percent = sorted[static_cast<size_t>(0.99 * (n - 1))],
          .most = sorted.back(),
          .same_best = static_cast<double>(same_) / n};
}

Result<Comparison> compare(const OpenEngine& reference, const OpenEngine& model, std::string_view text,
                           const PerplexityOptions& options) {
  Comparison result;
  LogitsFile file;
  std::vector<std::vector<TokenId>> chunks;
  PerplexityOptions kept = options;
  {
    const auto engine = TRY(reference());
    chunks = TRY(perplexity_chunks(engine->tokenizer(), text, options));
    const uint64_t rows = chunks.size() * static_cast<uint64_t>(scored_positions(options.context));
    kept.on_logits = [&](std::span<const float> row) -> Result<void> {
      if (!file.is_open()) TRY(file.open(rows * row.size_bytes()));
      return file.write(row);
    };
    result.reference = TRY(perplexity(*engine, text, kept));
  }
  file.rewind();
  const auto engine = TRY(model());
  if (TRY(perplexity_chunks(engine->tokenizer(), text, options)) != chunks) {
    return fail(ErrorCode::invalid_argument,
                "The two models read the text as different tokens, so their predictions cannot be compared. Choose the "
                "file that the model was made of.");
  }
  DivergenceMeter meter;
  std::vector<float> row;
  kept.on_logits = [&](std::span<const float> logits) -> Result<void> {
    row.resize(logits.size());
    TRY(file.read(row));
    meter.add(row, logits);
    return options.on_logits ? options.on_logits(logits) : Result<void>();
  };
  result.model = TRY(perplexity(*engine, text, kept));
  result.divergence = meter.result();
  return result;
}

}  // namespace nanomind
