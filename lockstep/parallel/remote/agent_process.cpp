#include "lockstep/parallel/remote/agent_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/addresses.h"
#include "lockstep/base/os/build_id.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/process/worker_context.h"
#include "lockstep/parallel/process/worker_start.h"

namespace lockstep {
namespace {

constexpr double kTaskLimit = 60;
constexpr std::chrono::milliseconds kAgentPulse{200};

HostContext* context = nullptr;

[[noreturn]] void end_at_once() { _exit(0); }

// The host's name or address in "tcp://[::1]:4000".
std::string host_of(const std::string& endpoint) {
  const size_t begin = endpoint.find("//") + 2, end = endpoint.rfind(':');
  std::string host = endpoint.substr(begin, end - begin);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return host;
}

void check(const HostStart& start) {
  if (start.build != build_of_this()) {
    throw InvalidArgument("[host] its executable is another build than the client's",
                          "all hosts must run the same file");
  }
  if (chdir(start.folder.c_str()) != 0) {
    throw FileError("[host] " + start.folder + ": " + std::strerror(errno),
                    "the client's folder must be there under the same path");
  }
}

}  // namespace

struct HostMain {
  [[noreturn]] static void run() {
    prctl(PR_SET_PDEATHSIG, SIGKILL);  // ends with the command that started it
    prctl(PR_SET_NAME, "lockstep-host");
    for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
    HostStart start;
    HostContext mine;
    try {
      start = decode<HostStart>(receive_start(STDIN_FILENO));
      mine.address_ = address_towards(host_of(start.ticket.endpoint));
    } catch (const Error& e) {
      // The client reads the command's output.
      std::fprintf(stderr, "%s\n", e.what());
      _exit(1);
    }
    mine.channel_ = std::make_unique<ChannelClient>(start.ticket, STDIN_FILENO, end_at_once,
                                                    ChannelOptions{.reconnect = false});
    context = &mine;
    std::atomic<bool> done{false};
    std::thread pulses;
    try {
      check(start);
      for (const auto& [name, value] : start.environment) setenv(name.c_str(), value.c_str(), 1);
      mine.channel_->send(with_prefix(AgentMessage::hello, {}));
      pulses = quiet_thread([&] { pulse(mine, start.silence, done); });
      if (const auto task = mine.receive(TimeLimit(kTaskLimit))) decode<Call<void>> (*task)();
    } catch (...) {
      mine.channel_->send(with_prefix(AgentMessage::failed, encode(TaskError::current())));
    }
    done = true;
    if (pulses.joinable()) pulses.join();
    mine.channel_.reset();  // delivers the last messages
    _exit(1);
  }

  // Sends heartbeats to the client, and ends this process when the client's heartbeats stop.
  static void pulse(HostContext& mine, double silence, const std::atomic<bool>& done) {
    while (!done) {
      std::this_thread::sleep_for(kAgentPulse);
      const auto since = TimeLimit::Clock::now() - mine.last_message_.load();
      if (std::chrono::duration<double>(since).count() > silence) end_at_once();
      try {
        mine.channel_->send(with_prefix(AgentMessage::pulse, {}));
      } catch (const std::exception&) {
        end_at_once();
      }
    }
  }
};

void HostContext::send(std::span<const std::byte> content) {
  channel_->send(with_prefix(AgentMessage::message, content));
}

std::optional<Bytes> HostContext::receive(const TimeLimit& limit) {
  for (;;) {
    const auto message = channel_->receive(limit);
    if (!message) return std::nullopt;
    last_message_ = TimeLimit::Clock::now();
    std::span<const std::byte> rest = *message;
    if (take_prefix<ClientMessage>(rest) != ClientMessage::pulse)
      return Bytes(rest.begin(), rest.end());
  }
}

HostContext& host_context() {
  if (context == nullptr) throw InvalidArgument("[host] this process is not a remote agent");
  return *context;
}

void run_as_host() { HostMain::run(); }

std::string build_of_this() { return build_id_of(reinterpret_cast<const void*>(&run_as_host)); }

}  // namespace lockstep
