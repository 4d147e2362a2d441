#include "apps/lockstep/batch/node_exchange.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <map>

#include "lockstep/base/error.h"
#include "lockstep/base/numeric/random.h"
#include "lockstep/base/numeric/random_hex.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/comm/keyed_rendezvous.h"
#include "lockstep/parallel/pool/data_queue.h"
#include "lockstep/parallel/pool/message_inbox.h"
#include "lockstep/parallel/pool/pool_core.h"
#include "lockstep/parallel/pool/task_context.h"

namespace lockstep::command {
namespace {

constexpr double connect_limit = 10;  // seconds for a group to connect
constexpr double look_interval = 0.1;
constexpr size_t checked_bytes = size_t{1} << 20;
constexpr size_t measured_bytes = size_t{4} << 20;
constexpr int measured_rounds = 4, latency_rounds = 20;
constexpr size_t most_waiting = 10'000;

// An entry of a rendezvous on its way through the client.
struct RelayedEntry {
  int64_t meeting = 0;
  RendezvousEntry entry;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(meeting, entry);
  }
};

// Some nodes that form a group.
struct Meeting {
  int64_t number = 0;
  std::vector<int> members;  // indexes of the nodes
  std::vector<std::string> names, addresses;
  std::string secret;
  uint64_t to_client = 0, from_client = 0;  // queues
  bool check = false, measure = false;
  double limit = 0;  // seconds

  template <class Archive>
  void serialize(Archive& archive) {
    archive(number, members, names, addresses, secret, to_client, from_client, check, measure,
            limit);
  }
};

struct MeetingResult {
  double latency = 0, bandwidth = 0;
  int64_t received = 0;

  template <class Archive>
  void serialize(Archive& archive) {
    archive(latency, bandwidth, received);
  }
};

// The members exchange the addresses of their sockets through the client.
class RelayedRendezvous final : public KeyedRendezvous {
 public:
  RelayedRendezvous(const Meeting& meeting, int rank)
      : KeyedRendezvous(rank),
        meeting_(meeting.number),
        sender_(meeting.to_client),
        receiver_(meeting.from_client) {}

 private:
  void send(std::span<const RendezvousEntry> entries) override {
    for (const RendezvousEntry& entry : entries) sender_.send({meeting_, entry});
  }
  void wait(double seconds) override {
    check_cancelled();
    auto relayed = receiver_.poll(seconds);
    if (relayed && relayed->meeting == meeting_) take(std::move(relayed->entry));
  }

  const int64_t meeting_;
  const QueueSender<RelayedEntry> sender_;
  const QueueReceiver<RelayedEntry> receiver_;
};

// What member `rank` sends: the same on every node that computes it.
Bytes known_bytes(const Meeting& meeting, size_t rank, size_t size) {
  Bytes bytes(size);
  const RandomStream stream({.seed = static_cast<uint64_t>(meeting.number), .a = rank});
  std::vector<uint32_t> words((size + 15) / 16 * 4);
  stream.blocks(0, words.size() / 4, words.data());
  std::memcpy(bytes.data(), words.data(), size);
  return bytes;
}

double seconds_of(const std::function<void()>& work) {
  const auto begin = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - begin).count();
}

// Every member receives the bytes of all and compares them.
int64_t check_contents(Group& group, const Meeting& meeting, const TimeLimit& limit) {
  const auto size = static_cast<size_t>(group.size());
  const std::vector<size_t> counts(size, checked_bytes);
  Bytes all(size * checked_bytes);
  group.all_gather(known_bytes(meeting, static_cast<size_t>(group.rank()), checked_bytes), counts,
                   all, limit);
  for (size_t i = 0; i < size; ++i) {
    if (std::memcmp(all.data() + i * checked_bytes, known_bytes(meeting, i, checked_bytes).data(),
                    checked_bytes) != 0) {
      throw DataError("[cluster] " + meeting.names[static_cast<size_t>(group.rank())] +
                      " received other bytes than " + meeting.names[i] + " sent");
    }
  }
  return static_cast<int64_t>(all.size());
}

void measure_pair(Group& group, MeetingResult& result, const TimeLimit& limit) {
  const auto exchange = [&](Bytes& mine, Bytes& theirs) {
    std::vector<size_t> counts(2, mine.size());
    counts[static_cast<size_t>(group.rank())] = 0;
    group.all_to_all(mine, counts, theirs, counts, limit);
  };
  Bytes few(8), few_received(8), many(measured_bytes), many_received(measured_bytes);
  exchange(few, few_received);  // the first one also warms up
  exchange(many, many_received);
  std::vector<double> latencies;
  for (int i = 0; i < latency_rounds; ++i) {
    latencies.push_back(seconds_of([&] { exchange(few, few_received); }));
  }
  std::nth_element(latencies.begin(), latencies.begin() + latency_rounds / 2, latencies.end());
  result.latency = latencies[latency_rounds / 2];
  const double seconds = seconds_of([&] {
    for (int i = 0; i < measured_rounds; ++i) exchange(many, many_received);
  });
  result.bandwidth = static_cast<double>(measured_bytes) * measured_rounds / seconds;
}

