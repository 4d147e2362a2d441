#include "lockstep/base/utc_time.h"

namespace lockstep {

std::string utc_text(std::time_t seconds) {
  std::tm parts = {};
  gmtime_r(&seconds, &parts);
  char text[32];
  return {text, std::strftime(text, sizeof text, "%Y-%m-%dT%H:%M:%SZ", &parts)};
}

std::string utc_now() { return utc_text(std::time(nullptr)); }

}  // namespace lockstep
