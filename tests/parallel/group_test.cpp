#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <cstring>
#include <numeric>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "lockstep/parallel/comm/local_group.h"
#include "lockstep/parallel/comm/two_steps.h"
#include "tests/parallel/groups.h"

namespace lockstep {
namespace {

constexpr double kLimit = 30;

std::byte byte_of(int from, int to, size_t at) {
  return static_cast<std::byte>(static_cast<size_t>(from * 31 + to * 7) + at * 13 + at / 251);
}

void require(bool holds) {
  if (!holds) throw InternalError("wrong bytes");
}

// Calls every collective with counts that differ between members.
void exchange(Group& group, size_t most) {
  const int n = group.size(), me = group.rank();
  const auto size = static_cast<size_t>(n);
  for (int repeat = 0; repeat < 3; ++repeat) {
    group.barrier(TimeLimit(kLimit));
    std::vector<size_t> counts(size);
    for (int r = 0; r < n; ++r) {
      counts[static_cast<size_t>(r)] = most > 0 && r % 2 == 1 ? most - 1 : most;
    }
    std::vector<std::byte> mine(counts[static_cast<size_t>(me)]);
    for (size_t i = 0; i < mine.size(); ++i) mine[i] = byte_of(me, repeat, i);
    std::vector<std::byte> all(std::accumulate(counts.begin(), counts.end(), size_t{0}));
    group.all_gather(mine, counts, all, TimeLimit(kLimit));
    size_t at = 0;
    for (int r = 0; r < n; ++r) {
      for (size_t i = 0; i < counts[static_cast<size_t>(r)]; ++i) {
        require(all[at++] == byte_of(r, repeat, i));
      }
    }
    // Member a sends `most` - a bytes of the piece for member b.
    const auto length = [&](int a, int b) {
      const auto less = static_cast<size_t>(a + 2 * b);
      return most > less ? most - less : 0;
    };
    std::vector<size_t> to(size), from(size);
    std::vector<std::byte> sent, received;
    for (int r = 0; r < n; ++r) {
      to[static_cast<size_t>(r)] = length(me, r);
      from[static_cast<size_t>(r)] = length(r, me);
      for (size_t i = 0; i < length(me, r); ++i) sent.push_back(byte_of(me, r, i));
    }
    received.resize(std::accumulate(from.begin(), from.end(), size_t{0}));
    group.all_to_all(sent, to, received, from, TimeLimit(kLimit));
    at = 0;
    for (int r = 0; r < n; ++r) {
      for (size_t i = 0; i < length(r, me); ++i) require(received[at++] == byte_of(r, me, i));
    }
    std::vector<std::byte> data(most);
    const int root = repeat % n;
    for (size_t i = 0; i < most && me == root; ++i) data[i] = byte_of(root, 5, i);
    group.broadcast(data, root, TimeLimit(kLimit));
    for (size_t i = 0; i < most; ++i) require(data[i] == byte_of(root, 5, i));
  }
}

struct Case {
  const char* kind;
  int size;
  size_t bytes;
};

void PrintTo(const Case& c, std::ostream* to) {
  *to << c.kind << " x " << c.size << " x " << c.bytes << " bytes";
}

class Groups : public ::testing::TestWithParam<Case> {};

TEST_P(Groups, MoveBytes) {
  const Case c = GetParam();
  const LocalGroupOptions options{.size = c.size};
  const auto body = [&](LocalGroup& group) { exchange(group, c.bytes); };
  const std::string kind = c.kind;
  const bool hosts = kind.find("hosts") != kind.npos, network = kind.find("network") != kind.npos;
  if (hosts && testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  if (network && !testing::why_no_network().empty()) GTEST_SKIP() << testing::why_no_network();
  if (kind == "hosts" || kind == "network hosts") {
    const auto host = [&](HostGroup& g) { exchange(g, c.bytes); };
    EXPECT_EQ(testing::on_hosts(c.size, host, {}, network), 0);
    return;
  }
  if (hosts) {
    // Up to three hosts with different numbers of members.
    const auto members = c.size < 3    ? std::vector<int>(static_cast<size_t>(c.size), 1)
                         : c.size == 3 ? std::vector<int>{1, 2}
                         : c.size == 4 ? std::vector<int>{3, 1}
                                       : std::vector<int>{2, 5, 1};
    const auto process = [&](CompositeGroup& g) { exchange(g, c.bytes); };
    EXPECT_EQ(testing::on_hosts_of_processes(members, process, network), 0);
    return;
  }
  const bool threads = kind == "threads";
  EXPECT_EQ(threads ? testing::on_threads(options, body) : testing::on_processes(options, body), 0);
}

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const char* kind : {"threads", "processes", "hosts", "hosts of processes", "network hosts",
                           "network hosts of processes"}) {
    for (const int size : {1, 2, 3, 4, 8}) {
      for (const size_t bytes : {size_t{0}, size_t{1}, size_t{12345}, size_t{3000001}}) {
        all.push_back({kind, size, bytes});
      }
    }
  }
  return all;
}

INSTANTIATE_TEST_SUITE_P(Matrix, Groups, ::testing::ValuesIn(cases()));

// A member that waits for a missing one gets an error with its name within the limit.
TEST(Group, MissingMembersAreNamed) {
  LocalGroupOptions options{.size = 3, .names = {"worker 4", "worker 7", "worker 9"}};
  std::string text, hint;
  std::mutex mutex;
  EXPECT_EQ(testing::on_threads(options,
                                [&](LocalGroup& group) {
                                  group.barrier(TimeLimit(5));
                                  if (group.rank() == 1) return;
                                  try {
                                    group.all_gather({}, std::vector<size_t>(3, 0), {},
                                                     TimeLimit(0.2));
                                  } catch (const Timeout& e) {
                                    const std::lock_guard lock(mutex);
                                    text = e.what();
                                    hint = e.hint();
                                    throw;
                                  }
                                }),
            2);
  EXPECT_NE(text.find("all_gather number 2"), std::string::npos) << text;
  EXPECT_NE(text.find("worker 7 did not arrive"), std::string::npos) << text;
  EXPECT_NE(hint.find("barrier 1 (0 bytes), all_gather 2"), std::string::npos) << hint;
}

// A member that is killed while it waits leaves nothing locked. Any process that notices can free
// the others.
TEST(Group, AbortFreesMembersThatWaitForADeadOne) {
  const LocalGroupOptions options{.size = 3};
  constexpr int kBefore = 20;
  SharedMemory arena("lockstep-test");
  const SharedRegion memory = arena.map(arena.reserve(LocalGroup::bytes(options)));
  const pid_t victim = fork();
  if (victim == 0) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    LocalGroup group(memory, 2, options);
    for (;;) group.barrier(TimeLimit(60));
  }
  std::vector<std::thread> survivors;
  std::atomic<int> met{0}, freed{0};
  std::atomic<bool> dead{false};
  for (int r = 0; r < 2; ++r) {
    survivors.emplace_back([&, r] {
      LocalGroup group(memory, r, options);
      try {
        for (int i = 0; i < kBefore; ++i) group.barrier(TimeLimit(60));
        ++met;
        while (!dead) std::this_thread::yield();
        for (;;) group.barrier(TimeLimit(60));
      } catch (const WorkerLost&) {
        ++freed;
      }
    });
  }
  EXPECT_TRUE(testing::await([&] { return met == 2; })) << "they have not come together";
  EXPECT_TRUE(testing::comes_to_wait(victim, victim));
  kill(victim, SIGKILL);
  waitpid(victim, nullptr, 0);
  dead = true;
  // It has reached one barrier more than the others.
  EXPECT_TRUE(
      testing::await([&] { return LocalGroup::missing(memory, options) == std::vector<int>{2}; }));
  const std::string missing = LocalGroup::describe_missing(memory, options);
  EXPECT_NE(missing.find("rank 2 has not arrived at barrier number " + std::to_string(kBefore + 2)),
            std::string::npos)
      << missing;
  const auto before = TimeLimit::Clock::now();
  LocalGroup::abort(memory);
  for (std::thread& t : survivors) t.join();
  EXPECT_EQ(freed, 2);
  EXPECT_LT(TimeLimit::Clock::now() - before, std::chrono::seconds(1));
}

