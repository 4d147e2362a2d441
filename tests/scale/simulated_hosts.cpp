#include "tests/scale/simulated_hosts.h"

#include <sys/epoll.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstring>
#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <random>
#include <set>
#include <zmq.hpp>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/cluster/remote/agent_messages.h"
#include "lockstep/cluster/remote/agent_process.h"
#include "lockstep/cluster/remote/join.h"
#include "lockstep/parallel/comm/host_group.h"
#include "lockstep/parallel/comm/two_steps.h"
#include "lockstep/parallel/messages/prefix.h"
#include "lockstep/parallel/process/slot_memory.h"
#include "lockstep/train/options/options.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/workers/worker_messages.h"
#include "tests/scale/problem.h"

namespace lockstep::testing {
namespace {

using Clock = std::chrono::steady_clock;
using namespace lockstep::detail;

constexpr double kLongSendPeriod = 0.25;  // as workers have it

Digest digest_after(int64_t iteration) {
  Digester digester;
  digester.add(static_cast<uint64_t>(iteration));
  return digester.finish();
}

struct Member {
  enum class Phase { away, asking, present, silent };

  int index = 0;
  Phase phase = Phase::away;
  std::unique_ptr<zmq::socket_t> socket;
  int descriptor = -1;
  // Its worker; no place: there is none.
  std::optional<size_t> slot;
  uint32_t worker = 0;
  uint64_t reports = 0;  // the queue
  Bytes order;           // received part
  // Its group.
  FormOrder form;
  bool meeting = false, together = false;
  std::vector<GrantOrder> later;  // that have come while it meets
  int64_t granted = 0, finished = 0, sent = 0;
};

// The members that have the orders of one generation. An iteration is finished when all have it.
struct SimulatedGroup {
  size_t members = 0;
  std::map<int64_t, size_t> granted;
  int64_t finished = 0;
};

class SimulatedHosts {
 public:
  explicit SimulatedHosts(const SimulatedHostsOptions& options)
      : options_(options),
        key_(read_key_file(options.key_file)),
        members_(static_cast<size_t>(options.hosts)),
        random_(options.seed) {
    zmq_ctx_set(context_.handle(), ZMQ_MAX_SOCKETS, 4 * options.hosts + 100);
    const TrainingProblem problem = scale_problem();
    ready_ = {.names = digest_of_names(problem.data),
              .fingerprint = {},
              .sum_count = 1 << 20,
              .leaf_metadata_bytes = 64,
              .member_metadata_bytes = 64,
              .most_leaves = options.hosts};
    for (const auto& e : numerics_fingerprint({})) ready_.fingerprint.emplace_back(e.name, e.value);
    request_ = JoinRequest::of_this_process(-1, options.hosts);
    for (size_t i = 0; i < members_.size(); ++i) {
      members_[i].index = static_cast<int>(i);
      ask(members_[i]);
    }
  }

  [[noreturn]] void run() {
    std::array<epoll_event, 256> events{};
    for (;;) {
      const int count = epoll_wait(epoll_.get(), events.data(), events.size(), 5);
      for (int i = 0; i < count; ++i) {
        read(members_[static_cast<size_t>(events[static_cast<size_t>(i)].data.u32)]);
      }
      if (next_pulse_.reached()) {
        next_pulse_ = TimeLimit(pulse_);
        for (Member& m : members_) {
          if (m.phase == Member::Phase::present) write(m, with_prefix(AgentMessage::pulse, {}));
        }
      }
      if (next_records_.reached()) {
        next_records_ = TimeLimit(kLongSendPeriod * std::max(1.0, options_.hosts / 64.0));
        for (Member& m : members_) send_records(m);
      }
      if (next_failure_ && next_failure_->reached()) fail_some();
      for (auto at = returns_.begin(); at != returns_.end();) {
        if (!at->second.reached()) {
          ++at;
          continue;
        }
        ask(members_[at->first]);
        at = returns_.erase(at);
      }
      read_changed();
    }
  }

 private:
  // ---- connections ----

