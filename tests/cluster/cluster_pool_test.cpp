// A pool on the nodes of a cluster. tests/apps/slurm_hosts_test.py runs these tests on a real
// Slurm, with the name of a profile in LOCKSTEP_TEST_CLUSTER.
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <numeric>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/parallel/pool/data_queue.h"
#include "lockstep/parallel/pool/loops.h"
#include "lockstep/parallel/pool/pool.h"
#include "lockstep/parallel/pool/spmd.h"
#include "lockstep/parallel/pool/task_context.h"

namespace lockstep {
namespace {

std::string cluster_to_test() {
  const char* const name = std::getenv("LOCKSTEP_TEST_CLUSTER");
  return name ? name : "";
}

std::string first_line(std::string path) {
  std::ifstream file(path);
  std::string line;
  std::getline(file, line);
  return line;
}

TEST(ClusterPool, WorksAsOneMachine) {
  if (cluster_to_test().empty()) GTEST_SKIP() << "for a real cluster";
  const std::string words = ::testing::TempDir() + "/words-of-the-pool.txt";
  std::ofstream(words) << "alpha\nbeta\n";
  Pool pool({.cluster = cluster_to_test()});
  ASSERT_EQ(pool.size(), 4);
  // Futures, in whatever order they come.
  std::vector<Future<int>> futures;
  for (int i = 0; i < 40; ++i) futures.push_back(pool.submit([](int n) { return n * n; }, i));
  for (int i = 0; i < 40; ++i) EXPECT_EQ(futures[static_cast<size_t>(i)].get(), i * i);
  std::set<std::string> jobs;
  for (auto& job : pool.submit_on_all([] {
         const char* const id = std::getenv("SLURM_ARRAY_TASK_ID");
         return std::string(id ? id : "");
       })) {
    jobs.insert(job.get());
  }
  EXPECT_EQ(jobs, (std::set<std::string>{"0", "1"}));
  // Loops.
  const auto cubes = parallel_map(pool, 50, [](int64_t i) { return i * i * i; });
  for (int64_t i = 0; i < 50; ++i) EXPECT_EQ(cubes[static_cast<size_t>(i)], i * i * i);
  // Blocks.
  const auto sums = spmd(pool, [](Spmd& block) {
    const int next = (block.index() + 1) % block.size();
    const int before = (block.index() + block.size() - 1) % block.size();
    return 100 * block.plus(block.index() + 1) + block.send_receive(next, block.index(), before);
  });
  EXPECT_EQ(sums, (std::vector<int>{1003, 1000, 1001, 1002}));
  // A queue.
  PollableDataQueue<int> queue(pool);
  const auto sender = queue.sender();
  for (auto& done :
       pool.submit_on_all([](QueueSender<int> to) { to.send(task_worker()); }, sender)) {
    done.get();
  }
  int total = 0;
  for (int i = 0; i < 4; ++i) total += queue.poll(10).value();
  EXPECT_EQ(total, 6);
  // A file: a copy of it.
  pool.attach_file(words);
  for (auto& line : pool.submit_on_all([] {
         const std::string path = attached_file("words-of-the-pool.txt");
         return first_line(path) + " " + path;
       })) {
    const std::string got = line.get();
    EXPECT_EQ(got.substr(0, 6), "alpha ");
    EXPECT_EQ(got.find(words), std::string::npos) << got;
  }
  EXPECT_THROW(pool.resize(2), InvalidArgument);
  // A worker that ends is replaced, and what a task throws comes back.
  EXPECT_THROW(pool.submit_to(3, [] { std::abort(); }).get(), Error);
  EXPECT_EQ(pool.submit_to(3, [] { return 5; }).get(), 5);
  EXPECT_THROW(pool.submit_to(2, [] { throw DataError("[task] no"); }).get(), DataError);
}

TEST(ClusterPool, WhatDoesNotFitIsRefused) {
  EXPECT_THROW(Pool({.cluster = "there-is-no-such-profile"}), InvalidArgument);
  PoolOptions options;
  options.workers = 3;
  options.cluster = "lab";
  EXPECT_THROW(Pool{options}, InvalidArgument);
}

}  // namespace
}  // namespace lockstep
