#include "lockstep/cluster/remote/host_processes.h"

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
#include <set>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/variable.h"
#include "lockstep/cluster/remote/agent_process.h"
#include "lockstep/cluster/remote/host_process.h"
#include "lockstep/cluster/remote/host_starter.h"
#include "lockstep/cluster/remote/join.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/messages/strangers.h"
#include "lockstep/parallel/process/child_process.h"
#include "lockstep/parallel/process/worker_context.h"

namespace lockstep {
namespace {

using Clock = TimeLimit::Clock;

// Seconds between heartbeats to a host and from it, and between looks at all hosts.
constexpr double kPulse = 0.5, kHostPulse = 0.2, kLookAtHosts = 0.1;
// The number of hosts whose heartbeats the client can take. More hosts send them less often.
constexpr double kFewHosts = 1024;
constexpr std::string_view kJoin = "join ";
// The number of the key that externally started hosts share.
constexpr uint32_t kSharedKey = 0;
// Keys of earlier starts that are kept to tell processes that come late.
constexpr size_t kKeptKeys = 1000;
// Seconds for the last messages to leave, and to arrive from a host that has ended.
constexpr double kLastMessages = 0.2, kLastArrive = 0.02;

// `outside`: whether a signal has asked it to leave.
std::string reason_of(std::span<const std::byte> encoded, bool& outside) {
  try {
    const auto error = decode<TaskError>(encoded);
    outside = error.kind == "WorkerLost";
    return error.hint.empty() ? error.message : error.message + " (" + error.hint + ")";
  } catch (const DataError& e) {
    return std::string("it sent an invalid message: ") + e.what();
  }
}

// The key of hosts that are started externally.
std::optional<JobKey> shared_key(const HostProcessOptions& options) {
  if (options.starter) return options.starter->key();
  if (!options.launch.starts_with(kJoin)) return std::nullopt;
  return read_key_file(options.launch.substr(kJoin.size()));
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
  channel.first_port = options.ports.first;
  channel.last_port = options.ports.last;
  if (const auto key = shared_key(options)) {
    if (key->server_secret.empty()) {
      throw InvalidArgument("[hosts] the key file is one for members alone",
                            "the client needs the file that `lockstep worker --new-key` made");
    }
    channel.keys = {key->server_key, key->server_secret};
  }
  return channel;
}

}  // namespace

struct HostProcesses::State {
  explicit State(const HostProcessOptions& o) : options(o), channel(channel_options(o)) {
    if (const auto key = shared_key(options)) channel.admit_guests(kSharedKey, key->guest);
  }

  const HostProcessOptions options;
  ChannelServer channel;
  std::map<uint32_t, HostProcess> hosts;
  // For hosts that are started externally: those that have not joined, and the last start, by
  // index.
  std::map<int64_t, uint32_t> awaited, started;
  std::set<uint32_t> commands;  // hosts that a command has started
  std::deque<WorkerEvent> events;
  uint32_t next = 1;
  TimeLimit look{kLookAtHosts}, pulse{kPulse};
  Strangers strangers;
  std::map<uint32_t, std::string> joined;  // by the number of a start, also of lost hosts

  // By how much all heartbeats are less frequent.
  double crowd() const { return std::max(1.0, static_cast<double>(hosts.size()) / kFewHosts); }
  double silence() const { return options.silence * crowd(); }

  // "127.0.0.1:4000"
  std::string address() const {
    return channel.endpoint().substr(channel.endpoint().find("//") + 2);
  }
  bool by_itself() const { return options.starter || options.launch.starts_with(kJoin); }
  // Why a host that has not joined is given up, or "".
  std::string given_up(HostProcess& host) const {
    const bool by_starter = options.starter && host.process.empty();
    std::string why = by_starter             ? options.starter->problem(host.index)
                      : host.hello.reached() ? "it sent no message after its start"
                                             : "";
    // Externally started hosts had a long time, and a scheduler has tried several times.
    if (!why.empty()) host.hopeless = by_itself() && host.process.empty();
    return why;
  }

  // The host that a process may join as. If there is none, `refusal` says why.
  HostProcess* host_for(uint32_t key, const JoinRequest& request, uint32_t& number,
                        std::string& refusal) {
    if (key != kSharedKey) {
      number = key;
      const auto found = hosts.find(key);
      const auto before = joined.find(key);
      if (found == hosts.end()) {
        refusal = "it is too late: its host already counts as lost";
      } else if (before == joined.end()) {
        return &found->second;
      }
      if (before != joined.end()) refusal = before->second + " has joined with this key already";
      return nullptr;
    }
    if (!hosts.empty()) {
      const int64_t size = hosts.begin()->second.size;
      if (request.size >= 0 && request.size != size) {
        refusal = "it is one of " + std::to_string(request.size) + " processes, but the job has " +
                  std::to_string(size) + " such hosts";
        return nullptr;
      }
    }
    const auto free = request.index < 0 ? awaited.begin() : awaited.find(request.index);
    if (free != awaited.end()) {
      number = free->second;
      awaited.erase(free);
      return &hosts.at(number);
    }
    auto taken = request.index < 0 ? started.end() : started.find(request.index);
    if (request.index < 0 && !started.empty()) taken = std::prev(started.end());
    if (taken == started.end()) {
      refusal = "the job has no member " + std::to_string(request.index) + " now";
    } else {
      refusal = "member " + std::to_string(taken->first) +
                " has joined already: " + hosts.at(taken->second).process;
    }
    return nullptr;
  }

