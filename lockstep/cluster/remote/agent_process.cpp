#include "lockstep/cluster/remote/agent_process.h"

#include <signal.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <cerrno>
#include <charconv>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/addresses.h"
#include "lockstep/base/os/build_id.h"
#include "lockstep/base/threads/quiet_thread.h"
#include "lockstep/cluster/remote/join.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/process/worker_context.h"

namespace lockstep {
namespace {

constexpr double kAgentTaskLimit = 60;
// For the last messages to arrive.
constexpr std::chrono::milliseconds kFarewell{200};

std::atomic<HostContext*> agent_context = nullptr;

[[noreturn]] void end_agent() { _exit(0); }
[[noreturn]] void end_without_client() {
  std::fprintf(stderr, "[host] the client no longer responds\n");
  _exit(1);
}

// The host's name or address in "tcp://[::1]:4000".
std::string host_of(const std::string& endpoint) {
  const size_t begin = endpoint.find("//") + 2, end = endpoint.rfind(':');
  std::string host = endpoint.substr(begin, end - begin);
  if (host.starts_with('[')) host = host.substr(1, host.size() - 2);
  return host;
}

int64_t number_in(const std::string& text) {
  int64_t number = -1;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc() || end != text.data() + text.size() || number < 0) {
    throw InvalidArgument("[join] \"" + text + "\" is not an index of a host");
  }
  return number;
}

void go_to(const std::string& folder) {
  if (chdir(folder.c_str()) != 0) {
    throw FileError("[host] " + folder + ": " + std::strerror(errno),
                    "the client's folder must be there under the same path");
  }
}

}  // namespace

struct HostMain {
  [[noreturn]] static void run(const Bytes& message, const HostRun& how) {
    if (how.started) {
      prctl(PR_SET_PDEATHSIG, SIGKILL);  // ends with the command that started it
      for (const int number : {SIGINT, SIGTERM, SIGHUP}) signal(number, SIG_IGN);
    }
    prctl(PR_SET_NAME, "lockstep-host");
    const auto start = decode<HostStart>(message);
    HostContext mine;
    for (const auto& [name, value] : start.environment) setenv(name.c_str(), value.c_str(), 1);
    mine.address_ = own_address_towards(host_of(start.ticket.endpoint));
    mine.channel_ = std::make_unique<ChannelClient>(start.ticket, how.started ? STDIN_FILENO : -1,
                                                    end_agent, ChannelOptions{.reconnect = false});
    agent_context = &mine;
    std::atomic<bool> done{false};
    std::thread pulses;
    try {
      go_to(start.folder);
      mine.channel_->send(with_prefix(AgentMessage::hello, {}));
      pulses = quiet_thread([&] { pulse(mine, start, done); });
      if (const auto task = mine.receive(TimeLimit(kAgentTaskLimit))) decode<Call<void>> (*task)();
    } catch (...) {
      mine.channel_->send(with_prefix(AgentMessage::failed, encode(TaskError::current())));
    }
    done = true;
    if (pulses.joinable()) pulses.join();
    mine.channel_.reset();  // delivers the last messages
    _exit(1);
  }

  // Reports that a scheduler takes the host back. Without this the client would wait for its
  // silence.
  [[noreturn]] static void leave_at(const sigset_t& signals) {
    int number = 0;
    while (sigwait(&signals, &number) != 0) {
    }
    const std::string name = sigabbrev_np(number);
    HostContext* const mine = agent_context;
    if (mine != nullptr) try {
        const TaskError error{"WorkerLost", "it was asked to leave (SIG" + name + ")", ""};
        mine->channel_->send(with_prefix(AgentMessage::failed, encode(error)));
        std::this_thread::sleep_for(kFarewell);
      } catch (const std::exception&) {
        // The client will detect the end of this process.
      }
    std::fprintf(stderr, "[host] left after SIG%s\n", name.c_str());
    _exit(0);
  }

  // Sends heartbeats to the client, and ends this process when the client's heartbeats stop.
  static void pulse(HostContext& mine, const HostStart& start, const std::atomic<bool>& done) {
    while (!done) {
      std::this_thread::sleep_for(std::chrono::duration<double>(start.pulse));
      const auto since = TimeLimit::Clock::now() - mine.last_message_.load();
      if (std::chrono::duration<double>(since).count() > start.silence) end_without_client();
      try {
        mine.channel_->send(with_prefix(AgentMessage::pulse, {}));
      } catch (const std::exception&) {
        end_agent();
      }
    }
  }
};

void leave_at_signals() {
  sigset_t signals;
  sigemptyset(&signals);
  for (const int number : {SIGTERM, SIGUSR2}) sigaddset(&signals, number);
  pthread_sigmask(SIG_BLOCK, &signals, nullptr);
  quiet_thread([signals] { HostMain::leave_at(signals); }).detach();
}

void HostContext::send(std::span<const std::byte> content) {
  channel_->send(with_prefix(AgentMessage::message, content));
}

std::optional<Bytes> HostContext::receive(const TimeLimit& limit) {
  for (;;) {
    const auto message = channel_->receive(limit);
    if (!message) return std::nullopt;
    last_message_ = TimeLimit::Clock::now();
    std::span<const std::byte> rest = *message;
    const auto says = take_prefix<ClientMessage>(rest);
    if (says == ClientMessage::end) end_agent();
    if (says != ClientMessage::pulse) return Bytes(rest.begin(), rest.end());
  }
}

HostContext& host_context() {
  if (agent_context == nullptr) throw InvalidArgument("[host] this process is not a remote agent");
  return *agent_context;
}

void run_as_host(const Bytes& start, const HostRun& how) { HostMain::run(start, how); }

void run_as_started_host(int count, char** arguments) {
  try {
    if (count == 2) {
      join_job({.address = arguments[0], .key_file = arguments[1], .started = true});
    }
    if (count != 4) throw InvalidArgument("[join] a host gets an address and a key file");
    join_job({.address = arguments[0],
              .key_file = arguments[1],
              .index = number_in(arguments[2]),
              .size = number_in(arguments[3])});
  } catch (const std::exception& e) {
    // The client reads the command's output.
    std::fprintf(stderr, "%s\n", e.what());
    _exit(1);
  }
}

std::string build_of_this() { return build_id_of(reinterpret_cast<const void*>(&build_of_this)); }

}  // namespace lockstep
