// The command line of benchmarks that repeat their measurements.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <exception>

namespace lockstep::benchmarks {

// main() of a benchmark: calls run(turns). Returns the exit code.
template <class Run>
int run_with_turns(int argc, char** argv, const char* name, int turns, const Run& run) {
  if (argc == 3 && std::strcmp(argv[1], "--turns") == 0) turns = std::atoi(argv[2]);
  if ((argc != 1 && argc != 3) || turns < 1) {
    std::fprintf(stderr, "usage: %s [--turns N]\n", name);
    return 2;
  }
  try {
    run(turns);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
  return 0;
}

}  // namespace lockstep::benchmarks
