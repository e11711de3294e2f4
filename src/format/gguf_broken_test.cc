// SPDX-License-Identifier: Apache-2.0
// One test per way in which a model file is broken or is something else: each has a message of its own that names the
// file and says what to do.
#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <unistd.h>

#include "format/gguf.h"
#include "format/gguf_test_writer.h"

namespace nanomind {
namespace {

using testing::HasSubstr;
using testing::StartsWith;

Error error_of(std::span<const std::byte> bytes) {
  auto file = GgufFile::parse(bytes);
  return file ? Error{ErrorCode::invalid_argument, "no error"} : file.error();
}
Error error_of(const GgufTestWriter& w) { return error_of(w.bytes()); }
Error error_of(std::string_view text) { return error_of(std::as_bytes(std::span(text))); }

#define EXPECT_ERROR(input, expected_code, text)        \
  do {                                                  \
    const Error error = error_of(input);                \
    EXPECT_EQ(error.code, ErrorCode::expected_code);    \
    EXPECT_THAT(error.message, HasSubstr(text));        \
    EXPECT_THAT(error.message, testing::EndsWith(".")); \
  } while (false)

GgufTestWriter one_tensor() {
  GgufTestWriter w;
  w.add("general.architecture", "llama").add("tokens", std::vector<std::string>{"a", "b"});
  w.add_floats("norm", {16}, std::vector<float>(16, 1.0f));
  return w;
}

// Files that are something else.

TEST(GgufImpostor, EmptyFile) { EXPECT_ERROR("", corrupt, "is empty (0 bytes)"); }

TEST(GgufImpostor, WebPage) {
  EXPECT_ERROR("<!DOCTYPE html><html><head><title>Log in", corrupt, "is a web page (HTML)");
  EXPECT_ERROR("\xEF\xBB\xBF\n  <HTML lang=en>", corrupt, "direct download link");
}

TEST(GgufImpostor, GitLfsPointer) {
  EXPECT_ERROR("version https://git-lfs.github.com/spec/v1\noid sha256:0123\nsize 1117320768\n", unsupported,
               "git lfs pull");
}

TEST(GgufImpostor, TextOfAServer) { EXPECT_ERROR("Entry not found", corrupt, "is a text (\"Entry not found\")"); }

TEST(GgufImpostor, Safetensors) {
  GgufBytes b;
  b.put(uint64_t{16}).put_raw("{\"a\":{}}        ");
  EXPECT_ERROR(b.bytes(), unsupported, "safetensors");
}

TEST(GgufImpostor, ZipArchive) { EXPECT_ERROR("PK\x03\x04 and so on", unsupported, "ZIP archive"); }

TEST(GgufImpostor, Pickle) { EXPECT_ERROR("\x80\x02}q\x01", unsupported, "pickle"); }

TEST(GgufImpostor, LegacyGgml) {
  for (std::string_view magic : {"lmgg", "fmgg", "tjgg"}) EXPECT_ERROR(magic, unsupported, "old GGML format");
}

TEST(GgufImpostor, CompressedFile) { EXPECT_ERROR("\x1f\x8b\x08", unsupported, "gzip"); }

TEST(GgufImpostor, ZerosOfAnUnfinishedDownload) {
  EXPECT_ERROR(std::vector<std::byte>(100), corrupt, "begins with zeros");
}

TEST(GgufImpostor, UnknownBinary) { EXPECT_ERROR("\x01\x02\x03\x04\x05", corrupt, "instead of \"GGUF\""); }

TEST(GgufImpostor, BigEndian) {
  GgufTestWriter w;
  w.version = 0x03000000;
  EXPECT_ERROR(w, unsupported, "big-endian");
}

TEST(GgufImpostor, Version1) {
  GgufTestWriter w;
  w.version = 1;
  EXPECT_ERROR(w, unsupported, "version 1, which is too old");
}

TEST(GgufImpostor, FutureVersion) {
  GgufTestWriter w;
  w.version = 4;
  EXPECT_ERROR(w, unsupported, "Update the program");
}

TEST(GgufImpostor, ImpossibleVersion) {
  GgufTestWriter w;
  w.version = 0;
  EXPECT_ERROR(w, corrupt, "impossible version 0");
}

TEST(GgufImpostor, DirectoryAndMissingFile) {
  const auto directory = GgufFile::open("/tmp");
  EXPECT_THAT(directory.error().message, StartsWith("/tmp is a directory."));
  const auto missing = GgufFile::open("/nonexistent/model.gguf");
  EXPECT_EQ(missing.error().code, ErrorCode::not_found);
  EXPECT_THAT(missing.error().message, HasSubstr("/nonexistent/model.gguf"));
}

TEST(GgufImpostor, MessagesNameThePath) {
  const auto path = std::filesystem::temp_directory_path() / ("gguf_path_" + std::to_string(::getpid()) + ".gguf");
  std::ofstream(path) << "<html>";
  EXPECT_THAT(GgufFile::open(path).error().message, StartsWith(path.string() + " is a web page"));
  std::filesystem::remove(path);
}

// Files that were cut.

TEST(GgufTruncated, InTheFixedHeader) { EXPECT_ERROR("GGUF\x03", corrupt, "it has 5 bytes"); }

TEST(GgufTruncated, InTheTensorData) {
  auto bytes = one_tensor().bytes();
  const size_t whole = bytes.size();
  bytes.resize(whole - 10);
  EXPECT_ERROR(bytes, corrupt, "it has " + std::to_string(whole - 10) + " of " + std::to_string(whole) + " bytes");
  EXPECT_ERROR(bytes, corrupt, "Download it again");
}

TEST(GgufTruncated, AnywhereElse) {
  const auto bytes = one_tensor().bytes();
  for (size_t size = 0; size < bytes.size(); ++size) {
    const Error error = error_of(std::span(bytes).first(size));
    EXPECT_EQ(error.code, ErrorCode::corrupt) << size;
    EXPECT_THAT(error.message, HasSubstr("ownload it again")) << size;
  }
}

TEST(GgufTruncated, InsideAnArraySaysWhere) {
  auto bytes = GgufTestWriter().add("tokens", std::vector<int32_t>(1000, 1)).bytes();
  bytes.resize(2000);
  EXPECT_ERROR(bytes, corrupt, "ends after 2000 bytes, within metadata key \"tokens\", which lists 1000 elements");
}

// Headers that lie.

TEST(GgufHostile, KeyCount) {
  auto w = one_tensor();
  w.key_count = ~uint64_t{0};
  EXPECT_ERROR(w, corrupt, "claims 18446744073709551615 metadata keys");
}

TEST(GgufHostile, TensorCount) {
  auto w = one_tensor();
  w.tensor_count = uint64_t{1} << 60;
  EXPECT_ERROR(w, corrupt, "claims 1152921504606846976 tensors");
}

TEST(GgufHostile, StringLength) {
  GgufBytes value;
  value.put(~uint64_t{0}).put_raw("text");
  EXPECT_ERROR(GgufTestWriter().add_raw("k", 8, value), corrupt, "claims 18446744073709551615 bytes of text");
}

TEST(GgufHostile, ArrayCount) {
  for (const uint32_t element : {4u, 8u, 12u}) {  // u32, string, f64
    GgufBytes value;
    value.put(element).put(~uint64_t{0} / 4);
    EXPECT_ERROR(GgufTestWriter().add_raw("k", 9, value), corrupt, "\"k\" claims 4611686018427387903 elements");
  }
}

TEST(GgufHostile, NestedArray) {
  GgufBytes value;
  value.put(9u).put(uint64_t{1}).put(4u).put(uint64_t{0});
  EXPECT_ERROR(GgufTestWriter().add_raw("k", 9, value), unsupported, "array of arrays");
}

TEST(GgufHostile, UnknownTypes) {
  EXPECT_ERROR(GgufTestWriter().add_raw("k", 13, GgufBytes().put(0)), corrupt, "\"k\" has the unknown type 13");
  GgufBytes value;
  value.put(77u).put(uint64_t{0});
  EXPECT_ERROR(GgufTestWriter().add_raw("k", 9, value), corrupt, "array of the unknown type 77");
}

TEST(GgufHostile, BooleanOfTwo) {
  EXPECT_ERROR(GgufTestWriter().add_raw("k", 7, GgufBytes().put(uint8_t{2})), corrupt, "boolean with the value 2");
}

TEST(GgufHostile, EmptyNames) {
  EXPECT_ERROR(GgufTestWriter().add("", uint64_t{1}), corrupt, "has 0 bytes");
  EXPECT_ERROR(GgufTestWriter().add_floats("", {16}, std::vector<float>(16)), corrupt, "has 0 bytes");
}

TEST(GgufHostile, DuplicateKey) {
  EXPECT_ERROR(GgufTestWriter().add("k", 1).add("k", 2), corrupt, "metadata key \"k\" appears twice");
}

TEST(GgufHostile, DuplicateTensor) {
  EXPECT_ERROR(GgufTestWriter().add_floats("t", {1}, {1}).add_floats("t", {1}, {1}), corrupt,
               "tensor \"t\" appears twice");
}

TEST(GgufHostile, Alignment) {
  EXPECT_ERROR(one_tensor().add("general.alignment", uint32_t{0}), corrupt, "general.alignment is 0");
  EXPECT_ERROR(one_tensor().add("general.alignment", uint32_t{48}), corrupt, "not a power of two");
  EXPECT_ERROR(one_tensor().add("general.alignment", ~uint64_t{0}), corrupt, "not a power of two");
  EXPECT_ERROR(one_tensor().add("general.alignment", "32"), corrupt, "instead of a non-negative integer");
}

TEST(GgufHostile, Rank) {
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {}, 0, std::vector<std::byte>(64)), corrupt, "0 dimensions");
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {1, 1, 1, 1, 1}, 0, {}), corrupt, "5 dimensions");
}