TEST(HostGroup, AKilledMemberIsNoticedByAll) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const testing::Board board;  // process ids by rank
  constexpr int kWaited = 10, kNoticed = 11;
  const auto begin = TimeLimit::Clock::now();
  const auto member = [&](HostGroup& group) {
    group.barrier(TimeLimit(20));
    board[group.rank()] = getpid();
    if (group.rank() == 1) {
      board[kWaited] = board.comes_to_wait(0) && board.comes_to_wait(2);
      kill(getpid(), SIGKILL);
    }
    try {
      for (;;) group.barrier(TimeLimit(60));
    } catch (const WorkerLost& e) {
      if (std::string(e.what()).find("rank 1") == std::string::npos) throw;
      ++board[kNoticed];
      _exit(0);
    }
  };
  EXPECT_EQ(testing::on_hosts(3, member), 1);
  EXPECT_EQ(board[kWaited], 1) << "the others did not wait for the victim";
  EXPECT_EQ(board[kNoticed], 2);
  EXPECT_LT(TimeLimit::Clock::now() - begin, std::chrono::seconds(5));
}

TEST(HostGroup, AStoppedMemberIsNamedAtTheLimit) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const testing::Board board;
  const auto member = [&](HostGroup& group) {
    if (group.rank() == 1) {
      board[1] = getpid();
      raise(SIGSTOP);
      _exit(0);
    }
    const bool stopped = testing::await([&] { return board.is_stopped(1); });
    std::string said = "nothing was thrown";
    try {
      group.barrier(TimeLimit(0.3));
    } catch (const Timeout& e) {
      said = e.what();
    } catch (const std::exception& e) {
      said = std::string("another error: ") + e.what();
    }
    if (board[1] != 0) kill(board[1], SIGCONT);
    const bool named = said.find("rank 1 did not arrive") != std::string::npos;
    if (!named) std::fprintf(stderr, "%s\n", said.c_str());
    _exit(stopped && named && said.find("another error") != 0 ? 0 : 1);
  };
  EXPECT_EQ(testing::on_hosts(2, member), 0);
}

