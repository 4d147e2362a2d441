// Custom loops have the trainer's features all at once: narrow precision on a device, loads, checks
// of shards that find corruption, any number of workers and hosts. One digest each.
#include <gtest/gtest.h>

#include <cstdio>
#include <string>
#include <vector>

#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/table.h"
#include "lockstep/parallel/messages/serialize.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/train/iteration/shard_check.h"
#include "tests/engine/devices/fake_device.h"
#include "tests/parallel/groups.h"
#include "tests/train/custom_loop_runs.h"

namespace lockstep {
namespace {

using testing::expect_same;
using testing::Loop;

// What a member has computed, and what its check has found.
struct Member {
  Loop loop;
  int64_t iteration = 0, shard = -1;  // of ShardsDiffer

  template <class Archive>
  void serialize(Archive& archive) {
    archive(loop, iteration, shard);
  }
};

// The stand-in computes by the CPU's kernels, so it has bf16 where the CPU has.
Precision precision() { return kernels::table_for({}).bf16 ? Precision::bf16 : Precision::fp32; }

// Each process has its own device. `corrupt`: the first member's first computation of a shard is
// wrong. A null group: this process alone.
Member member_of(Group* group, bool corrupt) {
  const devicetest::FakeDevice fake;
  const std::vector<double> loads[] = {{}, {3}, {3, 1}, {3, 1, 0}, {3, 1, 0, 2}};
  Member member;
  const bool first = group == nullptr || group->rank() == 0;
  if (corrupt && first) testing::plant_corruption();
  try {
    member.loop = testing::run({.precision = precision(),
                                .loads = loads[group ? group->size() : 0],
                                .check_frequency = testing::planted_iteration},
                               fake, group, false, /*epochs=*/1);
  } catch (const ShardsDiffer& e) {
    member.iteration = e.iteration();
    member.shard = e.shard();
  }
  set_corruption_hook(nullptr);
  return member;
}

// Expects the bits of one process of all members, and shards by their loads.
void expect_loop(const std::vector<Member>& members, const Loop& alone) {
  std::string counts;
  int64_t shards = 0;
  for (size_t r = 0; r < members.size(); ++r) {
    const Loop& loop = members[r].loop;
    expect_same(loop, alone);
    EXPECT_EQ(loop.shards == 0, r == 2) << "member " << r;
    counts += " " + std::to_string(loop.shards);
    shards += loop.shards;
  }
  EXPECT_EQ(shards, alone.shards);
  if (members.size() > 1) {
    EXPECT_GT(members[0].loop.shards, 2 * members[1].loop.shards);
  }
  std::printf("%s, shards by member%s, digest %s\n",
              precision() == Precision::bf16 ? "bf16" : "fp32", counts.c_str(),
              alone.digest.to_string().c_str());
}

void expect_found(const std::vector<Member>& members) {
  for (const Member& member : members) {
    EXPECT_EQ(member.iteration, testing::planted_iteration) << "the fault was not found";
    EXPECT_EQ(member.shard, 0);
  }
}

TEST(CustomLoopProof, OneDigestOverWorkersOfAPool) {
  const Loop alone = member_of(nullptr, false).loop;
  ASSERT_EQ(alone.losses.size(), static_cast<size_t>(testing::planted_iteration));
  for (const int workers : {1, 2, 4}) {
    SCOPED_TRACE(workers);
    Pool pool({.workers = workers});
    const auto block = [](Spmd& worker, bool corrupt) {
      return member_of(&worker.group(), corrupt);
    };
    expect_loop(spmd(pool, block, false), alone);
    expect_found(spmd(pool, block, true));
  }
}

TEST(CustomLoopProof, OneDigestOverTwoHosts) {
  if (testing::hosts_are_left_out()) GTEST_SKIP() << "Gloo is not instrumented";
  const Loop alone = member_of(nullptr, false).loop;
  for (const bool corrupt : {false, true}) {
    SCOPED_TRACE(corrupt);
    const testing::TemporaryFolder folder;
    const auto path = [&](int rank) { return folder.path + "/" + std::to_string(rank); };
    // The first host has two members, of which the third, on the second host, has no load.
    EXPECT_EQ(testing::on_hosts_of_processes({2, 1},
                                             [&](CompositeGroup& group) {
                                               write_atomically(local_files(), path(group.rank()),
                                                                encode(member_of(&group, corrupt)));
                                             }),
              0);
    std::vector<Member> members;
    for (int rank = 0; rank < 3; ++rank) {
      members.push_back(decode<Member>(local_files().read(path(rank))));
    }
    corrupt ? expect_found(members) : expect_loop(members, alone);
  }
}

}  // namespace
}  // namespace lockstep