  void forget(uint32_t number, const HostProcess& h) {
    if (h.command) {
      commands.erase(number);
      return;
    }
    for (auto* const by_index : {&awaited, &started}) {
      const auto found = by_index->find(h.index);
      if (found != by_index->end() && found->second == number) by_index->erase(found);
    }
  }

  void answer_guest(const ChannelServer::Message& message) {
    JoinAnswer answer;
    try {
      const auto request = decode<JoinRequest>(message.content);
      answer.refusal = difference_to_this(request, options.same_processor);
      const auto refused = hosts.find(message.key);
      if (!answer.refusal.empty() && refused != hosts.end()) refused->second.hopeless = true;
      uint32_t number = 0;
      HostProcess* const host =
          answer.refusal.empty() ? host_for(message.key, request, number, answer.refusal) : nullptr;
      if (host != nullptr) {
        host->process = request.name();
        host->hello = TimeLimit(options.start_limit);
        if (options.starter) options.starter->joined(host->index);
        joined[number] = host->process;
        if (joined.size() > kKeptKeys) joined.erase(joined.begin());
        HostStart start{.ticket = channel.admit(number),
                        .folder = std::filesystem::current_path().string(),
                        // Launch commands do not pass variables on.
                        .environment = variables_with("LOCKSTEP_"),
                        .pulse = kHostPulse * crowd()};
        start.environment.insert(start.environment.end(), options.environment.begin(),
                                 options.environment.end());
        answer.start = encode(start);
        remove_key(*host);
      }
    } catch (const DataError& e) {
      answer.refusal = std::string("its question is invalid: ") + e.what();
    }
    channel.answer(message.guest, encode(answer));
  }

  static void remove_key(HostProcess& host) {
    if (!host.key_file.empty()) ::unlink(host.key_file.c_str());
    host.key_file.clear();
  }

  // A key for one start.
  void give_key(uint32_t number, const JobKey& key) {
    channel.admit_guests(number, key.guest);
    given.push_back(number);
    if (given.size() <= kKeptKeys) return;
    channel.dismiss_guests(given.front());
    given.pop_front();
  }
  std::deque<uint32_t> given;

  void take_messages() {
    while (auto message = channel.receive()) {
      if (!message->guest.empty()) {
        answer_guest(*message);
        continue;
      }
      const auto found = hosts.find(message->worker);
      if (found == hosts.end() || message->content.empty()) continue;
      HostProcess& h = found->second;
      h.last_message = Clock::now();
      std::span<const std::byte> rest = message->content;
      const auto says = take_prefix<AgentMessage>(rest);
      if (says == AgentMessage::hello && !h.arrived) {
        h.arrived = true;
        strangers.came(0);  // an agent has only one try
        channel.send(found->first, with_prefix(ClientMessage::task, encode(h.task)));
      } else if (says == AgentMessage::message) {
        events.push_back({.kind = WorkerEvent::Kind::message,
                          .worker = found->first,
                          .content = Bytes(rest.begin(), rest.end())});
      } else if (says == AgentMessage::failed && h.reason.empty()) {
        h.reason = reason_of(rest, h.outside);
        if (h.command) h.command->kill();
        h.failed = true;
        look = TimeLimit(0);
      }
    }
  }

