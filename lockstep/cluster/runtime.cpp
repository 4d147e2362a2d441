#include "lockstep/cluster/runtime.h"

#include <fcntl.h>
#include <signal.h>
#include <unistd.h>

#include <cstring>

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/base/threads/limited_thread.h"
#include "lockstep/cluster/pool_hosts.h"
#include "lockstep/cluster/remote/agent_process.h"
#include "lockstep/cluster/start_mode.h"
#include "lockstep/parallel/process/device_test.h"
#include "lockstep/parallel/process/host_support.h"
#include "lockstep/parallel/process/resources.h"
#include "lockstep/parallel/process/worker_context.h"
#include "lockstep/parallel/process/worker_start.h"

namespace lockstep {
namespace {

constexpr double kEndSeconds = 5;

// Without this a program that is started with closed descriptors (`>&-`, some daemons) would have a
// file of its own as standard output, and write its messages there.
void open_standard_descriptors() {
  int opened = 0;
  do {
    opened = open("/dev/null", O_RDWR);
    if (opened < 0) opened = open("/", O_RDONLY);  // a root folder without devices
  } while (opened >= 0 && opened <= STDERR_FILENO);
  if (opened >= 0) close(opened);
}

}  // namespace

Runtime::Runtime(int argc, char** argv) {
  open_standard_descriptors();
  begin_ordinary_arithmetic();
  set_has_runtime();
  detail::set_host_support(&pool_hosts());
  // With SIGXFSZ ignored, a write beyond the file size limit fails with an error, as on a full
  // disk.
  signal(SIGXFSZ, SIG_IGN);
  raise_descriptor_limit();
  test_devices_at_first_use();
  if (argc > 1 && std::strcmp(argv[1], device_test_argument) == 0) run_as_device_test(argc, argv);
  if (argc > 1 && std::strcmp(argv[1], worker_argument) == 0) run_as_worker();
  if (argc > 1 && std::strcmp(argv[1], host_argument) == 0) run_as_started_host(argc - 2, argv + 2);
  if (argc > 1) {
    if (const StartMode run = find_start_mode(argv[1])) run(argc, argv);
  }
}

Runtime::~Runtime() { wait_for_left_threads(TimeLimit(kEndSeconds)); }

bool Runtime::present() { return has_runtime(); }

}  // namespace lockstep
