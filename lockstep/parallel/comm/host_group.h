// Groups of processes on several hosts: by TCP, through Gloo, which moves the bytes.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "lockstep/parallel/comm/group.h"
#include "lockstep/parallel/process/serialize.h"

namespace lockstep {

// Where members leave for each other where they listen. Thread-safe.
class MeetingPlace {
 public:
  virtual ~MeetingPlace() = default;
  virtual void set(const std::string& key, const Bytes& value) = 0;
  // Waits for the key. Throws Timeout.
  virtual Bytes get(const std::string& key, const TimeLimit& limit) = 0;
};

struct HostGroupOptions {
  int rank = 0, size = 1;
  // Of this host, where it listens: of the machine itself or of a private network. Gloo neither
  // encrypts nor authenticates.
  std::string address = "127.0.0.1";
  std::shared_ptr<MeetingPlace> place = {};
  // Of the group, the same for all: keeps members of others out, and whoever strays in. It is no
  // defence against malice; a private network is.
  int64_t generation = 0;
  std::string secret = {};
  std::vector<std::string> names = {};  // what errors call the members
};

// One member. A peer that dies is noticed at once (WorkerLost), one that stops at the limit.
class HostGroup final : public Group {
 public:
  // Connects with all others. Throws InvalidArgument for an address that is public or none, Timeout
  // naming nobody where they do not come, Error for a member that has not the secret.
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

// Whether an address (IPv4 or IPv6, as numbers) belongs to the machine itself or to a private
// network. Throws InvalidArgument for text that is no address.
bool is_private_address(const std::string& address);

}  // namespace lockstep
