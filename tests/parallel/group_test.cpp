#include <gtest/gtest.h>
#include <signal.h>

#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/parallel/comm/local_group.h"
#include "tests/parallel/collectives.h"
#include "tests/parallel/groups.h"

namespace lockstep {
namespace {

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
  const auto body = [&](LocalGroup& group) { testing::move_bytes(group, c.bytes); };
  const std::string kind = c.kind;
  const bool hosts = kind.find("hosts") != kind.npos, network = kind.find("network") != kind.npos;
  if (hosts && testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  if (network && !testing::why_no_network().empty()) GTEST_SKIP() << testing::why_no_network();
  if (kind == "hosts" || kind == "network hosts") {
    const auto host = [&](HostGroup& g) { testing::move_bytes(g, c.bytes); };
    EXPECT_EQ(testing::on_hosts(c.size, host, {}, network), 0);
    return;
  }
  if (hosts) {
    // Up to three hosts with different numbers of members.
    const auto members = c.size < 3    ? std::vector<int>(static_cast<size_t>(c.size), 1)
                         : c.size == 3 ? std::vector<int>{1, 2}
                         : c.size == 4 ? std::vector<int>{3, 1}
                                       : std::vector<int>{2, 5, 1};
    const auto process = [&](CompositeGroup& g) { testing::move_bytes(g, c.bytes); };
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
