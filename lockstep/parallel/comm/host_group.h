// Groups of processes on several hosts. Gloo moves the bytes, over TCP.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "lockstep/base/bytes.h"
#include "lockstep/parallel/comm/group.h"

namespace lockstep {

// The rendezvous at which members exchange the addresses of their sockets. Thread-safe.
class Rendezvous {
 public:
  virtual ~Rendezvous() = default;
  // Gives `own` entries, by the rank of the member that each one is for. Returns the entries that
  // these members give for this one, by their ranks. Throws Timeout.
  virtual std::map<int, Bytes> exchange(const std::map<int, Bytes>& own,
                                        const TimeLimit& limit) = 0;
};

struct HostGroupOptions {
  int rank = 0, size = 1;
  // The address on which this host listens: loopback, or of a private network. Gloo neither
  // encrypts nor authenticates.
  std::string address = "127.0.0.1";
  std::shared_ptr<Rendezvous> rendezvous = {};
  // The group's number and secret (such as random_hex(8)), equal in all members. They keep out
  // members of other groups and accidental connections. They are not a defense against attackers; a
  // private network is.
  int64_t generation = 0;
  std::string secret = {};
  std::vector<std::string> names = {};  // member names for error messages
  // Up to this size every member is connected to every other one. A larger group moves its bytes in
  // two steps, and a member has about 4 sqrt(size) connections. Equal in all members.
  int most_direct = 64;
};

// One member. The death of a peer is detected at once (WorkerLost), a stopped peer at the limit. In
// a group of two steps only the connected members detect a death; others wait for abort() or their
// limit. So do all if the peer dies in the middle of a message, which Gloo may not report.
class HostGroup final : public Group {
 public:
  // Connects to other members. Throws InvalidArgument for a public or invalid address, Timeout
  // (without names) if members are missing, Error for a member without the secret.
  HostGroup(const HostGroupOptions& options, const TimeLimit& limit);
  ~HostGroup() override;

  int rank() const override;
  int size() const override;
  void barrier(const TimeLimit& limit) override;
  void abort() override;
  bool ended() const override;
  std::string history() const override;

 private:
  void gather(std::span<const std::byte> mine, std::span<const size_t> counts,
              std::span<std::byte> all, const TimeLimit& limit) override;
  void exchange(std::span<const std::byte> mine, std::span<const size_t> to,
                std::span<std::byte> all, std::span<const size_t> from,
                const TimeLimit& limit) override;
  void send_from(std::span<std::byte> data, int root, const TimeLimit& limit) override;

  struct State;
  std::unique_ptr<State> state_;
};

// Whether an address (IPv4 or IPv6, numeric) is a loopback address or belongs to a private network.
// Throws InvalidArgument for text that is not an address.
bool is_private_address(const std::string& address);

}  // namespace lockstep
