// Files of tokens for texts larger than memory.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <vector>

#include "lockstep/data/datastores/text/vocabulary.h"

namespace lockstep {

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

// Opens what write_token_file() wrote. Maps the file into memory, which must not change as long as
// this is used. Throws FileError, and DataError for other contents.
TokensPtr open_token_file(const std::string& path);

// Writes the tokens that `next` returns, piece by piece, until it returns none: 2 bytes each if the
// vocabulary has at most 65,536 tokens, otherwise 4. Throws InvalidArgument for a token outside the
// vocabulary, FileError; then the file is as it was before.
void write_token_file(const std::string& path, int64_t vocabulary_size,
                      const std::function<std::span<const int32_t>()>& next);
// The same of a text file in UTF-8, which is read and encoded line by line, so that it may be
// larger than memory. Also throws DataError, naming its line, for what encode() refuses.
void write_token_file(const std::string& path, const Vocabulary& vocabulary,
                      const std::string& text_file);

}  // namespace lockstep
