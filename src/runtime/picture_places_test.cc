// SPDX-License-Identifier: Apache-2.0
// Where pictures stand in prompts: prompts are compared with what Jinja2 made of the same conversations
// (tests/data/chat_template/parts), with the pictures put in by hand.
#include "runtime/picture_places.h"

#include <gtest/gtest.h>

#include <fstream>
#include <nlohmann/json.hpp>

#include "format/gguf.h"
#include "models/vision.h"
#include "text/test_data.h"

namespace nanomind {
namespace {

const std::string kFolder = "tests/data/chat_template/parts/";

std::unique_ptr<Tokenizer> tokenizer_of(const std::string& model) {
  const auto file = GgufFile::open("tests/data/" + model);
  EXPECT_TRUE(file) << file.error().message;
  return std::move(*make_tokenizer(*file));
}

ChatTemplate parse(std::string_view source) {
  auto parsed = ChatTemplate::parse(source);
  EXPECT_TRUE(parsed) << parsed.error().message;
  return std::move(*parsed);
}

ChatTemplate read_template(const std::string& name) {
  std::ifstream file(kFolder + name + ".jinja");
  return parse(std::string(std::istreambuf_iterator<char>(file), {}));
}

PicturePrompt rows(std::vector<TokenId> tokens) { return {{.text = {}, .rows = std::move(tokens)}}; }

// A person's text, in which nothing is a control token, or a template's.
struct Piece {
  std::string text;
  ControlTokens control = ControlTokens::recognise;
  std::vector<TokenId> rows{};
};

std::vector<TokenId> tokens_of(const Tokenizer& tokenizer, const std::vector<Piece>& pieces) {
  std::vector<TokenId> tokens;
  for (const Piece& piece : pieces) {
    const auto more = tokenizer.encode(piece.text, piece.control, Beginning::omit);
    tokens.insert(tokens.end(), more.begin(), more.end());
    tokens.insert(tokens.end(), piece.rows.begin(), piece.rows.end());
  }
  return tokens;
}

std::vector<TokenId> prompt(const Tokenizer& tokenizer, const ChatTemplate& chat_template,
                            std::span<const Message> messages) {
  const PicturePlaces places(messages);
  const auto text = places.render(chat_template, {.bos_token = "<bos>", .eos_token = "<eos>"});
  EXPECT_TRUE(text) << text.error().message;
  return places.encode(tokenizer, text.value_or(""), Beginning::omit);
}

TEST(PicturePlaces, PicturesStandBeforeTheirMessages) {
  const auto tokenizer = tokenizer_of("tiny-llama.gguf");
  const std::string number(kPictureNumber);
  // What a person writes is never taken for a picture, even if it looks like the mark of one. Markers are read together
  // with the text beside them.
  const std::vector<Message> messages{
      {.role = "user", .content = "[picture-0:1]?", .pictures = {rows({-1, -2}), rows({-3})}},
      {.role = "user",
       .content = "and?",
       .pictures = {{{.text = "No " + number + ": ", .rows = {-1, -2}}, {.text = " so ", .rows = {}}}}}};
  EXPECT_EQ(prompt(*tokenizer, parse("A:{{ messages[0].content }}B:{{ messages[1].content }}"), messages),
            tokens_of(*tokenizer, {{"A:", ControlTokens::recognise, {-1, -2, -3}},
                                   {"[picture-0:1]?B:No 2: ", ControlTokens::recognise, {-1, -2}},
                                   {" so and?"}}));
}

// What a template says itself may look like a mark, too.
TEST(PicturePlaces, MarksOfATemplateAreText) {
  const auto tokenizer = tokenizer_of("tiny-llama.gguf");
  const std::vector<Message> messages{{.role = "user", .content = "!", .pictures = {rows({-1})}}};
  for (const std::string other :
       {"[picture-0:7]", "[picture-0:", "[picture-0:x]", "[picture-0:99999999999999999999999]"}) {
    EXPECT_EQ(prompt(*tokenizer, parse(other + "{{ messages[0].content }}"), messages),
              tokens_of(*tokenizer, {{other, ControlTokens::recognise, {-1}}, {"!"}}));
  }
}

struct Family {
  std::string name;         // of the template
  std::string model;        // whose vocabulary has these control tokens:
  std::string placeholder;  // what the template writes for a picture
};
void PrintTo(const Family& family, std::ostream* out) { *out << family.name; }

class Templates : public testing::TestWithParam<Family> {};

TEST_P(Templates, PicturesTakeThePlaceOfPlaceholders) {
  const Family& family = GetParam();
  const auto tokenizer = tokenizer_of(family.model);
  const auto chat_template = read_template(family.name);
  std::ifstream file(kFolder + "conversations.json");
  const auto chats = nlohmann::json::parse(file);
  EXPECT_NE(tokenizer->encode(family.placeholder, ControlTokens::recognise, Beginning::omit),
            tokenizer->encode(family.placeholder, ControlTokens::as_text, Beginning::omit));
  const auto expected = read_lines(kFolder + family.name + ".expected");
  for (size_t i = 0; i < chats.size(); ++i) {
    SCOPED_TRACE(chats[i].dump());
    std::vector<Message> messages;
    std::vector<Piece> pieces;
    // The last conversation has a question that is nothing but placeholders; they come after its picture.
    std::string left = unescape(expected[i]);
    TokenId next = -1;
    for (const auto& message : chats[i]) {
      messages.push_back({.role = message["role"], .content = message["content"]});
      for (int k = 0; k < message.value("pictures", 0); ++k) {
        const std::vector<TokenId> own{next, next - 1};
        next -= 2;
        messages.back().pictures.push_back({{.text = "{", .rows = own}, {.text = "}", .rows = {}}});
        const size_t at = left.find(family.placeholder);
        ASSERT_NE(at, std::string::npos);
        pieces.push_back({left.substr(0, at) + "{", ControlTokens::recognise, own});
        left = "}" + left.substr(at + family.placeholder.size());
      }
    }
    for (const std::string written : {"<image>", "<|image_pad|>"}) {
      const size_t at = left.find(written);
      if (at == std::string::npos) continue;
      pieces.push_back({left.substr(0, at), ControlTokens::recognise});
      pieces.push_back({written, ControlTokens::as_text});
      left.erase(0, at + written.size());
    }
    pieces.push_back({left, ControlTokens::recognise});
    EXPECT_EQ(prompt(*tokenizer, chat_template, messages), tokens_of(*tokenizer, pieces));
  }
}

INSTANTIATE_TEST_SUITE_P(Families, Templates,
                         testing::Values(Family{"smolvlm", "vision/tiny-idefics3.gguf", "<image>"},
                                         Family{"listed", "vision/tiny-llava_onevision.gguf", "<image>"},
                                         Family{"numbered", "vision/tiny-qwen2_5_vl.gguf",
                                                "<|vision_start|><|image_pad|><|vision_end|>"},
                                         Family{"trimmed", "vision/tiny-gemma3.gguf", "<start_of_image>"}),
                         [](const auto& instance) { return instance.param.name; });

// A template that writes what nobody knows for a picture, or nothing, or more than there are: the picture stands before
// the text, where that is.
TEST(PicturePlaces, UnknownPlaceholdersAreNotWritten) {
  const auto tokenizer = tokenizer_of("tiny-llama.gguf");
  const std::vector<Message> messages{
      {.role = "user", .content = "one", .pictures = {rows({-1}), rows({-2})}},
      {.role = "user", .content = "two", .pictures = {rows({-3})}},
  };
  for (const std::string placeholder : {"<unheard-of>", "", "<image><image>"}) {
    const auto chat_template = parse("{% for m in messages %}{% for p in m.content %}{% if p.type == 'image' %}" +
                                     placeholder + "{% else %}({{ p.text }}){% endif %}{% endfor %}{% endfor %}");
    EXPECT_EQ(chat_template.content_form(), ContentForm::parts);
    EXPECT_EQ(
        prompt(*tokenizer, chat_template, messages),
        tokens_of(*tokenizer,
                  {{"(", ControlTokens::recognise, {-1, -2}}, {"one)(", ControlTokens::recognise, {-3}}, {"two)"}}))
        << placeholder;
  }
}

TEST(PicturePlaces, APictureThatATemplateDropsIsAnError) {
  const auto chat_template =
      parse("{% for m in messages %}{% if m.role != 'tool' %}{{ m.content }}{% endif %}{% endfor %}");
  const auto rendered = [&](const std::string& role) {
    const std::vector<Message> messages{{.role = role, .content = "one", .pictures = {rows({-1})}},
                                        {.role = "user", .content = "two"}};
    return PicturePlaces(messages).render(chat_template, {});
  };
  EXPECT_TRUE(rendered("user"));
  const auto dropped = rendered("tool");
  ASSERT_FALSE(dropped);
  EXPECT_EQ(dropped.error().code, ErrorCode::unsupported);
  EXPECT_NE(dropped.error().message.find("leaves out a message that has a picture"), std::string::npos);
}

// Orders that a template refuses are changed, and pictures come along.
TEST(PicturePlaces, PicturesFollowTheirMessages) {
  const auto tokenizer = tokenizer_of("vision/tiny-gemma3.gguf");
  const std::vector<Message> messages{
      {.role = "user", .content = "one", .pictures = {rows({-1})}},
      {.role = "user", .content = "two", .pictures = {rows({-2})}},
      {.role = "system", .content = "sys"},
  };
  EXPECT_EQ(prompt(*tokenizer, read_template("trimmed"), messages),
            tokens_of(*tokenizer, {{"<bos><start_of_turn>user\nsys\n\n", ControlTokens::recognise, {-1}},
                                   {"one\n\n", ControlTokens::recognise, {-2}},
                                   {"two<end_of_turn>\n<start_of_turn>model\n"}}));
}

}  // namespace
}  // namespace nanomind
