#include "lockstep/parallel/process/host_support.h"

#include "lockstep/base/error.h"

namespace lockstep::detail {
namespace {

const HostSupport* support_of_program = nullptr;

}  // namespace

void set_host_support(const HostSupport* support) { support_of_program = support; }

const HostSupport& host_support() {
  if (support_of_program == nullptr) {
    throw InvalidArgument("[pool] this program cannot have workers on other hosts",
                          "begin main() with: lockstep::Runtime runtime(argc, argv);");
  }
  return *support_of_program;
}

}  // namespace lockstep::detail
