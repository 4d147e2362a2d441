#include "lockstep/base/numeric/dtype.h"

#include <charconv>

#include "lockstep/base/error.h"

namespace lockstep {

std::string to_string(Device device) {
  return device.is_cpu() ? "cpu" : "cuda:" + std::to_string(device.index);
}

Device parse_device(std::string_view text) {
  constexpr std::string_view prefix = "cuda:";
  if (text == "cpu") return {};
  if (text == "cuda") return {Device::Kind::cuda, 0};
  if (text.starts_with(prefix)) {
    const std::string_view digits = text.substr(prefix.size());
    const char* const end = digits.data() + digits.size();
    int index = -1;
    const auto [stopped, error] = std::from_chars(digits.data(), end, index);
    if (error == std::errc() && stopped == end && index >= 0) {
      return {Device::Kind::cuda, index};
    }
  }
  throw InvalidArgument("[device] `" + std::string(text) + "` is not a device",
                        "cpu, cuda (the first GPU) or cuda:1 (the second)");
}

}  // namespace lockstep
