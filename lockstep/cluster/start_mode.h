// Further ways to start a process of a program with a Runtime, told by its first argument.
#pragma once

namespace lockstep {

// Never returns.
using StartMode = void (*)(int argc, char** argv);

// Has Runtime call `run` if the first argument of the process is `argument`. Only before main():
// the result initializes a variable with static storage.
bool add_start_mode(const char* argument, StartMode run);

// The mode of an argument, or null.
StartMode find_start_mode(const char* argument);

}  // namespace lockstep