// No process is told when a cable is pulled: connections stay open, and sent data is lost.
TEST(HostGroup, APulledCableIsNoticedAtTheLimit) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  if (!testing::why_no_network().empty()) GTEST_SKIP() << testing::why_no_network();
  const auto begin = TimeLimit::Clock::now();
  const auto host = [](HostGroup& group) {
    group.barrier(TimeLimit(20));
    if (group.rank() == 1) testing::pull_cable(1);
    try {
      for (;;) group.barrier(TimeLimit(1));
    } catch (const Timeout& e) {
      const std::string other = group.rank() == 1 ? "rank 0" : "rank 1";
      _exit(std::string(e.what()).find(other + " did not arrive") == std::string::npos ? 1 : 0);
    }
  };
  EXPECT_EQ(testing::on_hosts(2, host, {}, true), 0);
  EXPECT_LT(TimeLimit::Clock::now() - begin, std::chrono::seconds(10));
}

TEST(HostGroup, AbortFreesWaitingMembers) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const testing::Board board;
  constexpr int kOver = 10, kWaited = 11;
  const auto member = [&](HostGroup& group) {
    if (group.rank() == 1) {
      // Takes no part but stays alive, so that no closed connection frees the other member.
      _exit(testing::await([&] { return board[kOver] == 1; }) ? 0 : 1);
    }
    board[0] = getpid();
    std::thread other([&] {
      board[kWaited] = board.comes_to_wait(0);
      group.abort();
    });
    bool ended = false;
    try {
      group.barrier(TimeLimit(60));
    } catch (const WorkerLost&) {
      ended = true;
    }
    board[kOver] = 1;
    other.join();
    _exit(ended ? 0 : 1);
  };
  EXPECT_EQ(testing::on_hosts(2, member), 0);
  EXPECT_EQ(board[kWaited], 1) << "nobody waited";
}

// Groups of every size move the same bytes over two steps as directly, also where the last distance
// is incomplete.
TEST(HostGroup, MovesBytesInTwoSteps) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const auto in_two_steps = [](HostGroupOptions& options) { options.most_direct = 1; };
  for (const int size : {2, 3, 4, 5, 7, 9, 12}) {
    for (const size_t bytes : {1, 3000}) {
      const auto member = [&](HostGroup& g) { exchange(g, bytes); };
      EXPECT_EQ(testing::on_hosts(size, member, in_two_steps), 0) << size << ", " << bytes;
    }
  }
}

