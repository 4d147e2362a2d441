// Groups of hosts that move their bytes in two steps.
#include "lockstep/parallel/comm/two_steps.h"

#include <gtest/gtest.h>
#include <signal.h>
#include <unistd.h>

#include <array>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/parallel/collectives.h"
#include "tests/parallel/groups.h"

namespace lockstep {
namespace {

constexpr int kMembers = 9, kStride = 3;
constexpr int kFirstWord = 20;  // of the words on a board that are not process ids

constexpr std::array kCollectives{testing::gather_bytes, testing::exchange_bytes,
                                  testing::broadcast_bytes};

void in_two_steps(HostGroupOptions& options) { options.most_direct = 1; }

TEST(TwoSteps, ReachEveryMemberOnce) {
  for (int size = 2; size < 300; ++size) {
    const TwoSteps steps(size, 1);
    std::vector<int> reached(static_cast<size_t>(size), 0);
    const std::set<int> neighbors = steps.neighbors(1 % size);
    for (int near = 0; near < steps.stride(); ++near) {
      for (int multiple = 0; multiple < steps.multiples() && steps.has(near, multiple);
           ++multiple) {
        ++reached[static_cast<size_t>(steps.at(0, near + multiple * steps.stride()))];
        if (near + multiple == 0) continue;
        const int first = steps.at(1, near), last = steps.at(1, near + multiple * steps.stride());
        EXPECT_TRUE(first == 1 || neighbors.count(first) > 0) << size;
        EXPECT_TRUE(multiple == 0 || steps.neighbors(first).count(last) > 0) << size;
      }
    }
    EXPECT_EQ(reached, std::vector<int>(static_cast<size_t>(size), 1)) << size;
    EXPECT_LE(static_cast<double>(neighbors.size()), 4 * std::sqrt(size)) << size;
  }
  EXPECT_EQ(TwoSteps(64, 64).neighbors(0).size(), 63u);
  EXPECT_EQ(TwoSteps(4096, 64).neighbors(0).size(), 189u);
}

// Groups of every size move the same bytes over two steps as directly, also where the last distance
// is incomplete.
TEST(TwoStepGroup, MovesBytes) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  for (const int size : {2, 3, 4, 5, 7, kMembers, 12}) {
    for (const size_t bytes : {1, 3000}) {
      const auto member = [&](HostGroup& group) { testing::move_bytes(group, bytes); };
      EXPECT_EQ(testing::on_hosts(size, member, in_two_steps), 0) << size << ", " << bytes;
    }
  }
}

TEST(TwoStepGroup, MovesBytesOfSeveralMembersOnEachHost) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const auto member = [&](CompositeGroup& group) { testing::move_bytes(group, 3000); };
  EXPECT_EQ(testing::on_hosts_of_processes({2, 1, 3, 1, 2}, member, false, in_two_steps), 0);
}

// All others wait before the late member begins a collective. Those that do not need it are one
// collective ahead.
TEST(TwoStepGroup, WaitsForALateMember) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  for (const int late : {0, 4}) {
    const testing::Board board;  // process ids by rank
    const auto member = [&](HostGroup& group) {
      board[group.rank()] = getpid();
      group.barrier(TimeLimit(20));
      for (int number = 0; number < 9; ++number) {
        for (int r = 0; r < kMembers && group.rank() == late; ++r) {
          if (r != late) testing::require(board.comes_to_wait(r));
        }
        kCollectives[static_cast<size_t>(number % 3)](group, 3000, number / 3);
      }
    };
    EXPECT_EQ(testing::on_hosts(kMembers, member, in_two_steps), 0) << "member " << late;
  }
}

