// The command lockstep: trains and uses networks.

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <memory>
#include <new>
#include <system_error>

#include "apps/lockstep/command.h"
#include "apps/lockstep/memory_reserve.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/threads/limited_thread.h"
#include "lockstep/cluster/runtime.h"

namespace lockstep::command {
namespace {

int status_of(int argc, char** argv) {
  try {
    const std::unique_ptr<Commands> commands = all_commands();
    return commands->parse(argc, argv)();
  } catch (const UsageError& error) {
    print_error(error.what(), error.hint());
    return exit_usage;
  } catch (const Error& error) {
    print_error(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    print_error(out_of_memory_text(), out_of_memory_hint());
  } catch (const std::system_error& error) {
    print_error("system error: " + error.code().message(),
                "limits of the shell: ulimit -u (processes), -v (memory), -n (open files)");
  } catch (const std::exception& error) {
    print_error(std::string("this is a bug in Lockstep: ") + error.what(), "");
  }
  return exit_failure;
}

}  // namespace
}  // namespace lockstep::command

int main(int argc, char** argv) {
  using namespace lockstep::command;
  keep_memory_reserve(exit_failure);
  const lockstep::Runtime runtime(argc, argv);
  show_device_tests_of_trainings();
  const int status = status_of(argc, argv);
  // A thread that still answers a dashboard's question may use what would be destroyed now.
  if (!lockstep::wait_for_left_threads(lockstep::TimeLimit(0))) {
    std::fflush(nullptr);
    std::_Exit(status);
  }
  return status;
}
