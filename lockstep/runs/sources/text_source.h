// Texts of job files and of the command: a network whose input is tokens learns the next token, or,
// if its output is not a sequence, the classes of texts.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "lockstep/data/datastores/other_files.h"
#include "lockstep/data/datastores/text/text.h"
#include "lockstep/engine/formats/model.h"
#include "lockstep/engine/nn/network.h"

namespace lockstep {

// The length of windows if neither the job nor the command gives one.
inline constexpr int64_t default_text_window = 256;

// Whether the network's input is tokens. Throws InvalidArgument for tokens next to other inputs.
bool takes_text(const Network& network);

// The only one of these names. Throws InvalidArgument for others than one.
const std::string& only_text(const std::vector<std::string>& names);

// A text that has been read: one file, or all .txt files of a folder and the folders in it, in the
// bytewise order of their paths, one after another; or the tokens of a file of tokens.
struct TextFiles {
  std::string source;
  std::vector<std::string> paths, texts;  // of each file
  TokensPtr tokens = nullptr;             // of a file of tokens, which has no text
  OtherFiles others;                      // of a folder, without hidden ones
};
// Throws DataError if there is no text, and for other files than .txt and those of tokens
// (is_token_file()); FileError.
TextFiles read_text_files(const std::string& path);

// The tokens of a text. Throws DataError, naming file, line and column, for text that is not UTF-8
// and for tokens that are not in the vocabulary; InvalidArgument for files of tokens and a
// vocabulary of other units than "numbers".
TokensPtr tokens_of(const TextFiles& text, const Vocabulary& vocabulary);

// Tokens [first, first + count) of others, which must be there.
TokensPtr part_of(TokensPtr tokens, int64_t first, int64_t count);

// The vocabulary of these units ("bytes", "characters", "words") with at most `most` tokens (0: all
// of the text), learned from the text. Of "numbers" it has the words "0", "1" and so on, one for
// each token of the network's input. Throws InvalidArgument for other units and a limit on numbers,
// and what tokens_of() and Vocabulary::learn() throw.
Vocabulary learn_vocabulary(const TextFiles& text, const std::string& units, int64_t most,
                            const Network& network);

// The vocabulary whose tokens are the columns of a text's input: those of bytes have none. Throws
// InvalidArgument for units that do not exist, and what Vocabulary::of() throws.
Vocabulary vocabulary_of(const std::string& units, const TableColumns& columns);

// The vocabulary of a model that has learned a text. Throws InvalidArgument for other models, also
// for those whose network has a different number of tokens.
Vocabulary vocabulary_of(const Model& model);

// Throws InvalidArgument if the network's input has too few tokens for the vocabulary.
void check_vocabulary(const Network& network, const Vocabulary& vocabulary);

// Whether a network that takes text gives one output for each text.
bool classifies_texts(const Network& network);

// The keys of .jsonl files. "": `text` and `label`.
struct TextColumns {
  std::string text = {}, label = {};
};

// Texts with the names of their classes, each an observation.
struct LabeledTexts {
  TextFiles files;                   // a path for each text, with the line of a .jsonl file
  std::vector<std::string> labels;   // "" without labels
  std::vector<std::string> notices;  // of what was left out of folders
};
// Reads a folder with a folder of .txt files for each class, or a .jsonl file, which has an object
// with the keys of text and label on each line; of several, one after another. Without labels, .txt
// files count, too, also outside folders of classes, and the key of labels is not needed. Throws
// DataError, naming file, line and keys, for what is not such data and for texts that are empty;
// FileError.
LabeledTexts read_labeled_texts(const std::vector<std::string>& paths, bool labeled,
                                const TextColumns& columns = {});

// Windows of a text: token_windows(), with notices of what was left out of its folder.
DatastorePtr windows_of(const TextFiles& text, const TokensPtr& tokens,
                        const Vocabulary& vocabulary, const TokenWindowOptions& options);

// Their first `most` tokens as sequences with labels. `classes` are those of a training, or empty:
// those of the texts, in bytewise order. The datastore's notices count the texts that are cut, the
// unknown tokens, and files that were left out. Throws what tokens_of() throws, and DataError,
// naming the text, for one without tokens or with a label that is not among the classes.
DatastorePtr labeled_texts(const LabeledTexts& texts, const Vocabulary& vocabulary, int64_t most,
                           std::vector<std::string> classes = {});

// Texts for a model as its training had them: in windows, or each with its class. `labeled`:
// whether texts of classes have labels. A key of `columns` replaces that of the training. Throws
// what the functions above throw, and InvalidArgument for keys where there are no .jsonl files.
DatastorePtr open_texts(const std::vector<std::string>& paths, bool labeled, const Model& model,
                        const TextColumns& columns = {});

// Whether a name is that of a file with a JSON object on each line.
bool is_json_lines_name(const std::string& name);

}  // namespace lockstep
