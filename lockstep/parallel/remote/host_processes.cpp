#include "lockstep/parallel/remote/host_processes.h"

#include <poll.h>
#include <sys/mman.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <filesystem>
#include <map>
#include <sstream>

#include "lockstep/base/error.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/messages/strangers.h"
#include "lockstep/parallel/process/child_process.h"
#include "lockstep/parallel/process/worker_context.h"
#include "lockstep/parallel/process/worker_start.h"
#include "lockstep/parallel/remote/agent_process.h"

namespace lockstep {
namespace {

using Clock = TimeLimit::Clock;

constexpr double kPulse = 0.5, kLook = 0.1;

struct HostProcess {
  std::string name;
  ChildProcess command;
  Descriptor lifeline, printed;
  Call<void> task;
  TimeLimit hello;
  bool arrived = false;
  Clock::time_point last_message = Clock::now();
  std::string reason = {};  // why it was ended by this process, or the error of its task
};

// The arguments of a command that runs this executable on a host.
std::vector<std::string> command_for(const std::string& launch, const std::string& host) {
  std::vector<std::string> words;
  std::istringstream text(launch);
  for (std::string word; text >> word;) {
    const size_t at = word.find("{host}");
    if (at != std::string::npos) word.replace(at, 6, host);
    words.push_back(word);
  }
  if (words.empty()) throw InvalidArgument("[hosts] the launch command is empty for " + host);
  std::error_code none;
  std::string path = std::filesystem::read_symlink("/proc/self/exe", none).string();
  // The file was replaced. The agent will report that the new file is another build.
  constexpr std::string_view kGone = " (deleted)";
  if (path.ends_with(kGone)) path.resize(path.size() - kGone.size());
  const auto plain = [](char c) {
    return std::isalnum(static_cast<unsigned char>(c)) || std::strchr("/._+-=@%,:", c) != nullptr;
  };
  if (path.empty() || !std::all_of(path.begin(), path.end(), plain)) {
    throw InvalidArgument("[hosts] the path of this executable (" + path +
                              ") cannot be named on a command line for another host",
                          "move it to a path of letters, digits and ./_+-=@%,:");
  }
  words.push_back(path);
  words.push_back(host_argument);
  return words;
}

std::string reason_of(std::span<const std::byte> encoded) {
  try {
    const auto error = decode<TaskError>(encoded);
    return error.hint.empty() ? error.message : error.message + " (" + error.hint + ")";
  } catch (const DataError& e) {
    return std::string("it sent an invalid message: ") + e.what();
  }
}

// This process's LOCKSTEP_ variables, which launch commands do not pass on.
std::vector<std::pair<std::string, std::string>> own_variables() {
  std::vector<std::pair<std::string, std::string>> all;
  for (char** entry = environ; *entry != nullptr; ++entry) {
    const std::string text = *entry;
    const size_t at = text.find('=');
    if (text.starts_with("LOCKSTEP_") && at != std::string::npos) {
      all.emplace_back(text.substr(0, at), text.substr(at + 1));
    }
  }
  return all;
}

// The end of a command's output, as one line.
std::string last_words(int descriptor) {
  constexpr off_t kMost = 400;
  const off_t size = lseek(descriptor, 0, SEEK_END);
  std::string text(static_cast<size_t>(std::clamp<off_t>(size, 0, kMost)), ' ');
  const ssize_t n = pread(descriptor, text.data(), text.size(), std::max<off_t>(size - kMost, 0));
  text.resize(n > 0 ? static_cast<size_t>(n) : 0);
  std::replace_if(
      text.begin(), text.end(), [](char c) { return c == '\n' || c == '\r'; }, ' ');
  while (text.ends_with(' ')) text.pop_back();
  return text;
}

ChannelOptions channel_options(const HostProcessOptions& options) {
  if (!is_private_address(options.address)) {
    throw InvalidArgument("[hosts] " + options.address + " is a public address",
                          "the workers' messages are not encrypted: use a private network");
  }
  const bool v6 = options.address.find(':') != std::string::npos;
  ChannelOptions channel;
  channel.reconnect = false;
  channel.endpoint = "tcp://" + (v6 ? "[" + options.address + "]" : options.address) + ":*";
  return channel;
}

}  // namespace

struct HostProcesses::State {
  explicit State(const HostProcessOptions& o) : options(o), channel(channel_options(o)) {}

  const HostProcessOptions options;
  ChannelServer channel;
  std::map<uint32_t, HostProcess> hosts;
  std::deque<WorkerEvent> events;
  uint32_t next = 1;
  TimeLimit look{kLook}, pulse{kPulse};
  Strangers strangers;

  void take_messages() {
    while (auto message = channel.receive()) {
      const auto found = hosts.find(message->worker);
      if (found == hosts.end() || message->content.empty()) continue;
      HostProcess& h = found->second;
      h.last_message = Clock::now();
      std::span<const std::byte> rest = message->content;
      const auto says = take_prefix<AgentMessage>(rest);
      if (says == AgentMessage::hello && !h.arrived) {
        h.arrived = true;
        strangers.came(found->first, 0);  // an agent has only one try
        channel.send(found->first, with_prefix(ClientMessage::task, encode(h.task)));
      } else if (says == AgentMessage::message) {
        events.push_back({.kind = WorkerEvent::Kind::message,
                          .worker = found->first,
                          .content = Bytes(rest.begin(), rest.end())});
      } else if (says == AgentMessage::failed && h.reason.empty()) {
        h.reason = reason_of(rest);
        h.command.kill();
      }
    }
  }

