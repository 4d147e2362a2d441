// Whether the inputs of a network that are to be normalized have their statistics, and results that
// are denormalized those of the targets.
#pragma once

#include <string_view>

namespace lockstep {

class Network;

// The initial offset of an input layer. Without statistics it is -0, which subtracts nothing and
// which no statistics give. So copies, files and other processes know that they are missing.
constexpr float initial_offset(std::string_view normalization) {
  return normalization == "none" ? 0.0f : -0.0f;
}

// Throws InvalidArgument, naming the input or layer, if statistics are missing. On a device it
// waits for a copy, so it is called where something is compiled, not for every run.
void require_input_statistics(const Network& network);

}  // namespace lockstep