TEST(TwoSteps, ReachEveryMemberOnce) {
  for (int size = 2; size < 300; ++size) {
    const TwoSteps steps(size, 1);
    std::vector<int> reached(static_cast<size_t>(size), 0);
    const std::set<int> neighbours = steps.neighbours(1 % size);
    for (int near = 0; near < steps.stride(); ++near) {
      for (int multiple = 0; multiple < steps.multiples() && steps.has(near, multiple);
           ++multiple) {
        ++reached[static_cast<size_t>(steps.at(0, near + multiple * steps.stride()))];
        if (near + multiple == 0) continue;
        const int first = steps.at(1, near), last = steps.at(1, near + multiple * steps.stride());
        EXPECT_TRUE(first == 1 || neighbours.count(first) > 0) << size;
        EXPECT_TRUE(multiple == 0 || steps.neighbours(first).count(last) > 0) << size;
      }
    }
    EXPECT_EQ(reached, std::vector<int>(static_cast<size_t>(size), 1)) << size;
    EXPECT_LE(static_cast<double>(neighbours.size()), 4 * std::sqrt(size)) << size;
  }
  EXPECT_EQ(TwoSteps(64, 64).neighbours(0).size(), 63u);
  EXPECT_EQ(TwoSteps(4096, 64).neighbours(0).size(), 189u);
}

// The first member that notices reports it. The other may only see that the first one left.
TEST(HostGroup, AMemberWithAnotherSecretIsRefused) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const testing::TemporaryFolder folder;
  const testing::Board board;
  const int failed = testing::on_forks(2, [&](int rank) {
    try {
      HostGroup group({.rank = rank,
                       .size = 2,
                       .address = "127.0.0.1",
                       .rendezvous = std::make_shared<testing::FolderRendezvous>(rank, folder.path),
                       .generation = 3,
                       .secret = rank == 1 ? "another" : "secret"},
                      TimeLimit(20));
    } catch (const Error& e) {
      const std::string text = e.what();
      board[0] += text.find("does not belong to generation 3") != std::string::npos;
      return;
    }
    _exit(1);
  });
  EXPECT_EQ(failed, 0) << "somebody came in";
  EXPECT_GE(board[0], 1) << "nobody was refused for its secret";
}

// An intruder connects first wherever members listen. Its bytes must not end a process.
class IntrudedRendezvous final : public Rendezvous {
 public:
  IntrudedRendezvous(std::shared_ptr<Rendezvous> rendezvous, std::string said)
      : rendezvous_(std::move(rendezvous)), said_(std::move(said)) {}

  std::map<int, Bytes> exchange(const std::map<int, Bytes>& own, const TimeLimit& limit) override {
    for (const auto& [member, entry] : own) visit(entry);
    return rendezvous_->exchange(own, limit);
  }

