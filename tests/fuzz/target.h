// A parser of external bytes, and examples that it accepts. Each target is one .cpp file. Linked
// with fuzz_main.cpp it is a libFuzzer program, with replay_main.cpp a test.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

using Bytes = std::vector<std::byte>;

// Parses any bytes. May throw Error (except InternalError). Any other result is a defect.
void parse(std::span<const std::byte> bytes);

// The initial inputs of mutations.
std::vector<Bytes> seeds();

// Calls parse() for both programs and catches user errors.
void run_target(std::span<const std::byte> bytes);

inline Bytes bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep::fuzz
