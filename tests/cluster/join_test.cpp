// Requests to join a job, and guests of the control channel.
#include "lockstep/cluster/remote/join.h"

#include <gtest/gtest.h>

#include <future>

#include "lockstep/base/error.h"
#include "lockstep/base/os/addresses.h"
#include "lockstep/parallel/messages/serialize.h"

namespace lockstep {
namespace {

TEST(Join, ProcessesThatCannotWorkTogetherAreToldWhy) {
  const JoinRequest same = JoinRequest::of_this_process(3, 4);
  EXPECT_EQ(difference_to_this(same, true), "");
  JoinRequest other = same;
  other.processor = "NoVendor family 6 model 207";
  EXPECT_NE(difference_to_this(other, true).find("NoVendor family 6 model 207, not "),
            std::string::npos);
  EXPECT_EQ(difference_to_this(other, false), "");
  other = same;
  other.build += "0";
  EXPECT_NE(difference_to_this(other, false).find("another build"), std::string::npos);
  other = same;
  ++other.version;
  EXPECT_NE(difference_to_this(other, false).find("another version"), std::string::npos);
}

TEST(Join, NamesOfProcessesHoldNoControlCharacters) {
  JoinRequest request = JoinRequest::of_this_process(0, 1);
  request.pid = 7;
  request.host = "n2\x1b[31m\n";
  EXPECT_EQ(request.name(), "process 7 on n2??31m?");
}

TEST(Join, KeysAreReadAsTheyWereWritten) {
  const JobKey key = JobKey::fresh();
  const JobKey read = JobKey::parse(key.text(), "a");
  EXPECT_EQ(read.text(), key.text());
  EXPECT_EQ(read.guest.secret_key, key.guest.secret_key);
  EXPECT_NE(JobKey::fresh().guest.secret_key, key.guest.secret_key);
  const std::string text = key.text();
  for (size_t bytes = 0; bytes + 1 < text.size(); ++bytes) {
    try {
      JobKey::parse(text.substr(0, bytes), "a");
      // Only the last line's end may be missing.
      EXPECT_EQ(text.substr(bytes), "\n") << bytes;
    } catch (const DataError&) {
    }
  }
}

TEST(Join, PortsAreThoseOfTheVariable) {
  setenv("LOCKSTEP_PORTS", "20000-20100", 1);
  EXPECT_EQ(ports_to_use().first, 20000);
  EXPECT_EQ(ports_to_use().last, 20100);
  setenv("LOCKSTEP_PORTS", "20000", 1);
  EXPECT_EQ(ports_to_use().last, 20000);
  for (const char* wrong : {"x", "0", "1-", "2-1", "70000", "1-70000", "1-2-3", " 1"}) {
    setenv("LOCKSTEP_PORTS", wrong, 1);
    EXPECT_THROW(ports_to_use(), InvalidArgument) << wrong;
  }
  unsetenv("LOCKSTEP_PORTS");
  EXPECT_EQ(ports_to_use().first, 0);
}

// The message of the guest that asks with this ticket; it gets the answer.
ChannelServer::Message answered(ChannelServer& server, const ChannelTicket& ticket,
                                const Bytes& question, const Bytes& answer) {
  auto asked =
      std::async(std::launch::async, [&] { return ask_as_guest(ticket, question, TimeLimit(30)); });
  std::optional<ChannelServer::Message> message;
  for (const TimeLimit limit(30); !message && !limit.reached();) {
    server.wait(limit, {});
    message = server.receive();
  }
  if (!message) throw Timeout("[test] no question");
  EXPECT_TRUE(server.answer(message->guest, answer));
  EXPECT_EQ(asked.get(), answer);
  return *message;
}

TEST(Join, GuestsAskAndAreAnsweredUntilTheirKeyIsDismissed) {
  ChannelServer server({.endpoint = "tcp://127.0.0.1:*"});
  const ChannelTicket five = server.admit_guests(5, ChannelKeys::fresh());
  const ChannelTicket six = server.admit_guests(6, ChannelKeys::fresh());
  for (int times = 0; times < 2; ++times) {  // any number of guests may have one key
    const auto message = answered(server, five, encode(1), encode(2));
    EXPECT_EQ(message.worker, 0u);
    EXPECT_EQ(message.key, 5u);
    EXPECT_EQ(message.content, encode(1));
  }
  EXPECT_EQ(answered(server, six, encode(1), encode(2)).key, 6u);
  server.dismiss_guests(5);
  EXPECT_THROW(ask_as_guest(five, encode(1), TimeLimit(30)), InvalidArgument);
  // The right server, but a key that it never had; and another server's key.
  ChannelTicket foreign = six;
  const ChannelKeys keys = ChannelKeys::fresh();
  foreign.public_key = keys.public_key;
  foreign.secret_key = keys.secret_key;
  EXPECT_THROW(ask_as_guest(foreign, encode(1), TimeLimit(30)), InvalidArgument);
  ChannelTicket wrong = six;
  wrong.server_key = keys.public_key;
  EXPECT_THROW(ask_as_guest(wrong, encode(1), TimeLimit(30)), InvalidArgument);
  EXPECT_FALSE(server.receive());
}

// A guest is not a worker: with its key it cannot speak as one.
TEST(Join, AGuestCannotSpeakAsAWorker) {
  ChannelServer server({.endpoint = "tcp://127.0.0.1:*"});
  server.admit(7);
  ChannelTicket ticket = server.admit_guests(7, ChannelKeys::fresh());
  ticket.worker = 7;
  ChannelClient client(ticket, -1, [] {});
  client.send(encode(1));
  for (const TimeLimit limit(1); !limit.reached();) {
    server.wait(limit, {});
    EXPECT_FALSE(server.receive());
  }
}

}  // namespace
}  // namespace lockstep
