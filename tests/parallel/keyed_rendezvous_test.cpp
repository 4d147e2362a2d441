#include "lockstep/parallel/comm/keyed_rendezvous.h"

#include <gtest/gtest.h>

#include <atomic>
#include <deque>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/base/threads/mutex.h"

namespace lockstep {
namespace {

// What members have sent, by receiver.
struct Post {
  explicit Post(size_t members) : boxes(members) {}
  Mutex mutex;
  std::vector<std::deque<RendezvousEntry>> boxes LOCKSTEP_GUARDED_BY(mutex);
  std::atomic<bool> ended{false};
};

class PostRendezvous final : public KeyedRendezvous {
 public:
  PostRendezvous(Post& post, int rank)
      : KeyedRendezvous(rank), post_(post), rank_(static_cast<size_t>(rank)) {}

 private:
  void send(std::span<const RendezvousEntry> entries) override {
    const MutexLock lock(post_.mutex);
    for (const RendezvousEntry& entry : entries) {
      post_.boxes[static_cast<size_t>(entry.to)].push_back(entry);
    }
  }
  void wait(double) override {
    if (post_.ended) throw WorkerLost("[test] ended");
    std::this_thread::yield();
    const MutexLock lock(post_.mutex);
    for (auto& box = post_.boxes[rank_]; !box.empty(); box.pop_front()) take(box.front());
  }

  Post& post_;
  const size_t rank_;
};

Bytes entry_of(int from, int to) { return Bytes(static_cast<size_t>(10 * from + to)); }

TEST(KeyedRendezvous, GivesEachMemberTheEntriesForIt) {
  constexpr int kMembers = 5;
  Post post(kMembers);
  std::atomic<int> right{0};
  std::vector<std::thread> threads;
  for (int rank = 0; rank < kMembers; ++rank) {
    threads.emplace_back([&, rank] {
      PostRendezvous rendezvous(post, rank);
      std::map<int, Bytes> own, expected;
      for (int other = 0; other < kMembers; ++other) {
        // Members 1 and 3 are not neighbors.
        if (other == rank || (rank + other == 4 && rank % 2 == 1)) continue;
        own[other] = entry_of(rank, other);
        expected[other] = entry_of(other, rank);
      }
      right += rendezvous.exchange(own, TimeLimit(20)) == expected;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, kMembers);
}

TEST(KeyedRendezvous, KeepsEntriesThatComeBefore) {
  Post post(2);
  PostRendezvous rendezvous(post, 0);
  rendezvous.take({1, 0, entry_of(1, 0)});
  rendezvous.take({0, 1, entry_of(0, 1)});  // for another member
  const std::map<int, Bytes> expected{{1, entry_of(1, 0)}};
  EXPECT_EQ(rendezvous.exchange({{1, entry_of(0, 1)}}, TimeLimit(20)), expected);
}

TEST(KeyedRendezvous, WaitsForMissingMembersToTheLimitOrTheEnd) {
  Post post(2);
  PostRendezvous rendezvous(post, 0);
  EXPECT_THROW(rendezvous.exchange({{1, {}}}, TimeLimit(0.05)), Timeout);
  post.ended = true;
  EXPECT_THROW(rendezvous.exchange({{1, {}}}, TimeLimit(0)), WorkerLost);
}

}  // namespace
}  // namespace lockstep
