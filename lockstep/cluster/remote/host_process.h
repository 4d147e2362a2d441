// One remote agent, as the client knows it: see host_processes.h.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "lockstep/base/os/descriptor.h"
#include "lockstep/base/time_limit.h"
#include "lockstep/parallel/process/child_process.h"
#include "lockstep/parallel/process/function.h"

namespace lockstep {

// Seconds between looks whether the command of a host that has not come is stopped.
inline constexpr double kLookForStop = 1;

// One thread at a time.
struct HostProcess {
  std::string name;
  int64_t index = 0, size = 0;
  std::optional<ChildProcess> command;  // none: the host is started externally
  Descriptor lifeline, printed;
  std::string key_file;      // "": none
  std::string process = {};  // "process 77 on n2", once it has joined
  Call<void> task;
  TimeLimit hello;
  bool arrived = false;
  TimeLimit::Clock::time_point last_message = TimeLimit::Clock::now();
  std::string reason = {};  // why it was ended by this process, or the error of its task
  bool failed = false;      // its task threw, or it is to end
  bool outside = false, hopeless = false;  // see WorkerEnd
  bool stopped = false;                    // its command was, at the last look
  TimeLimit look_for_stop{kLookForStop};
  // For the last messages of an ended one, which must come before its loss.
  std::optional<TimeLimit> last_messages = {};

  bool ended() { return command ? command->ended() : failed; }
  // How it ended, for one that has ended.
  std::string end();
  // Whether its command was stopped (SIGSTOP) at two looks one after the other.
  bool is_stopped();
};

// The arguments of a command that runs this executable on a host, by the launch command `launch`.
// Throws InvalidArgument for an empty one and for paths that a shell would alter.
std::vector<std::string> command_for(const std::string& launch, const std::string& host,
                                     const std::string& address, const std::string& key_file);

// The end of a command's output, as one line.
std::string last_words(int descriptor);

}  // namespace lockstep
