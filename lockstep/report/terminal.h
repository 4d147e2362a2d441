// Properties of the terminal of a stream.
#pragma once

#include <cstdio>

namespace lockstep {

// Whether the stream is a terminal that supports more than lines (TERM is not "dumb").
bool is_terminal(std::FILE* stream);

// Whether the stream is a terminal that supports color: NO_COLOR is unset or empty.
bool has_color(std::FILE* stream);

// The number of columns of the terminal, or `otherwise` if the stream has none.
int columns_of(std::FILE* stream, int otherwise);

}  // namespace lockstep
