// The process that stands for a client on another host: what it is told when it starts, and what
// it has around it. A command that reaches the host (ssh, srun) starts it, with this executable's
// path and `host_argument`; the rest comes by its standard input, whose end says that the client is
// gone.
#pragma once

#include <atomic>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <utility>
#include <vector>

#include "lockstep/parallel/process/channel.h"
#include "lockstep/parallel/process/function.h"

namespace lockstep {

inline constexpr const char* host_argument = "--lockstep-host";

struct HostStart {
  ChannelTicket ticket;
  std::string build;   // of the client's executable
  std::string folder;  // in which it runs
  std::vector<std::pair<std::string, std::string>> environment;
  double silence = 10;  // seconds without a word from the client after which it is gone

  template <class Archive>
  void serialize(Archive& archive) {
    archive(ticket, build, folder, environment, silence);
  }
};

// The first byte of what is said; messages are the task's own.
enum class HostHears : uint8_t { pulse = 1, task = 2, message = 3 };
enum class HostSays : uint8_t { hello = 1, pulse = 2, message = 3, failed = 4 };

// Thread-safe.
class HostContext {
 public:
  // Of this host, as the client's network knows it.
  const std::string& address() const { return address_; }
  // Throws Timeout where the client takes nothing.
  void send(std::span<const std::byte> content);
  std::optional<Bytes> receive(const TimeLimit& limit);

 private:
  friend struct HostMain;
  std::string address_;
  std::unique_ptr<ChannelClient> channel_;
  // The client's last word. Before the first nobody is silent.
  std::atomic<TimeLimit::Clock::time_point> heard_{TimeLimit::Clock::time_point::max()};
};

// That of this process. Throws InvalidArgument in any other.
HostContext& host_context();

// Reads its start, runs the task it is given, and never returns.
[[noreturn]] void run_as_host();

// The build that this process runs, as HostStart has it.
std::string build_of_this();

}  // namespace lockstep
