// Streams of events to browsers that read slowly or not at all.
#include "lockstep/report/dashboard/event_streams.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "lockstep/base/time_limit.h"
#include "tests/report/support.h"

namespace lockstep {
namespace {

using testing::within;

struct Browser {
  Browser() {
    int ends[2];
    EXPECT_EQ(::socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, ends), 0);
    here = Descriptor(ends[0]);
    server = Descriptor(ends[1]);
  }
  // What comes until the end, or until `most` bytes have come; "(open)" at the end after a minute.
  std::string read(size_t most = SIZE_MAX) const {
    std::string text;
    char chunk[65536];
    const TimeLimit limit(60);
    while (text.size() < most) {
      pollfd one{here.get(), POLLIN, 0};
      if (::poll(&one, 1, limit.milliseconds_left()) != 1) return text + "(open)";
      const ssize_t got = ::recv(here.get(), chunk, sizeof chunk, 0);
      if (got <= 0) break;
      text.append(chunk, static_cast<size_t>(got));
    }
    return text;
  }
  Descriptor here, server;
};

TEST(EventStreams, LargeEventsComeWhole) {
  std::string event(size_t{20} << 20, 'x');
  for (size_t i = 0; i < event.size(); i += 1000) event[i] = static_cast<char>('a' + i / 1000 % 26);
  EventStreams streams(
      1, [] {}, 4);
  Browser browser;
  const auto sent = std::make_shared<bool>(false);
  streams.add(std::move(browser.server),
              [sent, event] { return std::exchange(*sent, true) ? std::string() : event; });
  EXPECT_EQ(browser.read(event.size()).substr(0, event.size()), event);
}

TEST(EventStreams, ABrowserThatReadsNothingLosesItsStream) {
  EventStreams streams(
      5, [] {}, 4, 0.3);
  const auto large = [] { return std::string(size_t{4} << 20, 'x'); };
  Browser silent, idle, slow;
  streams.add(std::move(silent.server), large);
  streams.add(std::move(idle.server), [] { return std::string(); });
  streams.add(std::move(slow.server), large);
  // The slow one is never silent, but would need 12 s, four times as long as ten patiences.
  std::atomic<bool> ended = false;
  std::thread reader([&] {
    char chunk[16384];
    while (!ended && ::recv(slow.here.get(), chunk, sizeof chunk, 0) > 0) {
      std::this_thread::sleep_for(std::chrono::milliseconds(50));
    }
  });
  EXPECT_TRUE(within(60, [&] { return streams.size() == 1; }));
  ended = true;
  ::shutdown(slow.here.get(), SHUT_RDWR);
  reader.join();
  EXPECT_FALSE(silent.read().ends_with("(open)"));
}

// 48 browsers that read nothing must not take the memory of a training.
TEST(EventStreams, WhatIsPendingIsBounded) {
  std::atomic<int> asked = 0, looks = 0;
  EventStreams streams(
      5, [&] { ++looks; }, 16, 1000);
  std::vector<std::unique_ptr<Browser>> browsers;
  for (int i = 0; i < 12; ++i) {
    browsers.push_back(std::make_unique<Browser>());
    // Once each: a browser that has read its event and reads no more would be asked again, and four
    // of them would take the turns of the others.
    streams.add(std::move(browsers.back()->server), [&asked, had = false]() mutable {
      if (std::exchange(had, true)) return std::string();
      ++asked;
      return std::string(size_t{20} << 20, 'x');
    });
  }
  EXPECT_TRUE(within(60, [&] { return looks > 50; }));
  EXPECT_GE(asked, 1);
  EXPECT_LE(asked, 4);  // of 20 MiB each
  // All have their turn as soon as they read.
  std::vector<std::thread> readers;
  std::atomic<int> whole = 0;
  for (const auto& browser : browsers) {
    readers.emplace_back([&] {
      const std::string text = browser->read(size_t{20} << 20);
      whole += static_cast<size_t>(std::count(text.begin(), text.end(), 'x')) == size_t{20} << 20;
    });
  }
  for (std::thread& reader : readers) reader.join();
  EXPECT_EQ(whole, 12);
  streams.end();
}

}  // namespace
}  // namespace lockstep
