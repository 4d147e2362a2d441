// The remote agent: the process that represents a client on another host. It joins the client's job
// (join.h). Either a command of the client that reaches the host (ssh, srun) starts it, with this
// executable's path and `host_argument`; the end of its standard input then means that the client
// is gone. Or something else starts it, as `lockstep worker`.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/messages/channel.h"
#include "lockstep/parallel/process/function.h"

namespace lockstep {

inline constexpr const char* host_argument = "--lockstep-host";

struct HostStart {
  ChannelTicket ticket;
  std::string folder;  // working directory
  std::vector<std::pair<std::string, std::string>> environment;
  double silence = 10;  // seconds without a message after which the client counts as gone
  double pulse = 0.2;   // seconds between this host's heartbeats

  template <class Archive>
  void serialize(Archive& archive) {
    archive(ticket, folder, environment, silence, pulse);
  }
};

// The first byte of a message. The content of `message` is defined by the task.
enum class ClientMessage : uint8_t { pulse = 1, task = 2, message = 3, end = 4 };
enum class AgentMessage : uint8_t { hello = 1, pulse = 2, message = 3, failed = 4 };

// The environment of the remote agent's task. Thread-safe.
class HostContext {
 public:
  // This host's address in the client's network.
  const std::string& address() const { return address_; }
  // Throws Timeout if the client takes nothing.
  void send(std::span<const std::byte> content);
  std::optional<Bytes> receive(const TimeLimit& limit);

 private:
  friend struct HostMain;
  std::string address_;
  std::unique_ptr<ChannelClient> channel_;
  // Time of the client's last message. The maximum until the first one, so that no silence counts.
  std::atomic<TimeLimit::Clock::time_point> last_message_{TimeLimit::Clock::time_point::max()};
};

// The context of this process. Throws InvalidArgument in any other process.
HostContext& host_context();

// From now on SIGTERM and SIGUSR2, by which a scheduler takes a host back, end this process after a
// message to the client. Must be called before other threads are started.
void leave_at_signals();

struct HostRun {
  bool started = false;  // by a command of the client
};

// Runs the task of the client whose start message this is, and never returns.
[[noreturn]] void run_as_host(const Bytes& start, const HostRun& how);
// Joins with the arguments that follow `host_argument`: the address and the key file. If a
// scheduler has started the process, its index and the number of hosts follow.
[[noreturn]] void run_as_started_host(int count, char** arguments);

// The build id of this process.
std::string build_of_this();

}  // namespace lockstep
