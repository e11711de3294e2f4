// SPDX-License-Identifier: Apache-2.0
#include "format/packed_file.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <fstream>
#include <iterator>
#include <random>

#include "format/gguf_test_writer.h"
#include "tensor/packed.h"

namespace nanomind {
namespace {

using testing::HasSubstr;
namespace fs = std::filesystem;

std::vector<std::byte> random_bytes(size_t size, uint32_t seed) {
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(size);
  for (std::byte& b : bytes) b = static_cast<std::byte>(random());
  return bytes;
}

// Random bits are good blocks of any type (NaNs and infinities included).
void add_random(GgufTestWriter& w, const std::string& name, DType dtype, const Shape& shape) {
  const size_t size = static_cast<size_t>(shape.rows()) * row_bytes(dtype, static_cast<size_t>(shape.columns()));
  w.add_tensor(name, dtype, shape, random_bytes(size, static_cast<uint32_t>(std::hash<std::string>{}(name))));
}

// Vectors between matrices of several types, a rank of 3, and a type that we cannot run.
GgufTestWriter small_model() {
  GgufTestWriter w;
  w.add("general.architecture", "llama").add("tokens", std::vector<std::string>{"a", "b", "c"});
  add_random(w, "embedding", DType::q8_0, {37, 96});
  add_random(w, "norm", DType::f32, {96});
  add_random(w, "query", DType::q4_0, {48, 96});
  add_random(w, "key", DType::q6_k, {1, 512});
  w.add_raw_tensor("other", {256, 2}, 11, random_bytes(220, 5));  // Q3_K
  add_random(w, "experts", DType::q4_1, {2, 3, 64});
  add_random(w, "half", DType::f16, {5, 33});
  add_random(w, "bias", DType::f32, {7});
  return w;
}

class PackedFileTest : public testing::Test {
 protected:
  PackedFileTest()
      : log_([this](LogLevel level, std::string_view text) {
          if (level == LogLevel::warning) warnings_.emplace_back(text);
          if (level == LogLevel::info) notes_.emplace_back(text);
        }) {
    std::string name = (fs::temp_directory_path() / "packed_file_test.XXXXXX").string();
    folder_ = ::mkdtemp(name.data());
    source_ = folder_ / "model.gguf";
    EXPECT_TRUE(small_model().write(source_));
    options_ = {.directory = folder_ / "packed", .log = &log_};
    side_ = packed_path(source_, options_.directory);
  }
  ~PackedFileTest() override { fs::remove_all(folder_); }

  Result<PackedWeights> load() {
    warnings_.clear();
    notes_.clear();
    gguf_.emplace(GgufFile::open(source_).value());
    return open_or_pack(*gguf_, source_, options_);
  }
  bool packed_now() const { return !notes_.empty() && notes_.back().starts_with("Packing "); }
  size_t side_files() const {
    return static_cast<size_t>(std::distance(fs::directory_iterator(options_.directory), {}));
  }
  static std::string content(const fs::path& p) {
    std::ifstream in(p, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), {}};
  }
  static void overwrite(const fs::path& p, const std::string& text) {
    std::ofstream(p, std::ios::binary | std::ios::trunc) << text;
  }
  // Compares every matrix with tensor/packed.h applied to the source's rows.
  void expect_right(const PackedWeights& weights) {
    size_t matrices = 0;
    for (const GgufTensor& t : gguf_->tensors()) {
      const PackedMatrix* m = weights.find(t.name);
      ASSERT_EQ(m != nullptr, t.dtype && t.shape.rank == 2) << t.name;
      if (m == nullptr) continue;
      ++matrices;
      EXPECT_EQ((Shape{m->rows, m->columns}), t.shape);
      EXPECT_EQ(m->dtype, *t.dtype);
      EXPECT_EQ(reinterpret_cast<uintptr_t>(m->bytes.data()) % 64, 0u);
      const size_t row = row_bytes(*t.dtype, static_cast<size_t>(m->columns));
      const size_t group = packed_group_bytes(*t.dtype, m->columns);
      std::vector<std::byte> rows(16 * row);
      for (int64_t r = 0; r < m->rows; r += 16) {
        const int count = static_cast<int>(std::min<int64_t>(16, m->rows - r));
        unpack_group(*t.dtype, m->bytes.data() + static_cast<size_t>(r / 16) * group, count, m->columns, rows.data());
        EXPECT_EQ(
            std::memcmp(rows.data(), t.data.data() + static_cast<size_t>(r) * row, static_cast<size_t>(count) * row), 0)
            << t.name << " row " << r;
      }
    }
    EXPECT_EQ(weights.matrices().size(), matrices);
  }

  fs::path folder_, source_, side_;
  std::vector<std::string> warnings_, notes_;
  Log log_;
  PackOptions options_;
  std::optional<GgufFile> gguf_;
};

// Runs f in a child process and returns its exit status; f returns 0 when all is well.
template <typename F>
pid_t in_child(F f) {
  const pid_t pid = ::fork();
  if (pid == 0) ::_exit(f());
  return pid;
}
int status_of(pid_t pid) {
  int status = -1;
  ::waitpid(pid, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST_F(PackedFileTest, PacksOnceAndMapsAfterwards) {
  const PackedWeights first = load().value();
  EXPECT_TRUE(packed_now());
  EXPECT_EQ(first.storage(), PackedStorage::side_file);
  expect_right(first);
  const PackedWeights second = load().value();
  EXPECT_FALSE(packed_now());
  EXPECT_EQ(second.storage(), PackedStorage::side_file);
  expect_right(second);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_EQ(side_files(), 1u);
}

TEST_F(PackedFileTest, KnowsTheHashOfItsSource) {
  const std::string source = content(source_);
  EXPECT_EQ(hex(load().value().source_sha256()), hex(sha256(std::as_bytes(std::span(source)))));
}

TEST_F(PackedFileTest, ThreadsGiveTheSameFile) {
  load().value();
  const std::string alone = content(side_);
  fs::remove(side_);
  ThreadPool pool(3);
  options_.pool = &pool;
  load().value();
  EXPECT_EQ(content(side_), alone);
}

TEST_F(PackedFileTest, PacksInMemoryWhenAsked) {
  options_.storage = PackedStorage::memory;
  const PackedWeights weights = load().value();
  EXPECT_EQ(weights.storage(), PackedStorage::memory);
  expect_right(weights);
  EXPECT_TRUE(warnings_.empty());
  EXPECT_FALSE(fs::exists(options_.directory));
}

TEST_F(PackedFileTest, ModelWithoutMatrices) {
  ASSERT_TRUE(GgufTestWriter().add("general.architecture", "llama").write(source_));
  EXPECT_TRUE(load().value().matrices().empty());
  EXPECT_TRUE(load().value().matrices().empty());
  EXPECT_FALSE(packed_now());
}

// Stale files.

TEST_F(PackedFileTest, NewModelUnderTheSameNameIsPackedAgain) {
  load().value();
  auto changed = small_model();
  add_random(changed, "more", DType::q4_k, {16, 256});
  ASSERT_TRUE(changed.write(source_));
  expect_right(load().value());
  EXPECT_TRUE(packed_now());
  EXPECT_EQ(side_files(), 1u);
}

TEST_F(PackedFileTest, OtherDataOfTheSameSizeAndTimeIsNoticed) {
  load().value();
  const auto time = fs::last_write_time(source_);
  const uint64_t offset = gguf_->tensor("query")->offset;
  gguf_.reset();
  std::string bytes = content(source_);
  bytes[offset] ^= 1;
  overwrite(source_, bytes);
  fs::last_write_time(source_, time);
  expect_right(load().value());
  EXPECT_TRUE(packed_now());
}

TEST_F(PackedFileTest, NewerTimeIsPackedAgain) {
  load().value();
  fs::last_write_time(source_, fs::last_write_time(source_) + std::chrono::nanoseconds(1));
  expect_right(load().value());
  EXPECT_TRUE(packed_now());
}

TEST_F(PackedFileTest, OtherPackedVersionIsPackedAgain) {
  load().value();
  std::string bytes = content(side_);
  PackedImage image = parse_image(std::as_bytes(std::span(bytes)), "image").value();
  image.header.packed_version = kPackedVersion + 1;
  image.header.checksum = header_checksum(image.header, image.entries);
  std::memcpy(bytes.data(), &image.header, sizeof image.header);
  EXPECT_EQ(parse_image(std::as_bytes(std::span(bytes)), "image").error().code, ErrorCode::unsupported);
  overwrite(side_, bytes);
  expect_right(load().value());
  EXPECT_TRUE(packed_now());
}

// Torn files.

TEST_F(PackedFileTest, TruncatedSideFileIsPackedAgain) {
  load().value();
  const std::string whole = content(side_);
  for (const size_t size :
       {size_t{0}, size_t{1}, size_t{255}, size_t{256}, size_t{300}, whole.size() / 2, whole.size() - 1}) {
    overwrite(side_, whole.substr(0, size));
    expect_right(load().value());
    EXPECT_TRUE(packed_now()) << size;
    EXPECT_EQ(content(side_), whole) << size;
  }
}

TEST_F(PackedFileTest, EveryFlippedByteOfTheHeaderIsFound) {
  load().value();
  const std::string whole = content(side_);
  const PackedImage image = parse_image(std::as_bytes(std::span(whole)), "image").value();
  const size_t end = sizeof(PackedHeader) + image.entries.size() * sizeof(PackedEntry);
  for (size_t i = 0; i < end; ++i) {
    std::string broken = whole;
    broken[i] ^= 0x10;
    EXPECT_FALSE(parse_image(std::as_bytes(std::span(broken)), "image")) << i;
  }
}

TEST_F(PackedFileTest, DamagedSideFileIsPackedAgain) {
  load().value();
  const std::string whole = content(side_);
  for (const size_t i : {size_t{0}, size_t{20}, size_t{100}, size_t{270}}) {
    std::string broken = whole;
    broken[i] ^= 0x10;
    overwrite(side_, broken);
    expect_right(load().value());
    EXPECT_TRUE(packed_now()) << i;
    EXPECT_EQ(content(side_), whole) << i;
  }
}

TEST_F(PackedFileTest, LeftoversOfADeadProcessAreRemoved) {
  fs::create_directories(options_.directory);
  overwrite(side_.string() + ".a1b2c3", "half");
  load().value();
  EXPECT_EQ(side_files(), 1u);
}

// Places that cannot be written.

TEST_F(PackedFileTest, UnwritableDirectoryPacksInMemoryAndSaysSo) {
  for (const fs::path& directory : {source_ / "under_a_file", fs::path("/proc/nanomind")}) {
    options_.directory = directory;
    const PackedWeights weights = load().value();
    EXPECT_EQ(weights.storage(), PackedStorage::memory);
    expect_right(weights);
    ASSERT_EQ(warnings_.size(), 1u);
    EXPECT_THAT(warnings_[0], HasSubstr(directory.string()));
    EXPECT_THAT(warnings_[0], HasSubstr("stay in memory"));
  }
}

TEST_F(PackedFileTest, Load10FullDiskPacksInMemoryAndLeavesNothing) {
  const pid_t child = in_child([this] {
    std::signal(SIGXFSZ, SIG_IGN);
    const rlimit limit{4096, 4096};  // stands for the disk: no file can grow beyond it
    if (::setrlimit(RLIMIT_FSIZE, &limit) != 0) return 2;
    const auto weights = load();
    if (!weights || weights->storage() != PackedStorage::memory) return 3;
    expect_right(*weights);
    if (HasFailure() || warnings_.size() != 1) return 4;
    return side_files() == 0 ? 0 : 5;
  });
  EXPECT_EQ(status_of(child), 0);
}

TEST_F(PackedFileTest, ProcessesAtOnceAllEndRight) {
  GgufTestWriter w;
  for (int i = 0; i < 8; ++i) add_random(w, "matrix" + std::to_string(i), DType::q4_k, {512, 1024});
  ASSERT_TRUE(w.write(source_));
  int gate[2];
  ASSERT_EQ(::pipe(gate), 0);
  std::vector<pid_t> children;
  for (int i = 0; i < 4; ++i) {
    children.push_back(in_child([&] {
      ::close(gate[1]);
      char end;
      if (::read(gate[0], &end, 1) != 0) return 2;  // returns when the parent closes the gate
      const auto weights = load();
      if (!weights || weights->storage() != PackedStorage::side_file) return 3;
      expect_right(*weights);
      return HasFailure() ? 4 : packed_now() ? 10 : 0;
    }));
  }
  ::close(gate[0]);
  ::close(gate[1]);
  int packers = 0;
  for (const pid_t child : children) {
    const int status = status_of(child);
    EXPECT_TRUE(status == 0 || status == 10) << status;
    packers += status == 10;
  }
  EXPECT_EQ(packers, 1);
  EXPECT_EQ(side_files(), 1u);
}

// Without the source.

TEST_F(PackedFileTest, GivesTheSourceBackBitForBit) {
  for (const DType dtype : kDTypes) {
    GgufTestWriter w;
    const auto block = static_cast<int64_t>(traits(dtype).block_columns);
    add_random(w, "one", dtype, {1, block});
    add_random(w, "norm", DType::f32, {3});
    add_random(w, "odd", dtype, {37, 3 * block});
    add_random(w, "even", dtype, {64, 8 * block});
    ASSERT_TRUE(w.write(source_));
    const PackedWeights weights = load().value();
    ASSERT_TRUE(verify(weights));
    ASSERT_TRUE(write_gguf(weights, folder_ / "again.gguf"));
    EXPECT_EQ(content(folder_ / "again.gguf"), content(source_)) << traits(dtype).name;
  }
}

TEST_F(PackedFileTest, OpensWithoutItsSource) {
  load().value();
  const std::string source = content(source_);
  fs::remove(source_);
  const PackedModel model = open_packed(side_).value();
  EXPECT_EQ(model.gguf.get_string("general.architecture").value(), "llama");
  ASSERT_EQ(model.gguf.tensors().size(), gguf_->tensors().size());
  for (const GgufTensor& t : gguf_->tensors()) {
    const auto data = model.gguf.tensor(t.name)->data;
    if (model.weights.find(t.name) != nullptr) {
      EXPECT_TRUE(data.empty()) << t.name;
    } else {
      ASSERT_EQ(data.size(), t.data.size()) << t.name;
      EXPECT_EQ(std::memcmp(data.data(), t.data.data(), data.size()), 0) << t.name;
      EXPECT_EQ(reinterpret_cast<uintptr_t>(data.data()) % 32, 0u) << t.name;
    }
  }
  expect_right(model.weights);
  ASSERT_TRUE(write_gguf(model.weights, source_));
  EXPECT_EQ(content(source_), source);
}

TEST_F(PackedFileTest, DamagedDataIsNeverWrittenBack) {
  load().value();
  std::string bytes = content(side_);
  bytes[parse_image(std::as_bytes(std::span(bytes)), "image").value().entries[1].offset] ^= 1;
  overwrite(side_, bytes);
  const PackedModel model = open_packed(side_).value();
  EXPECT_EQ(verify(model.weights).error().code, ErrorCode::corrupt);
  EXPECT_EQ(write_gguf(model.weights, folder_ / "again.gguf").error().code, ErrorCode::corrupt);
  EXPECT_FALSE(fs::exists(folder_ / "again.gguf"));
}

TEST_F(PackedFileTest, OpenPackedNamesWhatIsWrong) {
  EXPECT_EQ(open_packed(folder_ / "missing").error().code, ErrorCode::not_found);
  const Error error = open_packed(source_).error();
  EXPECT_EQ(error.code, ErrorCode::corrupt);
  EXPECT_THAT(error.message, HasSubstr("model.gguf is damaged (it is not a packed weights file)"));
}

TEST_F(PackedFileTest, AFileWithoutAFolderIsInTheCurrentOne) {
  EXPECT_EQ(packed_path("model.gguf", fs::path("model.gguf").parent_path()).parent_path(), ".");
}

TEST_F(PackedFileTest, SourcesOfTheSameNameHaveSideFilesOfTheirOwn) {
  EXPECT_NE(packed_path("/a/model.gguf", "d"), packed_path("/b/model.gguf", "d"));
  EXPECT_EQ(packed_path("/a/model.gguf", "d"), packed_path("/a/../a/model.gguf", "d"));
  EXPECT_THAT(packed_path("/a/model.gguf", "d").string(), testing::StartsWith("d/model.gguf."));
}

}  // namespace
}  // namespace nanomind
