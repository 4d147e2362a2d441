#include "lockstep/report/terminal.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <cstdlib>
#include <cstring>

namespace lockstep {

bool is_terminal(std::FILE* stream) {
  const char* term = std::getenv("TERM");
  return ::isatty(::fileno(stream)) != 0 && (term == nullptr || std::strcmp(term, "dumb") != 0);
}

bool has_color(std::FILE* stream) {
  const char* no_color = std::getenv("NO_COLOR");  // https://no-color.org
  return is_terminal(stream) && (no_color == nullptr || *no_color == '\0');
}

int columns_of(std::FILE* stream, int otherwise) {
  winsize size{};
  const bool known = ::ioctl(::fileno(stream), TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : otherwise;
}

}  // namespace lockstep
