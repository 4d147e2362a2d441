// Exchanges between nodes, as a training does them: processes that join this one, and groups over
// TCP between them. For `lockstep cluster validate`.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

namespace lockstep::command {

struct NodeExchangeOptions {
  std::vector<std::string> nodes = {};
  std::string launch = {};   // command that runs a program on {host}
  std::string address = {};  // of this machine for the nodes, or an interface; "": by route
  std::vector<std::pair<std::string, std::string>> environment = {};  // of the processes there
  double limit = 60;                                                  // seconds for each call below
  std::function<bool()> stop_wanted = {};                             // ends a call early
};

// What two nodes measured.
struct NodePair {
  std::string first, second;
  double latency = 0;    // seconds to exchange 8 bytes
  double bandwidth = 0;  // bytes per second in each direction, both at once
};

// A process on each node, as long as this object exists. Each function names the node that fails.
// Throws Timeout at the limit, Cancelled if a stop is wanted. One thread at a time.
class NodeExchange {
 public:
  explicit NodeExchange(const NodeExchangeOptions& options);
  ~NodeExchange();

  // Waits until all have joined. Returns "10.0.0.2, 10.0.0.3": the addresses of the nodes.
  std::string wait_for_all();
  // Has each two nodes connect. Pairs without a common node do so at once. Returns the number of
  // pairs.
  int64_t connect_pairs();
  // All nodes together: each sends known bytes to all, which compare them. Returns the number of
  // bytes that each received.
  int64_t exchange();
  // Measures latency and bandwidth of each two nodes.
  std::vector<NodePair> measure_pairs();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace lockstep::command
