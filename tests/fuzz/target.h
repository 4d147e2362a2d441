// A parser of bytes from outside, and bytes that it accepts. Each target is one .cpp file; linked
// with fuzz_main.cpp it is a libFuzzer program, with replay_main.cpp a test.
#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace lockstep::fuzz {

using Bytes = std::vector<std::byte>;

// Parses anything. May throw Error (but InternalError); anything else is a defect.
void parse(std::span<const std::byte> bytes);

// Where mutations begin.
std::vector<Bytes> seeds();

// parse() as both programs call it: errors that tell the user are caught.
void run_target(std::span<const std::byte> bytes);

inline Bytes bytes_of(std::string_view text) {
  const auto* begin = reinterpret_cast<const std::byte*>(text.data());
  return {begin, begin + text.size()};
}
inline std::string text_of(std::span<const std::byte> bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

}  // namespace lockstep::fuzz