TEST(GgufHostile, Dimensions) {
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {4, 0}, 0, {}), corrupt, "a dimension of 0");
  const uint64_t big = uint64_t{1} << 32;
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {big, big}, 0, {}), corrupt, "more elements than any file");
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {~uint64_t{0}}, 0, {}), corrupt, "more elements than any file");
}

TEST(GgufHostile, RowsThatAreNoWholeBlocks) {
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {48, 2}, 2, std::vector<std::byte>(54)), corrupt,
               "rows of 48 elements, which is not a multiple of the 32 of a block of its type Q4_0");
}

TEST(GgufHostile, UnalignedTensor) {
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {1}, 0, std::vector<std::byte>(64), 4), corrupt,
               "offset 4, which is not a multiple of 32");
}

TEST(GgufHostile, TensorOutsideTheFile) {
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {1}, 0, std::vector<std::byte>(64), 1 << 20), corrupt, "cut short");
  EXPECT_ERROR(GgufTestWriter().add_raw_tensor("t", {1}, 0, std::vector<std::byte>(64), ~uint64_t{31}), corrupt,
               "impossible offset");
}

TEST(GgufHostile, OverlappingTensors) {
  GgufTestWriter w;
  w.add_floats("a", {16}, std::vector<float>(16));
  w.add_raw_tensor("b", {16}, 0, std::vector<std::byte>(64), 32);
  EXPECT_ERROR(w, corrupt, "tensors \"a\" and \"b\" overlap");
}

TEST(GgufHostile, NamesInMessagesAreHarmless) {
  const Error error = error_of(GgufTestWriter().add("\x1b[31m", 1).add("\x1b[31m", 1));
  EXPECT_THAT(error.message, HasSubstr("\"?[31m\""));
}

}  // namespace
}  // namespace nanomind