// Runs on each member.
MeetingResult meet(const Meeting& meeting, int rank) {
  const TimeLimit limit(meeting.limit);
  const auto member = static_cast<size_t>(rank);
  HostGroup group({.rank = rank,
                   .size = static_cast<int>(meeting.members.size()),
                   .address = meeting.addresses[member],
                   .rendezvous = std::make_shared<RelayedRendezvous>(meeting, rank),
                   .generation = meeting.number,
                   .secret = meeting.secret,
                   .names = meeting.names},
                  TimeLimit(std::min(connect_limit, meeting.limit)));
  group.barrier(limit);
  MeetingResult result;
  if (meeting.check) result.received = check_contents(group, meeting, limit);
  if (meeting.measure) measure_pair(group, result, limit);
  group.barrier(limit);  // no member leaves while another still receives
  return result;
}

int be_present(int number) { return number; }

// Rounds of pairs without a common member, in which each meets each other once (the circle method).
std::vector<std::vector<std::pair<int, int>>> pairs_by_round(int members) {
  const int even = members + members % 2;
  std::vector<std::vector<std::pair<int, int>>> rounds;
  for (int round = 0; round + 1 < even; ++round) {
    std::vector<std::pair<int, int>> pairs;
    const auto at = [&](int position) {
      return position == 0 ? 0 : (position - 1 + round) % (even - 1) + 1;
    };
    for (int i = 0; i < even / 2; ++i) {
      const int a = at(i), b = at(even - 1 - i);
      if (a < members && b < members) pairs.emplace_back(std::min(a, b), std::max(a, b));
    }
    rounds.push_back(std::move(pairs));
  }
  return rounds;
}

}  // namespace

struct NodeExchange::State {
  explicit State(const NodeExchangeOptions& o) : options(o), secret(random_hex(8)) {
    detail::ProcessPoolOptions pool;
    pool.workers = static_cast<int>(o.nodes.size());
    for (const std::string& node : o.nodes) pool.hosts.push_back({.name = node, .workers = 1});
    pool.launch = o.launch;
    pool.address = o.address;
    pool.environment = o.environment;
    pool.same_processor = true;
    core = detail::make_process_pool(pool);
    inbox = std::make_shared<detail::MessageInbox>(core, most_waiting);
    to_client = core->add_inbox(inbox);
    from_client = core->next_number();
    inbox->after_each([this](const Bytes& message) {
      const auto relayed = decode<RelayedEntry>(message);
      const int node = node_of(relayed);
      if (node >= 0) core->send_to(node, from_client, message, TimeLimit(connect_limit));
    });
  }
  ~State() {
    inbox->close();
    core->stop();
  }

  // The node that an entry is for; -1: none.
  int node_of(const RelayedEntry& relayed) {
    const MutexLock lock(meetings_mutex);
    const auto found = meetings.find(relayed.meeting);
    const auto rank = static_cast<size_t>(relayed.entry.to);
    if (found == meetings.end() || rank >= found->second.size()) return -1;
    return found->second[rank];
  }

  // Waits until all have ended. Throws the error of the first that failed.
  void wait_for(const std::vector<std::pair<detail::TaskPtr, int>>& tasks) {
    const TimeLimit limit(options.limit);
    const auto any_failed = [&] {
      return std::any_of(tasks.begin(), tasks.end(),
                         [](auto& t) { return t.first->state == TaskState::failed; });
    };
    const auto all_ended = [&] {
      return std::all_of(tasks.begin(), tasks.end(),
                         [](auto& t) { return has_ended(t.first->state); });
    };
    bool failed = false;
    while (!core->wait(TimeLimit(std::min(look_interval, limit.left())), [&] {
      failed = any_failed();
      return failed || all_ended();
    })) {
      if (options.stop_wanted && options.stop_wanted()) {
        throw Cancelled("[cluster] stopped by a signal");
      }
      if (!limit.reached()) continue;
      std::string missing;
      for (const auto& [task, node] : tasks) {
        const MutexLock lock(core->mutex);
        if (has_ended(task->state)) continue;
        missing += (missing.empty() ? "" : ", ") + options.nodes[static_cast<size_t>(node)];
      }
      throw Timeout("[cluster] " + missing + " did not answer within " +
                    std::to_string(static_cast<int>(options.limit)) + " seconds");
    }
    if (!failed) return;
    for (const auto& [task, node] : tasks) {
      const MutexLock lock(core->mutex);
      if (task->state != TaskState::failed) continue;
      throw Error(
          "[cluster] " + options.nodes[static_cast<size_t>(node)] + ": " + task->error.message,
          task->error.hint);
    }
  }

