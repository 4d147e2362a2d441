#include "lockstep/engine/kernels/backends/backend.h"

#include <charconv>

namespace lockstep::kernels {
namespace {

std::string version_text(int cuda) {
  return std::to_string(cuda / 1000) + "." + std::to_string(cuda % 1000 / 10);
}

}  // namespace

std::string driver_problem(const std::string& error, int driver, int runtime) {
  if (driver == 0) return "there is no NVIDIA driver";
  if (driver < runtime) {
    return "the NVIDIA driver is too old: it supports CUDA " + version_text(driver) +
           ", but this library needs " + version_text(runtime);
  }
  return "the NVIDIA driver (CUDA " + version_text(driver) + ") finds no GPU: " + error;
}

bool has_code_for(std::string_view architectures, int major, int minor) {
  while (!architectures.empty()) {
    const size_t end = architectures.find(',');
    const std::string_view one = architectures.substr(0, end);
    architectures = end == one.npos ? std::string_view() : architectures.substr(end + 1);
    int number = 0;
    const auto [rest, error] = std::from_chars(one.data(), one.data() + one.size(), number);
    if (error != std::errc()) continue;
    const std::string_view kind(rest, static_cast<size_t>(one.data() + one.size() - rest));
    const int code_major = number / 10, code_minor = number % 10;
    const bool only_there = kind.starts_with('a');
    // Machine code runs on later GPUs of its generation, intermediate code on all later GPUs.
    if (!kind.ends_with("-virtual") && code_major == major &&
        (only_there ? code_minor == minor : code_minor <= minor)) {
      return true;
    }
    if (!kind.ends_with("-real") && !only_there &&
        std::pair(code_major, code_minor) <= std::pair(major, minor)) {
      return true;
    }
  }
  return false;
}

}  // namespace lockstep::kernels
