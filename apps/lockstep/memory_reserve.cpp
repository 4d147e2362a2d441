#include "apps/lockstep/memory_reserve.h"

#include <unistd.h>

#include <atomic>
#include <cstdlib>
#include <exception>
#include <new>
#include <string_view>

namespace lockstep::command {
namespace {

// The first is for code that goes on, the second for the way out.
constexpr size_t kReserves[] = {size_t{2} << 20, size_t{6} << 20};
std::atomic<void*> reserves[2];
int exit_code_at_end = 1;

bool release(std::atomic<void*>& reserve) {
  void* const memory = reserve.exchange(nullptr);
  std::free(memory);
  return memory != nullptr;
}

// Returns if the allocation is to be tried again.
void release_reserve() {
  if (release(reserves[0])) return;
  // During an exception another one would end the process.
  if (release(reserves[1]) && std::uncaught_exceptions() > 0) return;
  throw std::bad_alloc();
}

std::terminate_handler former_terminate = nullptr;

void end_with_message() {
  try {
    if (const std::exception_ptr present = std::current_exception()) {
      std::rethrow_exception(present);
    }
  } catch (const std::bad_alloc&) {
    constexpr std::string_view text =
        "error: there is not enough memory\nhint: limits of the shell: ulimit -v, ulimit -d\n";
    [[maybe_unused]] const auto written = ::write(STDERR_FILENO, text.data(), text.size());
    ::_exit(exit_code_at_end);
  } catch (...) {
  }
  former_terminate();  // with the usual message
  std::abort();
}

}  // namespace

void keep_memory_reserve(int exit_code) {
  exit_code_at_end = exit_code;
  for (size_t i = 0; i < 2; ++i) reserves[i] = std::malloc(kReserves[i]);
  std::set_new_handler(release_reserve);
  former_terminate = std::set_terminate(end_with_message);
}

}  // namespace lockstep::command
