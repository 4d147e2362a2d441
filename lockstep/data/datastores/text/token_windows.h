// Windows of texts, with the next tokens as targets.
#pragma once

#include <cstdint>

#include "lockstep/data/datastores/datastore.h"
#include "lockstep/data/datastores/text/token_file.h"
#include "lockstep/data/datastores/text/vocabulary.h"

namespace lockstep {

struct TokenWindowOptions {
  int64_t length = 256;  // steps
  int64_t stride = 0;    // from the begin of a window to that of the next; 0: the length
};

// Windows of a text, whose targets are the next tokens: example i has the tokens from i * stride
// on, and its target by step is the token after each. The last windows are shorter where the text
// ends. The classes of the targets are the vocabulary's tokens. Observations are called "token 0",
// "token 256" after their first one. Throws InvalidArgument for options below 1, and DataError for
// a text with fewer than two tokens. Reading throws DataError for a token outside the vocabulary,
// with its place. Thread-safe.
DatastorePtr token_windows(const TokensPtr& tokens, const Vocabulary& vocabulary,
                           const TokenWindowOptions& options = {});

}  // namespace lockstep
