// Groups of hosts: lost, stopped and unreachable members, and strangers.
#include "lockstep/parallel/comm/host_group.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <signal.h>
#include <sys/socket.h>

#include <array>
#include <cstdio>
#include <cstring>

#include "lockstep/base/error.h"
#include "lockstep/base/os/descriptor.h"
#include "tests/parallel/groups.h"

namespace lockstep {
namespace {

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

}  // namespace
}  // namespace lockstep
