// What a stream leads to.
#pragma once

#include <cstdio>

namespace lockstep {

// Whether the stream is a terminal that understands more than lines (TERM is not "dumb").
bool is_terminal(std::FILE* stream);

// Whether it is one on which colour is wanted: the environment variable NO_COLOR is not set.
bool has_colour(std::FILE* stream);

// Columns of the terminal, `otherwise` where it is none.
int columns_of(std::FILE* stream, int otherwise);

}  // namespace lockstep
