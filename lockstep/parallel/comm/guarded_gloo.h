// Gloo's TCP connections between hosts, guarded so that no received bytes can end the process.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <memory>

namespace lockstep {

// Like gloo::transport::tcp::CreateDevice(), but with our own event loop in the device's thread.
// Gloo throws EnforceNotMet when it receives a stranger's bytes instead of a member's, and its own
// loop then lets the exception end the process. Our loop closes the connection; members that wait
// for it wait until their limit. Throws what Gloo throws.
std::shared_ptr<gloo::transport::Device> create_guarded_device(
    const gloo::transport::tcp::attr& attributes);

}  // namespace lockstep