  // Has groups meet at once. Returns what the first member of each measured.
  std::vector<MeetingResult> hold(const std::vector<std::vector<int>>& groups, bool check,
                                  bool measure) {
    std::vector<std::pair<detail::TaskPtr, int>> tasks;
    std::vector<detail::TaskPtr> firsts;
    for (const std::vector<int>& members : groups) {
      Meeting meeting{.number = ++last_meeting,
                      .members = members,
                      .names = {},
                      .addresses = {},
                      .secret = secret,
                      .to_client = to_client,
                      .from_client = from_client,
                      .check = check,
                      .measure = measure,
                      .limit = options.limit};
      for (const int node : members) {
        meeting.names.push_back(options.nodes[static_cast<size_t>(node)]);
        meeting.addresses.push_back(core->hosts()->status(core->hosts()->host_of(node)).address);
      }
      {
        const MutexLock lock(meetings_mutex);
        meetings[meeting.number] = members;
      }
      for (int rank = 0; rank < static_cast<int>(members.size()); ++rank) {
        const int node = members[static_cast<size_t>(rank)];
        const auto call = make_call<&meet>(meeting, rank);
        tasks.emplace_back(core->submit(call.function(), call.arguments(), {}, node), node);
        if (rank == 0) firsts.push_back(tasks.back().first);
      }
    }
    wait_for(tasks);
    std::vector<MeetingResult> results;
    for (const detail::TaskPtr& task : firsts) {
      const MutexLock lock(core->mutex);
      results.push_back(decode<MeetingResult>(task->result));
    }
    return results;
  }

  // All pairs, round by round.
  std::vector<NodePair> hold_pairs(bool measure) {
    std::vector<NodePair> all;
    for (const auto& round : pairs_by_round(static_cast<int>(options.nodes.size()))) {
      std::vector<std::vector<int>> groups;
      for (const auto& [a, b] : round) groups.push_back({a, b});
      const std::vector<MeetingResult> results = hold(groups, false, measure);
      for (size_t i = 0; i < round.size(); ++i) {
        all.push_back({options.nodes[static_cast<size_t>(round[i].first)],
                       options.nodes[static_cast<size_t>(round[i].second)], results[i].latency,
                       results[i].bandwidth});
      }
    }
    return all;
  }

  const NodeExchangeOptions options;
  const std::string secret;
  std::shared_ptr<detail::PoolCore> core;
  std::shared_ptr<detail::MessageInbox> inbox;
  uint64_t to_client = 0, from_client = 0;
  int64_t last_meeting = 0;
  Mutex meetings_mutex;
  std::map<int64_t, std::vector<int>> meetings LOCKSTEP_GUARDED_BY(meetings_mutex);
};

NodeExchange::NodeExchange(const NodeExchangeOptions& options)
    : state_(std::make_unique<State>(options)) {}
NodeExchange::~NodeExchange() = default;

std::string NodeExchange::wait_for_all() {
  State& s = *state_;
  std::vector<std::pair<detail::TaskPtr, int>> tasks;
  for (int node = 0; node < static_cast<int>(s.options.nodes.size()); ++node) {
    const auto call = make_call<&be_present>(node);
    tasks.emplace_back(s.core->submit(call.function(), call.arguments(), {}, node), node);
  }
  s.wait_for(tasks);
  std::string addresses;
  for (int node = 0; node < static_cast<int>(s.options.nodes.size()); ++node) {
    addresses += (addresses.empty() ? "" : ", ") +
                 s.core->hosts()->status(s.core->hosts()->host_of(node)).address;
  }
  return addresses;
}

int64_t NodeExchange::connect_pairs() {
  return static_cast<int64_t>(state_->hold_pairs(false).size());
}

int64_t NodeExchange::exchange() {
  std::vector<int> all(state_->options.nodes.size());
  for (size_t i = 0; i < all.size(); ++i) all[i] = static_cast<int>(i);
  return state_->hold({all}, true, false).front().received;
}

std::vector<NodePair> NodeExchange::measure_pairs() { return state_->hold_pairs(true); }

}  // namespace lockstep::command
