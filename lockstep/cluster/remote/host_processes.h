// Remote agents: processes that represent this one, one on each other host.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/base/os/addresses.h"
#include "lockstep/parallel/messages/channel.h"
#include "lockstep/parallel/process/function.h"
#include "lockstep/parallel/process/workers.h"

namespace lockstep {

class HostStarter;

struct HostProcessOptions {
  // This machine's address as seen by the hosts. Must belong to a private network.
  std::string address = "127.0.0.1";
  // The command line that runs a command on a host; {host} is replaced by the host's name. The
  // executable and its arguments are appended. The command must pass on its standard input. Or
  // "join FILE": no command; the hosts are started externally (`lockstep worker`), with the key in
  // FILE.
  std::string launch = "ssh -o BatchMode=yes -o ConnectTimeout=10 -o ServerAliveInterval=5 {host}";
  // If set, it has the hosts started, and they join the pool; `launch` is then not used.
  std::shared_ptr<HostStarter> starter = {};
  PortRange ports = ports_to_use();  // to listen at
  // A folder that all hosts share, for key files that this user alone can read. "": keys go through
  // the command's standard input.
  std::string key_folder = {};
  bool same_processor = false;  // refuse hosts whose processor is of another model than this one's
  double start_limit = 60;      // seconds from its start until an agent's first message
  // Seconds without a message after which a host counts as lost. With more than 1,024 hosts it is
  // longer in proportion, as the time between heartbeats is.
  double silence = 1.5;
  // Set in the agent's environment, in addition to this process's variables that begin with
  // LOCKSTEP_.
  std::vector<std::pair<std::string, std::string>> environment = {};
};

// A class separate from Workers, because an agent is started by a command and judged by its
// silence, while the system reports ends and stops of a worker of this machine.
//
// Starts remote agents, or lets them join, and exchanges messages with them. They end when this
// process ends, or when they receive nothing from it for ten seconds. Used by one thread, which
// must live as long as they do.
class HostProcesses {
 public:
  // Throws InvalidArgument for an address that is not private, Error if it cannot listen at the
  // address.
  explicit HostProcesses(const HostProcessOptions& options);
  ~HostProcesses();

  // Where it listens: "127.0.0.1:20000".
  std::string address() const;
  // Runs a task on the host, in a process of the same executable under the same path. `index`: the
  // host's, from 0, for hosts that are started externally; `size`: their number. Returns the
  // process's number, which is never reused. Throws InvalidArgument for a path that a shell would
  // alter and for a launch command that is not there, Error if the system refuses.
  uint32_t start(const std::string& host, int64_t index, int64_t size, const Call<void>& task);
  // False if the agent is lost, or takes no message now.
  bool send(uint32_t number, std::span<const std::byte> content);
  // The next event, a message or a loss; none at the limit, or when the descriptor `also` is
  // readable. An agent whose task threw is lost.
  std::optional<WorkerEvent> wait(const TimeLimit& limit, int also);
  // Ends the agent; it is then reported as lost for this reason.
  void kill(uint32_t number, const std::string& reason);
  // Number of strangers' attempts to connect so far, like Workers::strangers().
  int64_t strangers();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep
