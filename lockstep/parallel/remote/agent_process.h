// The remote agent: the process that represents a client on another host. A command that reaches
// the host (ssh, srun) starts it, with this executable's path and `host_argument`. The start
// message comes through its standard input. The end of that input means that the client is gone.
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
  std::string build;   // of the client's executable
  std::string folder;  // working directory
  std::vector<std::pair<std::string, std::string>> environment;
  double silence = 10;  // seconds without a message after which the client counts as gone

  template <class Archive>
  void serialize(Archive& archive) {
    archive(ticket, build, folder, environment, silence);
  }
};

// The first byte of a message. The content of `message` is defined by the task.
enum class ClientMessage : uint8_t { pulse = 1, task = 2, message = 3 };
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

// Reads the start message, runs the given task, and never returns.
[[noreturn]] void run_as_host();

// The build id of this process, to compare with HostStart::build.
std::string build_of_this();

}  // namespace lockstep