 private:
  void visit(const Bytes& value) {
    // The values contain addresses as the system stores them: family, port, 127.0.0.1. The zeros
    // behind may be missing.
    constexpr size_t kKnown = offsetof(sockaddr_in, sin_zero);
    for (size_t i = 0; i + kKnown <= value.size(); ++i) {
      sockaddr_in address{};
      std::memcpy(&address, value.data() + i, kKnown);
      if (address.sin_family != AF_INET || address.sin_addr.s_addr != htonl(INADDR_LOOPBACK)) {
        continue;
      }
      Descriptor s(socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
      if (connect(s.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
        continue;
      }
      [[maybe_unused]] const ssize_t n = send(s.get(), said_.data(), said_.size(), MSG_NOSIGNAL);
      visits_.push_back(std::move(s));
    }
  }

  const std::shared_ptr<Rendezvous> rendezvous_;
  const std::string said_;
  std::vector<Descriptor> visits_;
};

// Gloo's message header: bytes in all, operation, slot, offset, length, offset at the receiver.
std::string gloo_header(std::array<uint64_t, 6> words) {
  return {reinterpret_cast<const char*>(words.data()), sizeof words};
}

TEST(HostGroup, IntrudersEndNoMember) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  std::vector<std::string> said{"", "GET / HTTP/1.0\r\n\r\n", std::string(200, '\xff')};
  for (const uint64_t operation : {0, 1, 2, 3, 4, 77}) {
    said.push_back(gloo_header({48, operation, 0, 0, 0, 0}));
    said.push_back(gloo_header({1 << 20, operation, 0, 1 << 30, 1 << 20, 1 << 30}) +
                   std::string(100, 'x'));
  }
  for (const std::string& text : said) {
    const testing::TemporaryFolder folder;
    const int failed = testing::on_forks(2, [&](int rank) {
      const auto rendezvous = std::make_shared<IntrudedRendezvous>(
          std::make_shared<testing::FolderRendezvous>(rank, folder.path), text);
      try {
        HostGroup group({.rank = rank,
                         .size = 2,
                         .address = "127.0.0.1",
                         .rendezvous = rendezvous,
                         .generation = 3,
                         .secret = "secret"},
                        TimeLimit(1));
        _exit(1);  // an intruder must not become a member
      } catch (const Error&) {
        // The training reacts with a new group.
      }
    });
    EXPECT_EQ(failed, 0) << "after " << text.size() << " bytes";
  }
}

TEST(HostGroup, PublicAddressesAreRefused) {
  for (const char* address : {"127.0.0.1", "10.1.2.3", "172.16.0.1", "172.31.255.255",
                              "192.168.0.1", "169.254.0.1", "::1", "fe80::1", "fd00::1"}) {
    EXPECT_TRUE(is_private_address(address)) << address;
  }
  for (const char* address :
       {"8.8.8.8", "172.32.0.1", "172.15.0.1", "192.169.0.1", "0.0.0.0", "2001:db8::1", "::"}) {
    EXPECT_FALSE(is_private_address(address)) << address;
  }
  EXPECT_THROW(is_private_address("localhost"), InvalidArgument);
  EXPECT_THROW(HostGroup({.address = "8.8.8.8"}, TimeLimit(1)), InvalidArgument);
}

// When a member on any host dies, no other member waits for the limit.
TEST(CompositeGroup, AKilledMemberEndsItForAll) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  for (const int victim : {0, 2}) {  // the first members of their hosts
    const testing::Board board;      // process ids by rank
    constexpr int kWaited = 10, kLost = 11;
    const auto begin = TimeLimit::Clock::now();
    const auto member = [&](CompositeGroup& group) {
      group.barrier(TimeLimit(20));
      const int me = group.rank();
      board[me] = getpid();
      if (me == victim) {
        bool waited = true;
        for (int r = 0; r < 4; ++r) waited = waited && (r == me || board.comes_to_wait(r));
        board[kWaited] = waited;
        kill(getpid(), SIGKILL);
      }
      // Detects deaths on the victim's host.
      std::thread watch([&] {
        if (me != victim + 1) return;
        testing::await([&] { return board.has_ended(victim); });
        group.abort();
      });
      try {
        for (;;) group.barrier(TimeLimit(60));
      } catch (const WorkerLost&) {
        ++board[kLost];
      }
      watch.join();
      _exit(0);
    };
    EXPECT_EQ(testing::on_hosts_of_processes({2, 2}, member), 1);
    EXPECT_EQ(board[kWaited], 1) << "the others did not wait for the victim";
    EXPECT_EQ(board[kLost], 3);
    EXPECT_LT(TimeLimit::Clock::now() - begin, std::chrono::seconds(5));
  }
}

TEST(CompositeGroup, GroupsOfOthersAreRefused) {
  auto two = LocalGroup::of_threads({.size = 2});
  auto one = LocalGroup::of_threads({.size = 1});
  EXPECT_THROW(CompositeGroup(std::move(two[1]), std::move(one[0]), {.members = {2}}),
               InvalidArgument);
  EXPECT_THROW(CompositeGroup(std::move(two[0]), nullptr, {.members = {2}}), InvalidArgument);
}

TEST(Group, SizesThatDoNotFitAreRefused) {
  auto members = LocalGroup::of_threads({.size = 1});
  std::vector<std::byte> three(3), two(2);
  const std::vector<size_t> counts{3};
  EXPECT_THROW(members[0]->all_gather(two, counts, three, TimeLimit(1)), InvalidArgument);
  EXPECT_THROW(members[0]->all_to_all(two, counts, three, counts, TimeLimit(1)), InvalidArgument);
  EXPECT_THROW(members[0]->broadcast(two, 1, TimeLimit(1)), InvalidArgument);
}

}  // namespace
}  // namespace lockstep
