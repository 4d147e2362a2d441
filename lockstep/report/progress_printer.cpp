#include "lockstep/base/error.h"
#include "lockstep/report/progress.h"
#include "lockstep/report/terminal.h"

namespace lockstep {
namespace {

ProgressOptions progress_options(std::FILE* stream, int64_t verbose_frequency) {
  if (stream == nullptr) throw InvalidArgument("[progress] no stream is given");
  if (verbose_frequency < 1) {
    throw InvalidArgument("[progress] verbose_frequency must be at least 1, received " +
                          std::to_string(verbose_frequency));
  }
  ProgressOptions options;
  options.terminal = is_terminal(stream);
  options.color = has_color(stream);
  options.verbose_frequency = verbose_frequency;
  options.width = [stream] { return columns_of(stream, 80); };
  return options;
}

}  // namespace

ProgressPrinter::ProgressPrinter(std::FILE* stream, int64_t verbose_frequency)
    : Progress(
          [stream](std::string_view text) {
            std::fwrite(text.data(), 1, text.size(), stream);
            std::fflush(stream);
          },
          progress_options(stream, verbose_frequency)) {}

ProgressPrinter::~ProgressPrinter() {
  try {
    finish();
  } catch (const std::exception&) {  // not enough memory for the last row
  }
}

}  // namespace lockstep
