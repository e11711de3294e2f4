// SPDX-License-Identifier: Apache-2.0
#include "base/base64.h"

#include <gtest/gtest.h>

namespace nanomind {
namespace {

std::span<const std::byte> bytes_of(std::string_view text) { return std::as_bytes(std::span(text)); }

// RFC 4648, section 10.
TEST(Base64, VectorsOfTheStandard) {
  const std::pair<const char*, const char*> vectors[] = {{"", ""},
                                                         {"f", "Zg=="},
                                                         {"fo", "Zm8="},
                                                         {"foo", "Zm9v"},
                                                         {"foob", "Zm9vYg=="},
                                                         {"fooba", "Zm9vYmE="},
                                                         {"foobar", "Zm9vYmFy"}};
  for (const auto& [plain, encoded] : vectors) {
    EXPECT_EQ(base64(bytes_of(plain)), encoded);
    const auto decoded = base64_bytes(encoded);
    ASSERT_TRUE(decoded) << encoded;
    EXPECT_TRUE(std::ranges::equal(*decoded, bytes_of(plain))) << encoded;
  }
}

TEST(Base64, EveryByteAtEveryPlaceOfLongText) {
  std::vector<std::byte> bytes((size_t{7} << 20) + 1);
  for (size_t i = 0; i < bytes.size(); ++i) bytes[i] = static_cast<std::byte>(i * 7 >> 3);
  EXPECT_EQ(base64_bytes(base64(bytes)), bytes);
}

TEST(Base64, RefusesWhatIsNone) {
  for (const char* text : {"Zg", "Zg=", "Z===", "====", "Zm9v\n", " Zm9", "Zm9-", "Zg==Zg==", "Zm\xC3\xA9"})
    EXPECT_FALSE(base64_bytes(text)) << text;
}

}  // namespace
}  // namespace nanomind
