// Texts of job files and of the command: a network whose input is tokens learns the next token.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/datastores/text/text.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

struct JobData;  // job_file.h

// The length of windows if neither the job nor the command gives one.
inline constexpr int64_t default_text_window = 256;

// Whether the network's input is tokens. Throws InvalidArgument for tokens next to other inputs.
bool takes_text(const Network& network);

// The only one of these names. Throws InvalidArgument for others than one.
const std::string& only_text(const std::vector<std::string>& names);

// A text that has been read: one file, or all .txt files of a folder and the folders in it, in the
// bytewise order of their paths, one after another.
struct TextFiles {
  std::string source;
  std::vector<std::string> paths, texts;  // of each file
};
// Throws DataError if there is no text, and for other files than .txt; FileError.
TextFiles read_text_files(const std::string& path);

// The tokens of a text. Throws DataError, naming file, line and column, for text that is not UTF-8
// and for tokens that are not in the vocabulary.
TokensPtr tokens_of(const TextFiles& text, const Vocabulary& vocabulary);

// Tokens [first, first + count) of others, which must be there.
TokensPtr part_of(TokensPtr tokens, int64_t first, int64_t count);

// The vocabulary of job.tokens and job.max_tokens, learned from the text. Throws what tokens_of()
// and Vocabulary::learn() throw.
Vocabulary learn_vocabulary(const TextFiles& text, const JobData& job);

// The vocabulary whose tokens are the columns of a text's input: those of bytes have none. Throws
// InvalidArgument for units that do not exist, and what Vocabulary::of() throws.
Vocabulary vocabulary_of(const std::string& units, const TableColumns& columns);

// The vocabulary of a model that has learned a text. Throws InvalidArgument for other models, also
// for those whose network has a different number of tokens.
Vocabulary vocabulary_of(const Model& model);

// Throws InvalidArgument if the network's input has too few tokens for the vocabulary.
void check_vocabulary(const Network& network, const Vocabulary& vocabulary);

// A text for a model, in windows as its training had them. Throws what the functions above throw.
DatastorePtr open_text(const std::string& path, const Model& model);

}  // namespace lockstep
