// Vocabularies, files of tokens, and windows of texts.
#include "lockstep/data/datastores/text/text.h"

#include <gtest/gtest.h>

#include <fstream>
#include <utility>

#include "lockstep/base/error.h"
#include "tests/data/support.h"

namespace lockstep {
namespace {

using testing::expect_says;
using testing::message_of;
using testing::TemporaryFolder;
using TokenNumbers = std::vector<int32_t>;

Vocabulary learned_from(std::string_view text, VocabularyOptions options) {
  return Vocabulary::learn(std::span(&text, 1), options);
}

TEST(Vocabulary, OfBytesTakesAnyText) {
  const Vocabulary bytes;
  EXPECT_EQ(bytes.size(), 256);
  EXPECT_EQ(bytes.tokens()[10], "\\x0a");
  EXPECT_EQ(bytes.tokens()[65], "A");
  const std::string text("a\xff\0z", 4);
  EXPECT_EQ(bytes.encode(text), (TokenNumbers{97, 255, 0, 122}));
  EXPECT_EQ(bytes.decode(TokenNumbers{97, 255, 0, 122}), text);
  EXPECT_TRUE(bytes.encode("").empty());
}

TEST(Vocabulary, OfCharactersCountsCodePoints) {
  const Vocabulary characters = learned_from(
      "b\xC3\xA4"
      "b\xE2\x82\xAC"
      "a",
      {});
  EXPECT_EQ(characters.tokens(), (std::vector<std::string>{"b", "a", "\xC3\xA4", "\xE2\x82\xAC"}));
  EXPECT_EQ(characters.encode("a\xE2\x82\xAC"), (TokenNumbers{1, 3}));
  EXPECT_EQ(characters.decode(TokenNumbers{2, 0}),
            "\xC3\xA4"
            "b");
}

TEST(Vocabulary, OfWordsSplitsPunctuationAndLines) {
  const Vocabulary words = learned_from("The cat, the dog.\nThe end", {.units = TextUnits::words});
  EXPECT_EQ(words.tokens(),
            (std::vector<std::string>{"The", "\n", ",", ".", "cat", "dog", "end", "the"}));
  EXPECT_EQ(words.encode("  The\tdog,"), (TokenNumbers{0, 5, 2}));
  EXPECT_EQ(words.decode(TokenNumbers{0, 5, 1, 6}), "The dog\nend");
}

// Line breaks were refused as unknown words.
TEST(Vocabulary, OfNumbersTakesAnyWhiteSpace) {
  std::vector<std::string> tokens;
  for (int i = 0; i < 11; ++i) tokens.push_back(std::to_string(i));
  const Vocabulary vocabulary = Vocabulary::of(std::move(tokens), TextUnits::words);
  EXPECT_EQ(vocabulary.encode("3\n10\r\n\t0  7\n"), (std::vector<int32_t>{3, 10, 0, 7}));
  const auto message = [&](const char* text) {
    return testing::message_of<DataError>([&] { vocabulary.encode(text, "n.txt"); });
  };
  testing::expect_says(message("1 2\n300"),
                       "n.txt line 2, column 1: token 2 is 300, but the vocabulary has 11 tokens");
  testing::expect_says(message("1 two"), "`two` is not a number of a token");
  testing::expect_says(message("07"), "`07` is not a number of a token");
}

TEST(Vocabulary, UnknownTokensAreNamedOrReplaced) {
  const Vocabulary known = learned_from("ab\n", {});
  expect_says(message_of<DataError>([&] { known.encode("ab\nac", "x.txt"); }),
              "[vocabulary] x.txt line 2, column 2: `c` is not among the 3 tokens");
  expect_says(message_of<DataError>([&] {
                known.encode(
                    "ab\na\xff"
                    "b",
                    "x.txt");
              }),
              "x.txt line 2, column 2: the text is not UTF-8");
  const Vocabulary open = learned_from("ab\n", {.unknown = true});
  EXPECT_EQ(open.tokens()[0], "<unknown>");
  EXPECT_EQ(open.encode("acb"), (TokenNumbers{2, 0, 3}));
}

TEST(Vocabulary, LimitsLeaveTheRareOut) {
  EXPECT_EQ(learned_from("aaabbc", {.most = 3, .unknown = true}).tokens(),
            (std::vector<std::string>{"<unknown>", "a", "b"}));
  EXPECT_EQ(learned_from("aaabbc", {.least_count = 3, .unknown = true}).tokens(),
            (std::vector<std::string>{"<unknown>", "a"}));
  expect_says(message_of<InvalidArgument>([] { learned_from("aab", {.most = 1}); }),
              "the limits leave out 1 token of the texts");
  expect_says(message_of<InvalidArgument>([] { learned_from("aab", {.most = -1}); }),
              "not possible");
  expect_says(message_of<InvalidArgument>([] { learned_from("", {}); }), "the texts are empty");
}

TEST(Vocabulary, JsonKeepsIt) {
  for (const Vocabulary& one :
       {Vocabulary(), learned_from("b\xC3\xA4\"\n", {}),
        learned_from("a b.", {.units = TextUnits::words, .unknown = true})}) {
    EXPECT_EQ(Vocabulary::from_json(one.to_json(), "x"), one);
  }
  const auto refusal = [](const std::string& text) {
    return message_of<DataError>([&] { Vocabulary::from_json(text, "x.json"); });
  };
  for (const char* const text :
       {"", "[]", "{}", R"({"units": 3})", R"({"units": "letters"})", R"({"units": "words"})",
        R"({"units": "words", "tokens": [1], "unknown": false})",
        R"({"units": "words", "tokens": ["a"]})",
        R"({"units": "words", "tokens": ["a", "a"], "unknown": false})",
        R"({"units": "words", "tokens": ["a b"], "unknown": false})",
        R"({"units": "characters", "tokens": [""], "unknown": false})",
        R"({"units": "characters", "tokens": ["a"], "unknown": true})"}) {
    expect_says(refusal(text), "[vocabulary] x.json is not a vocabulary");
  }
}

TokenNumbers all_tokens_of(const Tokens& tokens) {
  TokenNumbers numbers(static_cast<size_t>(tokens.size()));
  tokens.copy(0, tokens.size(), numbers.data());
  return numbers;
}

TEST(TokenFile, HoldsATextOfAnySize) {
  const TemporaryFolder folder;
  const std::string text_path = folder.path + "/a.txt", path = folder.path + "/a.tokens";
  std::string text;
  for (int i = 0; i < 100'000; ++i) text += std::to_string(i) + (i % 7 == 0 ? "\n" : " ");
  std::ofstream(text_path) << text;
  const Vocabulary vocabulary = learned_from(text, {});
  write_token_file(path, vocabulary, text_path);
  const TokensPtr tokens = open_token_file(path);
  EXPECT_EQ(all_tokens_of(*tokens), vocabulary.encode(text));
  EXPECT_EQ(std::filesystem::file_size(path), 16 + 2 * text.size());
}

TEST(TokenFile, LargeNumbersHaveFourBytes) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a.tokens";
  const TokenNumbers numbers{0, 65'536, 2};
  bool given = false;
  const auto once = [&]() -> std::span<const int32_t> {
    if (std::exchange(given, true)) return {};
    return numbers;
  };
  write_token_file(path, 65'537, once);
  EXPECT_EQ(all_tokens_of(*open_token_file(path)), numbers);
  given = false;
  expect_says(message_of<InvalidArgument>([&] { write_token_file(path, 65'536, once); }),
              "token 65536 is not among the 65536 tokens");
  EXPECT_EQ(all_tokens_of(*open_token_file(path)), numbers) << "the file before the failure";
}

// An .npy file as numpy.save() writes it.
std::string numpy_file(const std::string& type, const std::string& shape,
                       std::string_view elements) {
  std::string header =
      "{'descr': '" + type + "', 'fortran_order': False, 'shape': " + shape + ", }";
  header.resize(117, ' ');
  return std::string("\x93NUMPY\x01\x00", 8) + std::string("\x76\x00", 2) + header + "\n" +
         std::string(elements);
}

template <class T>
std::string bytes_of(std::initializer_list<T> numbers) {
  return {reinterpret_cast<const char*>(numbers.begin()), numbers.size() * sizeof(T)};
}

TEST(TokenFile, ReadsIntegersOfNumpyAndNumbersAlone) {
  const TemporaryFolder folder;
  const auto read = [&](const std::string& name, const std::string& contents) {
    std::ofstream(folder.path + "/" + name, std::ios::binary) << contents;
    return all_tokens_of(*open_token_file(folder.path + "/" + name));
  };
  const TokenNumbers small{0, 7, 100};
  EXPECT_EQ(read("a.npy", numpy_file("|u1", "(3,)", bytes_of<uint8_t>({0, 7, 100}))), small);
  EXPECT_EQ(read("a.npy", numpy_file("|i1", "(3,)", bytes_of<int8_t>({0, 7, 100}))), small);
  EXPECT_EQ(read("a.npy", numpy_file("<i2", "(3,)", bytes_of<int16_t>({0, 7, 100}))), small);
  EXPECT_EQ(read("a.npy", numpy_file("<i4", "(3,)", bytes_of<int32_t>({0, 7, 100}))), small);
  EXPECT_EQ(read("a.npy", numpy_file("<u4", "(3,)", bytes_of<uint32_t>({0, 7, 100}))), small);
  EXPECT_EQ(read("a.npy", numpy_file("<i8", "(3,)", bytes_of<int64_t>({0, 7, 100}))), small);
  EXPECT_EQ(read("a.npy", numpy_file("<u8", "(3,)", bytes_of<uint64_t>({0, 7, 100}))), small);
  const TokenNumbers large{0, 50'256, 65'535};
  EXPECT_EQ(read("a.npy", numpy_file("<u2", "(3,)", bytes_of<uint16_t>({0, 50'256, 65'535}))),
            large);
  EXPECT_EQ(read("a.bin", bytes_of<uint16_t>({0, 50'256, 65'535})), large);
  // What does not fit is not a token of any vocabulary.
  const TokenNumbers outside{-1, std::numeric_limits<int32_t>::max()};
  EXPECT_EQ(
      read("a.npy", numpy_file("<i8", "(2,)", bytes_of<int64_t>({-5'000'000'000, 4'294'967'301}))),
      outside);
}

TEST(TokenFile, OtherArraysAreRefused) {
  const TemporaryFolder folder;
  const auto refused = [&](const std::string& name, const std::string& contents) {
    std::ofstream(folder.path + "/" + name, std::ios::binary) << contents;
    return message_of<DataError>([&] { open_token_file(folder.path + "/" + name); });
  };
  const std::string four = bytes_of<int32_t>({1, 2, 3, 4});
  expect_says(refused("a.npy", numpy_file("<i4", "(2, 2)", four)), "not a one-dimensional array");
  expect_says(refused("a.npy", numpy_file("<f4", "(4,)", four)), "little-endian integers");
  expect_says(refused("a.npy", numpy_file(">i4", "(4,)", four)), "little-endian integers");
  expect_says(refused("a.npy", numpy_file("<i4", "(5,)", four)), "an array of 5 tokens");
  expect_says(refused("a.npy", numpy_file("<i4", "(4,)", four).substr(0, 40)), "ends too early");
  expect_says(refused("a.npy", numpy_file("<i4", "(4,)", four) + "odd"), "an array of 4 tokens");
  expect_says(refused("a.npy", four), "is not an array of NumPy");
  expect_says(refused("a.bin", "odd"), "its last token is cut");
  expect_says(refused("a.bin", ""), "is empty");
}

TEST(TokenFile, OtherFilesAreRefused) {
  const TemporaryFolder folder;
  const std::string path = folder.path + "/a.tokens";
  EXPECT_THROW(open_token_file(path), FileError);
  EXPECT_THROW(open_token_file(folder.path), FileError);
  std::ofstream(path) << "a text of more than sixteen bytes";
  expect_says(message_of<DataError>([&] { open_token_file(path); }), "is not a file of tokens");
  std::ofstream(path) << "short";
  EXPECT_THROW(open_token_file(path), DataError);
}

TEST(TokenWindows, TargetsAreTheNextTokens) {
  const Vocabulary vocabulary;
  const DatastorePtr store =
      token_windows(tokens_in_memory({10, 11, 12, 13, 14, 15}), vocabulary, {.length = 2});
  ASSERT_EQ(store->size(), 3);
  const auto both = [&](int64_t i) {
    const Example example = store->read(i);
    return std::pair(std::get<IntegerArray>(example.inputs.at(0)).values,
                     std::get<IntegerArray>(example.target).values);
  };
  EXPECT_EQ(both(0), std::pair(TokenNumbers({10, 11}), TokenNumbers({11, 12})));
  EXPECT_EQ(both(1), std::pair(TokenNumbers({12, 13}), TokenNumbers({13, 14})));
  EXPECT_EQ(both(2), std::pair(TokenNumbers({14}), TokenNumbers({15})));
  EXPECT_EQ(store->name(2), "token 4");
  EXPECT_EQ(store->steps(2, 0), 1);
  EXPECT_EQ(store->steps(2, 1), 1);
  EXPECT_EQ(store->classes(), vocabulary.tokens());
  EXPECT_EQ(store->spec().target->type, DType::i32);
  EXPECT_TRUE(store->spec().inputs[0].columns.empty());  // bytes need no names
  const Vocabulary letters = learned_from("abc", {});
  EXPECT_EQ(token_windows(tokens_in_memory({0, 1, 2}), letters)->spec().inputs[0].columns,
            letters.tokens());
  const auto sizes = [&](int64_t tokens, int64_t length, int64_t stride) {
    return token_windows(tokens_in_memory(TokenNumbers(static_cast<size_t>(tokens))), vocabulary,
                         {.length = length, .stride = stride})
        ->size();
  };
  EXPECT_EQ(sizes(2, 256, 0), 1);
  EXPECT_EQ(sizes(5, 2, 0), 2);
  EXPECT_EQ(sizes(6, 3, 1), 5);
}

TEST(TokenWindows, WhatCannotBeIsRefused) {
  const Vocabulary vocabulary;
  const TokensPtr three = tokens_in_memory({1, 300, 2});
  expect_says(message_of<DataError>([&] { token_windows(three, vocabulary)->read(0); }),
              "token 1 is 300, but the vocabulary has 256 tokens");
  EXPECT_THROW(token_windows(three, vocabulary, {.length = 0}), InvalidArgument);
  EXPECT_THROW(token_windows(three, vocabulary, {.stride = -1}), InvalidArgument);
  EXPECT_THROW(token_windows(nullptr, vocabulary), InvalidArgument);
  EXPECT_THROW(token_windows(tokens_in_memory({1}), vocabulary), DataError);
  EXPECT_THROW(token_windows(tokens_in_memory({}), vocabulary), DataError);
}

}  // namespace
}  // namespace lockstep
