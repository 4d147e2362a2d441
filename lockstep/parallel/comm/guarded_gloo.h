// Gloo's connections between hosts, made so that no bytes that come there end the process.
#pragma once

#include <gloo/transport/tcp/device.h>

#include <memory>

namespace lockstep {

// As gloo::transport::tcp::CreateDevice(), with a loop of ours in the device's thread: what Gloo
// throws there (EnforceNotMet, where a stranger's bytes come in place of a member's) closes the
// connection they came by, and those who wait for it do so until their limit. Gloo's own loop lets
// it end the process. Throws what Gloo throws.
std::shared_ptr<gloo::transport::Device> create_guarded_device(
    const gloo::transport::tcp::attr& attributes);

}  // namespace lockstep
