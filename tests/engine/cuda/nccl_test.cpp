// The CUDA back end's groups of GPUs, with a stand-in for NCCL.
#include "lockstep/engine/kernels/cuda/nccl.h"

#include <dlfcn.h>
#include <gtest/gtest.h>

#include <atomic>
#include <functional>
#include <numeric>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/base/error.h"
#include "tests/engine/cuda/emulation.h"

namespace lockstep::kernels::cuda {
namespace {

using Progress = DeviceGroup::Progress;

// Runs before any code looks up NCCL by name.
void* stand_in() {
  static void* const library = dlopen(LOCKSTEP_STAND_IN_NCCL, RTLD_NOW | RTLD_LOCAL);
  return library;
}

template <class F>
F* function(const char* name) {
  return reinterpret_cast<F*>(dlsym(stand_in(), name));
}

// The progress calls of each member, by rank.
std::vector<std::string> together(int size, const std::function<void(DeviceGroup&, int)>& body) {
  const auto groups = nccl_groups(0);
  const std::string key = groups->make_key();
  std::vector<std::string> errors(static_cast<size_t>(size));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < size; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        const auto group = groups->join(key, rank, size);
        while (group->progress(nullptr) == Progress::pending) std::this_thread::yield();
        body(*group, rank);
      } catch (const Error& e) {
        errors[static_cast<size_t>(rank)] = e.what();
      }
    });
  }
  for (auto& thread : threads) thread.join();
  EXPECT_EQ(function<int()>("stand_in_nccl_groups")(), 0) << "a group was not ended";
  return errors;
}

std::vector<int> message(int from, int to, int number) {
  std::vector<int> all(static_cast<size_t>(10 * from + to + number + 1));
  std::iota(all.begin(), all.end(), 1000 * from + 100 * to + 10 * number);
  return all;
}

}  // namespace
}  // namespace lockstep::kernels::cuda

bool stream_is_busy(cudaStream_t stream) {
  using lockstep::kernels::cuda::function;
  return function<bool(void*)>("stand_in_nccl_busy")(stream);
}

namespace lockstep::kernels::cuda {
namespace {

class Nccl : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_NE(stand_in(), nullptr) << dlerror();
    ASSERT_NE(nccl_groups(0), nullptr);
  }
};

TEST_F(Nccl, MovesBytesBetweenAll) {
  constexpr int kSize = 3, kEach = 2;
  std::atomic<int> waiting = 0;
  const auto errors = together(kSize, [&](DeviceGroup& group, int rank) {
    int stream = 0;  // its address represents the stream
    std::vector<std::vector<int>> out, in;
    std::vector<DeviceTransfer> sends, receives;
    for (int peer = 0; peer < kSize; ++peer) {
      for (int n = 0; n < kEach && peer != rank; ++n) {
        out.push_back(message(rank, peer, n));
        sends.push_back({peer, nullptr, out.back().size() * sizeof(int)});
        in.emplace_back(message(peer, rank, n).size());
        receives.push_back({peer, nullptr, in.back().size() * sizeof(int)});
      }
    }
    for (size_t i = 0; i < sends.size(); ++i) {
      sends[i].data = out[i].data();
      receives[i].data = in[i].data();
    }
    while (rank == 0 && waiting < kSize - 1) std::this_thread::yield();
    group.exchange(sends, receives, &stream);
    EXPECT_EQ(group.progress(&stream), Progress::pending);
    if (rank != 0) {
      EXPECT_EQ(group.progress(&stream),
                Progress::queued);  // the first member has sent nothing yet
      EXPECT_EQ(cudaGetLastError(), cudaSuccess);
      ++waiting;
    }
    while (group.progress(&stream) != Progress::done) std::this_thread::yield();
    size_t i = 0;
    for (int peer = 0; peer < kSize; ++peer) {
      for (int n = 0; n < kEach && peer != rank; ++n) EXPECT_EQ(in[i++], message(peer, rank, n));
    }
  });
  EXPECT_EQ(errors, std::vector<std::string>(kSize));
}

TEST_F(Nccl, FailuresAreErrors) {
  const auto fail = function<void(int)>("stand_in_nccl_fail");
  const auto errors = together(2, [&](DeviceGroup& group, int rank) {
    int stream = 0, value = 0;
    const DeviceTransfer other{1 - rank, &value, sizeof value};
    group.exchange({}, {&other, 1}, &stream);
    if (rank == 1) return;  // it has sent nothing
    while (group.progress(&stream) == Progress::pending) std::this_thread::yield();
    EXPECT_EQ(group.progress(&stream), Progress::queued);
    fail(0);
    EXPECT_THROW(group.progress(&stream), Error);
    fail(-1);
    group.abort();
    group.exchange({}, {&other, 1}, &stream);
  });
  EXPECT_EQ(errors, (std::vector<std::string>{"[nccl] this group of GPUs has ended", ""}));
}

// Like NCCL, the stand-in does not wait.
TEST_F(Nccl, NoRequestIsMadeBeforeNcclIsReady) {
  const auto errors = together(2, [](DeviceGroup& group, int rank) {
    int stream = 0, out = rank, in = 0;
    const DeviceTransfer send{1 - rank, &out, sizeof out}, receive{1 - rank, &in, sizeof in};
    group.exchange({&send, 1}, {&receive, 1}, &stream);
    EXPECT_THROW(group.exchange({&send, 1}, {}, &stream), Error);
  });
  EXPECT_EQ(errors, std::vector<std::string>(2));
}

TEST_F(Nccl, RefusalsAreReported) {
  const auto errors = together(2, [](DeviceGroup& group, int rank) {
    int stream = 0, value = 0;
    const DeviceTransfer itself{rank, &value, sizeof value};
    group.exchange({&itself, 1}, {}, &stream);
  });
  const std::string said = "[nccl] an exchange between GPUs: invalid usage (said by the stand-in)";
  EXPECT_EQ(errors, (std::vector<std::string>{said, said}));
  EXPECT_THROW(nccl_groups(0)->join("short", 0, 2), InvalidArgument);
}

// together() checks that no communicator is left.
TEST_F(Nccl, AGroupThatCannotBeJoinedIsEnded) {
  const auto fail = function<void(int)>("stand_in_nccl_fail");
  fail(0);
  const auto errors = together(1, [](DeviceGroup&, int) { FAIL() << "it has joined"; });
  fail(-1);
  EXPECT_EQ(errors, std::vector<std::string>{"[nccl] joining a group of GPUs: remote process "
                                             "exited (said by the stand-in)"});
}

TEST_F(Nccl, DevicesHaveNames) { EXPECT_EQ(nccl_groups(3)->identity(), "0123456789abcde3"); }

}  // namespace
}  // namespace lockstep::kernels::cuda
