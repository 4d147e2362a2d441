// Gloo's TCP connections between hosts, guarded so that no received bytes can end the process.
#pragma once

#include <gloo/transport/pair.h>
#include <gloo/transport/tcp/device.h>

#include <functional>
#include <memory>

namespace lockstep {

// Like gloo::transport::tcp::CreateDevice(), but with our own event loop in the device's thread.
// Gloo throws EnforceNotMet when it receives a stranger's bytes instead of a member's, and its own
// loop then lets the exception end the process. It also throws when it cannot send to a member that
// has ended. Our loop closes the connection and tells ConnectionFailures; threads that wait for the
// connection would wait until their limit. Throws what Gloo throws.
std::shared_ptr<gloo::transport::Device> create_guarded_device(
    const gloo::transport::tcp::attr& attributes);

// While it exists: calls `failed` when a connection of any device of this process was closed
// because of an exception, in the device's thread.
class ConnectionFailures {
 public:
  using Failed = std::function<void(const gloo::transport::Pair* connection)>;
  explicit ConnectionFailures(Failed failed);
  ~ConnectionFailures();
  ConnectionFailures(const ConnectionFailures&) = delete;
  ConnectionFailures& operator=(const ConnectionFailures&) = delete;

 private:
  const Failed failed_;
};

}  // namespace lockstep
