// Vocabularies: text as numbers of tokens, by bytes, characters or words.
#pragma once

#include <cstdint>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep {

enum class TextUnits : uint8_t {
  bytes,       // 256 tokens, for any text
  characters,  // code points of UTF-8
  // Words between white space; a character of ASCII punctuation is a word of its own, and so is a
  // line break. Texts that are decoded have one space between words.
  words
};

struct VocabularyOptions {
  TextUnits units = TextUnits::characters;
  int64_t most = 0;         // tokens; 0: no limit
  int64_t least_count = 1;  // a token must occur as often in the texts
  bool unknown = false;     // token 0, "<unknown>", stands for all that is not in the vocabulary
};

// The tokens of texts. A value type; const members are thread-safe.
class Vocabulary {
 public:
  // The 256 bytes.
  Vocabulary();
  // The tokens of these texts, those that occur most often first, then in bytewise order; all 256
  // for bytes. Throws InvalidArgument for options that cannot be, a limit without `unknown` that
  // leaves tokens out included, and DataError for text that is not UTF-8.
  static Vocabulary learn(std::span<const std::string_view> texts,
                          const VocabularyOptions& options = {});
  // Tokens in this order. Throws InvalidArgument, naming it, for one that is empty or there twice,
  // or is not one character or word; tokens are for characters and words.
  static Vocabulary of(std::vector<std::string> tokens, TextUnits units, bool unknown = false);

  TextUnits units() const { return units_; }
  bool has_unknown() const { return unknown_; }
  int64_t size() const { return static_cast<int64_t>(tokens_.size()); }
  // The text of each token. Bytes that are not printable ASCII are "\x0a".
  const std::vector<std::string>& tokens() const { return tokens_; }

  // The numbers of a text's tokens. Throws DataError, naming `where` with line and column, for
  // text that is not UTF-8 and, without has_unknown(), for tokens that are not in the vocabulary.
  // `first_line`: the number of the text's first line.
  std::vector<int32_t> encode(std::string_view text, const std::string& where = "the text",
                              int64_t first_line = 1) const;
  // The text of these tokens. Throws InvalidArgument for a number that is not one of a token.
  std::string decode(std::span<const int32_t> tokens) const;

  // {"units": "characters", "unknown": false, "tokens": ["a", ...]}; bytes have no tokens.
  std::string to_json() const;
  // Throws DataError, naming `where`, for other texts.
  static Vocabulary from_json(std::string_view text, const std::string& where);

  friend bool operator==(const Vocabulary&, const Vocabulary&) = default;

 private:
  TextUnits units_ = TextUnits::bytes;
  bool unknown_ = false;
  std::vector<std::string> tokens_;
  std::map<std::string, int32_t, std::less<>> numbers_;  // none for bytes
};

// "bytes", "characters", "words".
std::string_view name_of(TextUnits units);

}  // namespace lockstep
