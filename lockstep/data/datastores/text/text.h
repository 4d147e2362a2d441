// Texts as tokens: vocabularies, files of tokens for texts larger than memory, and windows whose
// targets are the next tokens.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "lockstep/data/datastores/datastore.h"

namespace lockstep {

// ---- Vocabularies ----

enum class TextUnits : uint8_t {
  bytes,       // 256 tokens, for any text
  characters,  // code points of UTF-8
  // Words between white space; each character of ASCII punctuation and each line break is a
  // word. Decoded texts have one space between words.
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
  // or is not one character or word; tokens are for characters and words. The words "0", "1", ...
  // are of texts of numbers, where any white space separates these.
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
  bool of_numbers_ = false;  // tokens_[i] is the number i
  std::vector<std::string> tokens_;
  std::map<std::string, int32_t, std::less<>> numbers_;  // none for bytes
};

// "bytes", "characters", "words".
std::string_view name_of(TextUnits units);

// ---- Tokens ----

// The tokens of a text in order, in memory or in a file that the system reads when they are needed.
// Immutable, thread-safe.
class Tokens {
 public:
  virtual ~Tokens() = default;
  virtual int64_t size() const = 0;
  // Writes tokens [first, first + count), which must be there.
  virtual void copy(int64_t first, int64_t count, int32_t* to) const = 0;
  virtual std::string describe() const = 0;
};
using TokensPtr = std::shared_ptr<const Tokens>;

TokensPtr tokens_in_memory(std::vector<int32_t> tokens);

// Opens a file of tokens: .npy, a one-dimensional array of integers; .bin, numbers of 2 bytes
// without a header, as nanoGPT writes them; or what write_token_file() wrote. Maps the file into
// memory, which must not change as long as this is used. Throws FileError, and DataError for other
// contents.
TokensPtr open_token_file(const std::string& path);
// Whether a file is one of tokens by its name: .npy, .bin or .tokens.
bool is_token_file(std::string_view path);

// Writes the tokens that `next` returns, chunk by chunk, until it returns none: 2 bytes each if the
// vocabulary has at most 65,536 tokens, otherwise 4. Throws InvalidArgument for a token outside the
// vocabulary, FileError; then the file is as it was before.
void write_token_file(const std::string& path, int64_t vocabulary_size,
                      const std::function<std::span<const int32_t>()>& next);
// The same of a text file in UTF-8, which is read and encoded line by line, so that it may be
// larger than memory. Also throws DataError, naming its line, for what encode() refuses.
void write_token_file(const std::string& path, const Vocabulary& vocabulary,
                      const std::string& text_file);

// ---- Windows ----

struct TokenWindowOptions {
  int64_t length = 256;  // steps
  int64_t stride = 0;    // from the begin of a window to that of the next; 0: the length
};

// Windows of a text, whose targets are the next tokens: example i has the tokens from i * stride
// on, and its target by step is the token after each. The last windows are shorter where the text
// ends. The classes of the targets are the vocabulary's tokens. Observations are called "token 0",
// "token 256" after their first one. Throws InvalidArgument for options below 1, and DataError for
// a text with fewer than two tokens. Reading throws DataError for a token outside the vocabulary,
// with its position. Thread-safe.
DatastorePtr token_windows(const TokensPtr& tokens, const Vocabulary& vocabulary,
                           const TokenWindowOptions& options = {});

}  // namespace lockstep
