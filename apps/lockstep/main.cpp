// The command lockstep: trains and uses networks.

#include <exception>
#include <memory>
#include <new>
#include <system_error>

#include "apps/lockstep/command.h"
#include "apps/lockstep/memory_reserve.h"
#include "lockstep/base/error.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/parallel/runtime.h"

int main(int argc, char** argv) {
  using namespace lockstep::command;
  keep_memory_reserve(exit_failure);
  const lockstep::Runtime runtime(argc, argv);
  show_device_tests_of_trainings();
  try {
    const std::unique_ptr<Commands> commands = all_commands();
    return commands->parse(argc, argv)();
  } catch (const UsageError& error) {
    print_error(error.what(), error.hint());
    return exit_usage;
  } catch (const lockstep::Error& error) {
    print_error(error.what(), error.hint());
  } catch (const std::bad_alloc&) {
    print_error(lockstep::out_of_memory_text(), lockstep::out_of_memory_hint());
  } catch (const std::system_error& error) {
    print_error("system error: " + error.code().message(),
                "limits of the shell: ulimit -u (processes), -v (memory), -n (open files)");
  } catch (const std::exception& error) {
    print_error(std::string("this is a bug in Lockstep: ") + error.what(), "");
  }
  return exit_failure;
}