  void look_after() {
    if (std::any_of(hosts.begin(), hosts.end(),
                    [](auto& entry) { return entry.second.command.ended(); })) {
      // The last messages have arrived or will arrive soon, and must come before the loss.
      for (const TimeLimit limit(0.02); !limit.reached(); channel.wait(limit, {})) take_messages();
    }
    std::vector<uint32_t> lost;
    for (auto& [number, h] : hosts) {
      const std::chrono::duration<double> silent = Clock::now() - h.last_message;
      std::string how;
      if (h.command.ended()) {
        how = "its process " + h.command.how();
      } else if (!h.arrived && h.hello.reached()) {
        how = "it sent no message after its start";
      } else if (h.arrived && silent.count() > options.silence) {
        how = "it no longer responds";
      } else {
        continue;
      }
      lost.push_back(number);
      if (!h.reason.empty()) continue;
      const std::string words = last_words(h.printed.get());
      h.reason = words.empty() ? how : how + ": " + words;
    }
    for (const uint32_t number : lost) {
      events.push_back({.kind = WorkerEvent::Kind::lost,
                        .worker = number,
                        .end = {.how = hosts.at(number).reason}});
      strangers.died(number);
      channel.dismiss(number);
      hosts.erase(number);
    }
  }
};

HostProcesses::HostProcesses(const HostProcessOptions& options)
    : state_(std::make_unique<State>(options)) {}

HostProcesses::~HostProcesses() {
  for (auto& [number, h] : state_->hosts) {
    h.lifeline.close();
    h.command.kill();
  }
}

uint32_t HostProcesses::start(const std::string& host, const Call<void>& task) {
  State& s = *state_;
  int ends[2];
  if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
    throw Error(std::string("[hosts] no socket for a command: ") + std::strerror(errno));
  }
  Descriptor mine(ends[0]), theirs(ends[1]);
  Descriptor printed(memfd_create("lockstep-command", MFD_CLOEXEC));
  ChildProcess command({.command = command_for(s.options.launch, host),
                        .input = theirs.get(),
                        .output = printed.get()});
  theirs.close();
  const uint32_t number = s.next++;
  HostStart start;
  start.ticket = s.channel.admit(number);
  start.build = build_of_this();
  start.folder = std::filesystem::current_path().string();
  start.environment = own_variables();
  start.environment.insert(start.environment.end(), s.options.environment.begin(),
                           s.options.environment.end());
  try {
    send_start(mine.get(), encode(start));
  } catch (const InvalidArgument&) {
    throw;
  } catch (const Error&) {
    // It has ended already and will be reported as lost.
  }
  s.strangers.starts(number);
  s.hosts.emplace(number, HostProcess{.name = host,
                                      .command = std::move(command),
                                      .lifeline = std::move(mine),
                                      .printed = std::move(printed),
                                      .task = task,
                                      .hello = TimeLimit(s.options.start_limit)});
  return number;
}

bool HostProcesses::send(uint32_t number, std::span<const std::byte> content) {
  const auto found = state_->hosts.find(number);
  return found != state_->hosts.end() && found->second.arrived &&
         state_->channel.send(number, with_prefix(ClientMessage::message, content));
}

std::optional<WorkerEvent> HostProcesses::wait(const TimeLimit& limit, int also) {
  State& s = *state_;
  for (;;) {
    s.take_messages();
    if (s.look.reached()) {
      // If this process itself was stopped, it could not receive: do not count that as silence.
      const bool stopped = s.look.late() > s.options.silence / 2;
      if (stopped) {
        for (auto& [number, h] : s.hosts) h.last_message = Clock::now();
      }
      s.look_after();
      s.look = TimeLimit(kLook);
    }
    if (s.pulse.reached()) {
      for (const auto& [number, h] : s.hosts) {
        if (h.arrived) s.channel.send(number, with_prefix(ClientMessage::pulse, {}));
      }
      s.pulse = TimeLimit(kPulse);
    }
    if (!s.events.empty()) {
      WorkerEvent event = std::move(s.events.front());
      s.events.pop_front();
      return event;
    }
    pollfd called{also, POLLIN, 0};
    if (limit.reached() || (also >= 0 && poll(&called, 1, 0) > 0)) return std::nullopt;
    std::vector<int> descriptors;
    if (also >= 0) descriptors.push_back(also);
    for (const auto& [number, h] : s.hosts) descriptors.push_back(h.command.ended_descriptor());
    s.channel.wait(TimeLimit(std::min(limit.left(), s.look.left() + 0.001)), descriptors);
    for (auto& [number, h] : s.hosts) {
      if (h.command.ended()) s.look = TimeLimit(0);
    }
  }
}

void HostProcesses::kill(uint32_t number, const std::string& reason) {
  const auto found = state_->hosts.find(number);
  if (found == state_->hosts.end()) return;
  if (found->second.reason.empty()) found->second.reason = reason;
  found->second.lifeline.close();
  found->second.command.kill();
}

int64_t HostProcesses::strangers() {
  const ChannelServer::Refusals refused = state_->channel.refusals();
  return refused.keys + state_->strangers.count(refused.handshakes);
}

}  // namespace lockstep