  void connect(Member& m, const ChannelTicket& ticket, const std::string& name) {
    close(m);
    m.socket = std::make_unique<zmq::socket_t>(context_, ZMQ_DEALER);
    zmq::socket_t& socket = *m.socket;
    socket.set(zmq::sockopt::linger, 0);
    socket.set(zmq::sockopt::routing_id, name);
    socket.set(zmq::sockopt::handshake_ivl, 120000);
    socket.set(zmq::sockopt::reconnect_ivl, 100);
    socket.set(zmq::sockopt::sndhwm, 100000);
    socket.set(zmq::sockopt::rcvhwm, 100000);
    socket.set(zmq::sockopt::curve_serverkey, ticket.server_key);
    socket.set(zmq::sockopt::curve_publickey, ticket.public_key);
    socket.set(zmq::sockopt::curve_secretkey, ticket.secret_key);
    socket.connect(ticket.endpoint);
    m.descriptor = socket.get(zmq::sockopt::fd);
    epoll_event event{};
    event.events = EPOLLIN;
    event.data.u32 = static_cast<uint32_t>(m.index);
    if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, m.descriptor, &event) != 0) {
      throw Error("[simulated hosts] a socket cannot be watched");
    }
  }

  void close(Member& m) {
    if (!m.socket) return;
    epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, m.descriptor, nullptr);
    m.socket.reset();
  }

  void write(Member& m, const Bytes& content) {
    if (m.socket) (void)m.socket->send(zmq::buffer(content), zmq::send_flags::dontwait);
    changed_.insert(m.index);  // a socket's descriptor tells of changes only once
  }

  void read(Member& m) {
    read_one(m);
    read_changed();
  }

  void read_changed() {
    while (!changed_.empty()) {
      const int index = *changed_.begin();
      changed_.erase(changed_.begin());
      read_one(members_[static_cast<size_t>(index)]);
    }
  }

  void read_one(Member& m) {
    zmq::message_t message;
    while (m.socket && m.phase != Member::Phase::silent) {
      // Without this question its descriptor would not tell of later changes.
      if ((m.socket->get(zmq::sockopt::events) & ZMQ_POLLIN) == 0) return;
      if (!m.socket->recv(message, zmq::recv_flags::dontwait)) return;
      const auto* const data = static_cast<const std::byte*>(message.data());
      take(m, {data, message.size()});
    }
  }

  // ---- joining ----

  void ask(Member& m) {
    const ChannelTicket ticket{0, "tcp://" + options_.address, key_.server_key,
                               key_.guest.public_key, key_.guest.secret_key};
    connect(m, ticket, "guest-" + std::to_string(m.index) + "-" + std::to_string(++asked_));
    m.phase = Member::Phase::asking;
    request_.index = m.index;
    write(m, encode(request_));
  }

  void take(Member& m, std::span<const std::byte> content) {
    if (m.phase == Member::Phase::asking) {
      const auto answer = decode<JoinAnswer>(content);
      if (!answer.refusal.empty()) {  // its predecessor is not known to be lost yet
        close(m);
        m.phase = Member::Phase::away;
        returns_.emplace(static_cast<size_t>(m.index), TimeLimit(0.2));
        return;
      }
      const auto start = decode<HostStart>(answer.start);
      pulse_ = start.pulse;
      connect(m, start.ticket, "worker-" + std::to_string(start.ticket.worker));
      m.phase = Member::Phase::present;
      write(m, with_prefix(AgentMessage::hello, {}));
      return;
    }
    const auto what = take_prefix<ClientMessage>(content);
    if (what == ClientMessage::task) {
      report(m, HostReady{4, "10.0.0.1"});
    } else if (what == ClientMessage::message) {
      std::visit([&](const auto& order) { take(m, order); }, decode<HostOrder>(content));
    }
  }

  // ---- the remote agent ----

  void report(Member& m, const HostReport& what) {
    write(m, with_prefix(AgentMessage::message, encode(what)));
  }

  void take(Member& m, const SlotHere& order) {
    m.slot = order.ticket.slot.offset;
    m.worker = next_worker_++;
    report(m, SlotStarted{*m.slot, m.worker, 100000 + static_cast<int64_t>(m.worker), {}});
    report(m, SlotReport{*m.slot, true, with_prefix(Report::ready, encode(ReadyNote{}))});
  }

  void take(Member& m, const SlotOrder& order) {
    m.order.insert(m.order.end(), order.chunk.begin(), order.chunk.end());
    if (!order.last) return;
    const Bytes whole = std::exchange(m.order, {});
    if (!m.slot || order.slot != *m.slot) return;
    std::span<const std::byte> rest = whole;
    const auto kind = take_prefix<Order>(rest);
    if (kind == Order::task) {
      const auto task = decode<TaskOrder>(rest);
      m.reports = std::get<0>(decode<std::tuple<TrainingTask>>(task.arguments)).reports;
      say(m, ready_);
    } else if (kind == Order::message) {
      take_prefix<uint64_t>(rest);
      std::visit([&](const auto& what) { take(m, what); }, decode<WorkerOrder>(rest));
    }
  }

  void take(Member&, const SlotCancel&) {}
  void take(Member&, const SlotRoom&) {}
  void take(Member& m, const SlotKill& order) {
    if (m.slot) end_worker(m, {.how = order.reason});
  }
  void take(Member& m, const MemoryWrite& order) { report(m, MemoryWritten{order.chunk.size()}); }
  void take(Member& m, const MemoryRead& order) {
    const Bytes zeros(order.range.bytes);
    size_t at = 0;
    in_chunks(zeros, [&](Bytes chunk, bool last) {
      const size_t bytes = chunk.size();
      report(m, MemoryChunk{order.range, at, std::move(chunk), order.number, last});
      at += bytes;
    });
  }
  void take(Member&, const MemoryWatch&) {}
  void take(Member&, const MemoryForget&) {}
  // A worker that computes, or that waits for the others, finds its group ended.
  void take(Member& m, const GroupEnd&) {
    if (!m.slot) return;
    if (m.meeting) return halt(m, "the group was ended");
    if (m.together && m.granted > m.finished) halt(m, "");
  }

  void end_worker(Member& m, const WorkerEnd& end) {
    report(m, SlotEnded{*m.slot, end});
    forget_worker(m);
  }

  void forget_worker(Member& m) {
    m.slot.reset();
    m.order.clear();
    m.later.clear();
    m.meeting = m.together = false;
    m.finished = m.sent = m.granted = 0;
  }

  // ---- the worker ----

  void say(Member& m, const WorkerReport& what) {
    const Bytes message = with_prefix(m.reports, encode(what));
    report(m, SlotReport{*m.slot, true, with_prefix(Report::message, message)});
  }

  void take(Member&, const BeginOrder&) {}

  void take(Member& m, const FormOrder& order) {
    const auto group = decode<GroupOfWorkers>(order.group);
    m.form = order;
    m.form.group.clear();
    m.finished = m.granted = group.next - 1;
    m.sent = group.known;
    m.later.clear();
    m.together = false;
    m.meeting = true;
    if (order.generation > generation_) {
      generation_ = order.generation;
      group_ = {.members = group.members.size(), .granted = {}, .finished = group.next - 1};
    }
    // As long as Gloo's addresses.
    RendezvousReport addresses{.generation = order.generation, .entries = {}};
    const TwoSteps steps(static_cast<int>(group_.members), HostGroupOptions{}.most_direct);
    for (const int r : steps.neighbors(order.host)) addresses.entries.emplace_back(r, Bytes(20));
    say(m, addresses);
  }

  void take(Member& m, const RendezvousOrder& order) {
    if (!m.meeting || order.generation != m.form.generation) return;
    m.meeting = false;
    m.together = true;
    send_records(m);
    for (const GrantOrder& later : std::exchange(m.later, {})) take(m, later);
  }

  void take(Member& m, const GrantOrder& order) {
    if (order.generation != m.form.generation) return;
    if (m.meeting) {  // a worker reads it later
      m.later.push_back(order);
      return;
    }
    if (!m.together) return;
    for (const double rate : order.learning_rates) {
      (void)rate;
      const int64_t iteration = ++m.granted;
      if (++group_.granted[iteration] == group_.members) finish(iteration);
    }
  }

  void finish(int64_t iteration) {
    group_.finished = iteration;
    group_.granted.erase(iteration);
    for (Member& m : members_) {
      if (!m.together || m.form.generation != generation_) continue;
      m.finished = iteration;
      if (m.form.reporter) send_records(m);
    }
    if (failed_ < options_.failures && !next_failure_) {
      next_failure_.emplace(0.001 * static_cast<double>(random_() % 50));
    }
  }

  void send_records(Member& m) {
    if (!m.slot || !m.together || m.sent >= m.finished) return;
    RecordsReport records{.generation = m.form.generation, .records = {}};
    while (m.sent < m.finished) {
      IterationOutcome& o = records.records.emplace_back();
      o.iteration = ++m.sent;
      o.observations = options_.hosts;
      o.loss_sum = 1;
      o.digest = digest_after(o.iteration);
      o.seconds = 0.001;
    }
    say(m, records);
  }

  void halt(Member& m, const std::string& why) {
    send_records(m);
    m.meeting = m.together = false;
    say(m, HaltedReport{m.form.generation, m.finished, why});
  }

  void take(Member& m, const HaltOrder& order) {
    if (m.slot && order.generation == m.form.generation) halt(m, "");
  }
  void take(Member& m, const PublishOrder& order) {
    say(m, PublishedReport{order.state, m.finished});
  }
  void take(Member&, const ValidateOrder&) {}

  // ---- failures ----

  void fail_some() {
    next_failure_.reset();
    for (int i = 0; i < options_.together; ++i) fail_one();
    // One of four comes while the group recovers.
    if (random_() % 4 == 0) next_failure_.emplace(0.001 * static_cast<double>(random_() % 200));
  }

  void fail_one() {
    std::vector<size_t> candidates;
    for (size_t i = 0; i < members_.size(); ++i) {
      // The loss of a worker that has no task yet is not reported.
      const bool works = members_[i].slot && members_[i].reports != 0;
      if (members_[i].phase == Member::Phase::present && works) candidates.push_back(i);
    }
    if (candidates.size() < 2 || failed_ >= options_.failures) return;
    Member& m = members_[candidates[random_() % candidates.size()]];
    const int64_t kind = failed_++ % 10;
    if (kind < 7) {
      end_worker(m, {.how = "was killed by signal 9 (SIGKILL)", .outside = true});
    } else {
      forget_worker(m);
      if (kind < 9) {
        write(m, with_prefix(AgentMessage::failed,
                             encode(TaskError{"Error", "its host was restarted", ""})));
      }
      m.phase = Member::Phase::silent;
      returns_.emplace(static_cast<size_t>(m.index),
                       TimeLimit(kind < 9 ? 0.05 : 1.8 * std::max(1.0, options_.hosts / 1024.0)));
    }
    read(m);
  }

  const SimulatedHostsOptions options_;
  const JobKey key_;
  zmq::context_t context_{1};
  const Descriptor epoll_{epoll_create1(EPOLL_CLOEXEC)};
  std::vector<Member> members_;
  std::set<int> changed_;  // sockets that have sent
  JoinRequest request_;
  ReadyReport ready_;
  uint64_t asked_ = 0;
  uint32_t next_worker_ = 1;
  int64_t generation_ = 0;
  SimulatedGroup group_;
  double pulse_ = 0.2;  // as the client asks for it
  TimeLimit next_pulse_{0.2}, next_records_{kLongSendPeriod};
  std::mt19937_64 random_;
  int64_t failed_ = 0;
  std::optional<TimeLimit> next_failure_;
  std::map<size_t, TimeLimit> returns_;  // when hosts come back, by index
};

}  // namespace

void run_simulated_hosts(const SimulatedHostsOptions& options) { SimulatedHosts(options).run(); }

}  // namespace lockstep::testing