// Only its neighbors notice that a member is lost. When they leave the group, their neighbors
// notice.
TEST(TwoStepGroup, ALostMemberEndsItForAll) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  for (int lost_in = 0; lost_in < 3; ++lost_in) {
    const testing::Board board;  // process ids by rank
    constexpr int kLost = kFirstWord, kVictim = 4;
    const auto begin = TimeLimit::Clock::now();
    const auto member = [&](HostGroup& group) {
      const int me = group.rank();
      board[me] = getpid();
      group.barrier(TimeLimit(20));
      try {
        for (int number = 0;; ++number) {
          if (me == kVictim && number == 3 + lost_in) {
            for (int r = 0; r < kMembers; ++r) {
              if (r != me) testing::require(board.comes_to_wait(r));
            }
            kill(getpid(), SIGKILL);
          }
          kCollectives[static_cast<size_t>(number % 3)](group, 3000, number);
        }
      } catch (const WorkerLost&) {
        ++board[kLost];
        _exit(0);
      }
    };
    EXPECT_EQ(testing::on_hosts(kMembers, member, in_two_steps), 1) << lost_in;
    EXPECT_EQ(board[kLost], kMembers - 1) << lost_in;
    EXPECT_LT(TimeLimit::Clock::now() - begin, std::chrono::seconds(15)) << "at the limit";
  }
}

// Gloo does not report every connection that ends in the middle of a message. Whoever knows that a
// member is lost ends the group.
TEST(TwoStepGroup, AbortFreesMembersFromOneThatWasLostAtAnyMoment) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  for (int round = 0; round < 6; ++round) {
    const testing::Board board;  // process ids by rank
    constexpr int kLost = kFirstWord, kVictim = 4;
    const size_t bytes = round % 2 == 0 ? 3000 : 300'000;
    const auto begin = TimeLimit::Clock::now();
    const auto member = [&](HostGroup& group) {
      const int me = group.rank();
      board[me] = getpid();
      group.barrier(TimeLimit(20));
      std::thread watch([&] {
        if (me == kVictim) {
          std::this_thread::sleep_for(std::chrono::milliseconds(3 * round));
          kill(getpid(), SIGKILL);
        }
        testing::await([&] { return board.has_ended(kVictim); });
        group.abort();
      });
      try {
        for (int number = 0;; ++number)
          kCollectives[static_cast<size_t>(number % 3)](group, bytes, number);
      } catch (const WorkerLost&) {
        ++board[kLost];
        _exit(0);
      }
    };
    EXPECT_EQ(testing::on_hosts(kMembers, member, in_two_steps), 1) << "round " << round;
    EXPECT_EQ(board[kLost], kMembers - 1) << "round " << round;
    EXPECT_LT(TimeLimit::Clock::now() - begin, std::chrono::seconds(15)) << "at the limit";
  }
}

// Those that get its bytes from itself, or send it theirs, name a missing member. Others name the
// members on the way, and say that these may wait, too.
TEST(TwoStepGroup, AMissingMemberIsNamedAtTheLimit) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const testing::Board board;
  constexpr int kOver = kFirstWord, kNamed = kFirstWord + 1, kNamedOthers = kFirstWord + 2;
  constexpr int kMissing = 4;
  const auto member = [&](HostGroup& group) {
    group.barrier(TimeLimit(20));
    // All stay until all have come to the limit, so that nobody notices that another one leaves.
    const auto over = [&] { return board[kOver] == kMembers - 1; };
    if (group.rank() == kMissing) _exit(testing::await(over) ? 0 : 1);
    std::string said = "nothing was thrown";
    try {
      group.barrier(TimeLimit(1.5));
    } catch (const Timeout& e) {
      said = e.what();
    } catch (const std::exception& e) {
      said = std::string("another error: ") + e.what();
    }
    const bool late = said.find("did not complete in time: ") != std::string::npos;
    const bool named =
        late && said.find("rank 4") != std::string::npos && said.ends_with(" did not arrive");
    const bool others = late && said.ends_with(" did not arrive (or members that these wait for)");
    board[kNamed] += named;
    board[kNamedOthers] += others;
    if (!named && !others) std::fprintf(stderr, "member %d: %s\n", group.rank(), said.c_str());
    ++board[kOver];
    _exit(testing::await(over) ? 0 : 1);
  };
  EXPECT_EQ(testing::on_hosts(kMembers, member, in_two_steps), 0);
  EXPECT_EQ(board[kNamed], 2 * (kStride - 1));
  EXPECT_EQ(board[kNamedOthers], kMembers - 1 - 2 * (kStride - 1));
}

}  // namespace
}  // namespace lockstep