  void look_after() {
    double again = kLookAtHosts;
    std::vector<uint32_t> lost;
    for (auto& [number, h] : hosts) {
      const std::chrono::duration<double> silent = Clock::now() - h.last_message;
      std::string how;
      if (h.ended()) {
        if (!h.last_messages) h.last_messages.emplace(kLastArrive);
        if (!h.last_messages->reached()) {
          again = std::min(again, h.last_messages->left());
          continue;
        }
        how = h.end();
      } else if (!h.arrived && !(how = given_up(h)).empty()) {
      } else if (h.arrived ? silent.count() > silence() : h.is_stopped()) {
        how = h.arrived ? "it no longer responds" : "its process was stopped";
        h.outside = true;
      } else {
        continue;
      }
      lost.push_back(number);
      if (!h.reason.empty()) continue;
      const std::string words = h.command ? last_words(h.printed.get()) : "";
      h.reason = words.empty() ? how : how + ": " + words;
    }
    for (const uint32_t number : lost) {
      events.push_back({.kind = WorkerEvent::Kind::lost,
                        .worker = number,
                        .end = {.how = hosts.at(number).reason,
                                .outside = hosts.at(number).outside,
                                .hopeless = hosts.at(number).hopeless}});
      if (!hosts.at(number).arrived) strangers.died(0);
      channel.dismiss(number);
      remove_key(hosts.at(number));
      forget(number, hosts.at(number));
      hosts.erase(number);
    }
    look = TimeLimit(again);
  }
};

HostProcesses::HostProcesses(const HostProcessOptions& options)
    : state_(std::make_unique<State>(options)) {
  if (options.starter) options.starter->begin(state_->address());
}

HostProcesses::~HostProcesses() {
  bool any = false;
  for (auto& [number, h] : state_->hosts) {
    State::remove_key(h);
    h.lifeline.close();
    if (h.command) {
      h.command->kill();
    } else if (h.arrived) {
      any = state_->channel.send(number, with_prefix(ClientMessage::end, {})) || any;
    }
  }
  // ZeroMQ drops messages that wait when it ends.
  if (any) std::this_thread::sleep_for(std::chrono::duration<double>(kLastMessages));
  if (state_->options.starter) state_->options.starter->end();
}

std::string HostProcesses::address() const { return state_->address(); }

uint32_t HostProcesses::start(const std::string& host, int64_t index, int64_t size,
                              const Call<void>& task) {
  State& s = *state_;
  const uint32_t number = s.next++;
  HostProcess process{.name = host,
                      .index = index,
                      .size = size,
                      .command = {},
                      .lifeline = {},
                      .printed = {},
                      .key_file = {},
                      .task = task,
                      .hello = TimeLimit(s.options.start_limit)};
  if (!s.by_itself()) {
    int ends[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends) != 0) {
      throw Error(std::string("[hosts] cannot create a socket pair for a command: ") +
                  std::strerror(errno));
    }
    process.lifeline = Descriptor(ends[0]);
    Descriptor theirs(ends[1]);
    process.printed = Descriptor(memfd_create("lockstep-command", MFD_CLOEXEC));
    const JobKey key{s.channel.server_key(), ChannelKeys::fresh()};
    std::string key_path = "-";
    if (!s.options.key_folder.empty()) {
      key_path = s.options.key_folder + "/lockstep-key-" + std::to_string(getpid()) + "-" +
                 std::to_string(number);
      write_key_file(key_path, key);
      process.key_file = key_path;
    }
    process.command.emplace(
        ChildOptions{.command = command_for(s.options.launch, host, s.address(), key_path),
                     .input = theirs.get(),
                     .output = process.printed.get()});
    theirs.close();
    s.give_key(number, key);
    if (key_path == "-") {
      const std::string text = key.text();
      // If it has ended already, it will be reported as lost.
      [[maybe_unused]] const ssize_t sent =
          ::send(process.lifeline.get(), text.data(), text.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
    }
  }
  s.strangers.starts();
  if (process.command) {
    s.commands.insert(number);
  } else {
    s.awaited[index] = s.started[index] = number;
  }
  s.hosts.emplace(number, std::move(process));
  if (s.options.starter) s.options.starter->expect(index);
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
      const bool stopped = s.look.late() > s.silence() / 2;
      if (stopped) {
        for (auto& [number, h] : s.hosts) h.last_message = Clock::now();
      }
      s.look_after();
    }
    if (s.pulse.reached()) {
      for (const auto& [number, h] : s.hosts) {
        if (h.arrived) s.channel.send(number, with_prefix(ClientMessage::pulse, {}));
      }
      s.pulse = TimeLimit(kPulse * s.crowd());
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
    for (const uint32_t number : s.commands) {
      const HostProcess& h = s.hosts.at(number);
      if (!h.last_messages) descriptors.push_back(h.command->ended_descriptor());
    }
    s.channel.wait(TimeLimit(std::min(limit.left(), s.look.left() + 0.001)), descriptors);
    for (const uint32_t number : s.commands) {
      HostProcess& h = s.hosts.at(number);
      if (!h.last_messages && h.ended()) s.look = TimeLimit(0);
    }
  }
}

void HostProcesses::kill(uint32_t number, const std::string& reason) {
  const auto found = state_->hosts.find(number);
  if (found == state_->hosts.end()) return;
  if (found->second.reason.empty()) found->second.reason = reason;
  HostProcess& h = found->second;
  h.lifeline.close();
  h.failed = true;
  state_->look = TimeLimit(0);
  if (h.command) {
    h.command->kill();
  } else {
    state_->channel.send(number, with_prefix(ClientMessage::end, {}));
  }
}

int64_t HostProcesses::strangers() {
  const ChannelServer::Refusals refused = state_->channel.refusals();
  return refused.keys + state_->strangers.count(refused.handshakes);
}

}  // namespace lockstep
