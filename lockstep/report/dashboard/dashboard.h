// The dashboard: pages of runs in a browser, live while they train.
#pragma once

#include <memory>
#include <string>
#include <vector>

namespace lockstep {

class WebServer;

struct DashboardOptions {
  std::vector<std::string> folders;  // of runs, or with runs in them; see RunList
  int port = 0;                      // on 127.0.0.1; 0: any free one
  std::string store = {};            // the folder of the run store, for the numbers of runs
};

// Serves until destruction, in its own threads; the destructor waits for no client longer than a
// few seconds, for browsers not at all. Runs are only read, except that a user may request that a
// run stops (see stop_request.h) and write tags and a note (notes.json). Throws Error if the port
// is in use. Thread-safe.
class Dashboard {
 public:
  explicit Dashboard(DashboardOptions options);
  ~Dashboard();
  Dashboard(const Dashboard&) = delete;
  Dashboard& operator=(const Dashboard&) = delete;

  // The address of the first page, with the token that it needs. For the user alone.
  std::string address() const;

 private:
  struct State;
  std::unique_ptr<WebServer> server_;
};

}  // namespace lockstep
