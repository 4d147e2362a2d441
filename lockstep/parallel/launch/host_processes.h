// Processes on other hosts, one for each, which stand there for this one.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/process/channel.h"
#include "lockstep/parallel/process/function.h"

namespace lockstep {

struct HostProcessOptions {
  // Of this machine, where the hosts find it; one of a private network.
  std::string address = "127.0.0.1";
  // What runs a command on a host, in words; {host} stands for its name. The command and its
  // argument follow, and its standard input must come through.
  std::string launch = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 {host}";
  double start_limit = 60;  // seconds from its start until a host says something
  double silence = 1.5;     // seconds without a word after which a host is lost
  // Set in the environment there, besides what begins with LOCKSTEP_ here.
  std::vector<std::pair<std::string, std::string>> environment = {};
};

struct HostEvent {
  enum class Kind {
    message,  // of its task
    lost,     // it is gone, or its task threw; `how` says how
  };
  Kind kind = Kind::message;
  uint32_t number = 0;
  Bytes content = {};
  std::string how = {};
};

// Starts them, sends to them and hears of them; they end when this does, or when they hear nothing
// of it for ten seconds. One thread, which must live as long as they.
class HostProcesses {
 public:
  // Throws InvalidArgument for an address that is not private, Error where it cannot be listened
  // at.
  explicit HostProcesses(const HostProcessOptions& options);
  ~HostProcesses();

  // Has the host run the same executable, found there under the same path, for a task. Returns a
  // number; none is used twice. Throws InvalidArgument for a path that a command line would change,
  // Error where the command cannot be run.
  uint32_t start(const std::string& host, const Call<void>& task);
  // False where it is lost, or takes nothing now.
  bool send(uint32_t number, std::span<const std::byte> content);
  // The next event; none at the limit, or when the descriptor `also` is readable.
  std::optional<HostEvent> wait(const TimeLimit& limit, int also);
  // Ends it; it is lost then, for that reason.
  void kill(uint32_t number, const std::string& reason);
  // Strangers that have tried to come in so far, as Workers::strangers().
  int64_t strangers();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
