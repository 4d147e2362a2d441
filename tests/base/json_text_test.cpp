#include "lockstep/base/json/json_text.h"

#include <gtest/gtest.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/toml/toml_tree.h"

namespace lockstep {
namespace {

using nlohmann::json;
using nlohmann::ordered_json;

std::string brackets(size_t n) { return std::string(n, '[') + std::string(n, ']'); }

JsonError::Kind refused(const std::string& text, const JsonRules& rules = {}) {
  try {
    parse_json<json>(text, rules);
  } catch (const JsonError& error) {
    return error.kind();
  }
  ADD_FAILURE() << "accepted: " << text.substr(0, 100);
  return {};
}

TEST(JsonText, ReadsWhatTheLibraryReads) {
  const std::string text = R"({"b":[1,2.5,"]]]]\"[[[\\"],"a":{"x":null,"y":true}})";
  EXPECT_EQ(parse_json<json>(text), json::parse(text));
  EXPECT_EQ(parse_json<ordered_json>(text).dump(), text);
  EXPECT_EQ(parse_json_or_discard<ordered_json>(text).dump(), text);
  EXPECT_EQ(parse_json<json>(text, {.unique_keys = true}), json::parse(text));
}

// Copying and writing such values is recursive.
TEST(JsonText, NestingHasABound) {
  for (const std::string& deep :
       {brackets(deepest_json + 1), brackets(1'000'000), std::string(5'000'000, '['),
        R"({"a":)" + brackets(deepest_json) + "}", std::string("\"\\\"\",") + brackets(1000)}) {
    EXPECT_EQ(refused(deep), JsonError::Kind::depth);
    EXPECT_TRUE(parse_json_or_discard<json>(deep).is_discarded());
  }
  std::string objects;
  for (int i = 0; i < 100'000; ++i) objects += R"({"a":)";
  EXPECT_EQ(refused(objects), JsonError::Kind::depth);
  EXPECT_EQ(parse_json<json>(brackets(deepest_json)).dump(), brackets(deepest_json));
  // Brackets in text and lists beside each other do not nest.
  EXPECT_EQ(parse_json<json>(json(brackets(10'000)).dump()), json(brackets(10'000)));
  std::string many = "[";
  for (int i = 0; i < 10'000; ++i) many += "[],";
  EXPECT_EQ(parse_json<json>(many + "[]]").size(), 10'001u);
  EXPECT_EQ(refused("[[[]]]", {.deepest = 2}), JsonError::Kind::depth);
}

TEST(JsonText, SaysWhatIsWrongAndWhere) {
  try {
    parse_json<json>("{\"a\": 1,}");
    ADD_FAILURE();
  } catch (const JsonError& error) {
    EXPECT_EQ(error.kind(), JsonError::Kind::syntax);
    EXPECT_EQ(error.byte(), 9u);
    EXPECT_STREQ(error.what(), "it is not JSON (byte 9)");
  }
  EXPECT_EQ(refused(""), JsonError::Kind::syntax);
  EXPECT_EQ(refused("\"\xff\""), JsonError::Kind::syntax);
  EXPECT_EQ(refused("1e999"), JsonError::Kind::number);
  // The library itself takes a byte 0 for the end.
  EXPECT_EQ(refused(std::string("{}\0x", 4)), JsonError::Kind::syntax);
  EXPECT_TRUE(parse_json_or_discard<json>(std::string_view("{}\0x", 4)).is_discarded());
  const std::string twice = R"({"a":1,"b":[{"a":1},{"a":2}],"a":3})";
  EXPECT_EQ(parse_json<json>(twice)["a"], 3);
  EXPECT_EQ(refused(twice, {.unique_keys = true}), JsonError::Kind::repeated_key);
}

void refused_as_toml(const std::string& text) {
  try {
    parse_toml(text, "[job file] x.toml");
    ADD_FAILURE() << text.substr(0, 100);
  } catch (const DataError& error) {
    EXPECT_NE(std::string(error.what()).find("nested more than 64"), std::string::npos)
        << error.what();
    EXPECT_NE(std::string(error.what()).find("[job file] x.toml, line 2"), std::string::npos)
        << error.what();
  }
}

TEST(Toml, NestingHasABound) {
  std::string keys = "a", quoted = "a", tables;
  for (int i = 0; i < 200'000; ++i) {
    keys += ".a";
    quoted += " . \"a.b\"";
    tables += "{a=";
  }
  const std::string first = "name = \"x\"\n";
  refused_as_toml(first + keys + " = 1\n");
  refused_as_toml(first + "[" + keys + "]\n");
  refused_as_toml(first + "[[" + quoted + "]]\n");
  refused_as_toml(first + "x = " + brackets(200'000) + "\n");
  refused_as_toml(first + "x = " + tables + "\n");
  // Some of each.
  std::string dots = "a";
  for (int i = 0; i < 20; ++i) dots += ".a";
  refused_as_toml(first + dots + " = {" + dots + " = {" + dots + " = {" + dots + " = 1}}}\n");
}

TEST(Toml, TextAndNumbersAreNotNested) {
  std::string numbers = "x = [0.5";
  for (int i = 0; i < 1000; ++i) numbers += ", 0.5";
  EXPECT_EQ(parse_toml(numbers + "]", "").tree["x"].size(), 1001u);
  const std::string dots(1000, '.');
  for (const std::string quote : {"\"", "'", "\"\"\"", "'''"}) {
    const auto tree =
        parse_toml("x = " + quote + brackets(1000) + dots + quote + " # " + dots + "\ny = 1", "")
            .tree;
    EXPECT_EQ(tree["x"], brackets(1000) + dots);
    EXPECT_EQ(tree["y"], 1);
  }
  EXPECT_EQ(parse_toml(R"(x = "\"[[.......")"
                       "\n",
                       "")
                .tree["x"],
            "\"[[.......");
}

}  // namespace
}  // namespace lockstep
