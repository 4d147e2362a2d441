#include "lockstep/parallel/comm/connections.h"

#include <gloo/transport/address.h>
#include <gloo/transport/context.h>
#include <gloo/transport/device.h>

#include <algorithm>
#include <cstring>
#include <utility>
#include <vector>

#include "lockstep/base/error.h"

namespace lockstep {
namespace {

// Addresses as Gloo stores them consist of zeros for the most part. The longest row of zeros is
// left out: its offset, its length, and the other bytes.
Bytes without_zeros(const std::vector<char>& address) {
  size_t first = 0, count = 0;
  for (size_t at = 0, row = 0; at < address.size(); ++at) {
    row = address[at] == 0 ? row + 1 : 0;
    if (row > count) {
      count = row;
      first = at + 1 - row;
    }
  }
  const uint16_t head[2] = {static_cast<uint16_t>(first), static_cast<uint16_t>(count)};
  Bytes packed(sizeof head + address.size() - count);
  std::memcpy(packed.data(), head, sizeof head);
  std::memcpy(packed.data() + sizeof head, address.data(), first);
  std::copy(reinterpret_cast<const std::byte*>(address.data()) + first + count,
            reinterpret_cast<const std::byte*>(address.data()) + address.size(),
            packed.begin() + static_cast<std::ptrdiff_t>(sizeof head + first));
  return packed;
}

// Throws DataError unless the address has `bytes` bytes.
std::vector<char> with_zeros(const Bytes& packed, size_t bytes) {
  uint16_t head[2] = {};
  if (packed.size() >= sizeof head) std::memcpy(head, packed.data(), sizeof head);
  const size_t rest = packed.size() - std::min(packed.size(), sizeof head);
  if (packed.size() < sizeof head || rest + head[1] != bytes || head[0] > rest) {
    throw DataError("[group] a member sent an invalid address");
  }
  std::vector<char> address(bytes, 0);
  std::memcpy(address.data(), packed.data() + sizeof head, head[0]);
  std::memcpy(address.data() + head[0] + head[1], packed.data() + sizeof head + head[0],
              rest - head[0]);
  return address;
}

}  // namespace

void Connections::connect(const std::set<int>& neighbors, Rendezvous& rendezvous,
                          std::shared_ptr<gloo::transport::Device> device, const TimeLimit& limit) {
  device_ = std::move(device);
  transportContext_ = device_->createContext(rank, size);
  transportContext_->setTimeout(getTimeout());
  std::map<int, Bytes> own;
  size_t bytes = 0;
  for (const int r : neighbors) {
    const auto& connection = transportContext_->createPair(r);
    connections_.insert(connection.get());
    const std::vector<char> address = connection->address().bytes();
    bytes = address.size();
    own[r] = without_zeros(address);
  }
  const std::map<int, Bytes> theirs = rendezvous.exchange(own, limit);
  for (const int r : neighbors) {
    transportContext_->getPair(r)->connect(with_zeros(theirs.at(r), bytes));
  }
}

bool Connections::has(const gloo::transport::Pair* connection) const {
  return connections_.count(connection) > 0;
}

}  // namespace lockstep
