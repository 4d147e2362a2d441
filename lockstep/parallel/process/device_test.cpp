#include "lockstep/parallel/process/device_test.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <thread>

#include "lockstep/base/error.h"
#include "lockstep/base/os/file.h"
#include "lockstep/base/os/file_lock.h"
#include "lockstep/base/threads/mutex.h"
#include "lockstep/engine/kernels/self_test/self_test.h"
#include "lockstep/parallel/process/child_process.h"

namespace lockstep {
namespace {

using kernels::SelfTestCase;
using kernels::SelfTestResult;
using kernels::TestState;
using kernels::Verdict;

constexpr int kResults = 3;  // the child's descriptor for its results
// Exit status of a child whose device has become unusable, and of one that could not begin.
constexpr int kPoisoned = 4, kNoBegin = 5;
// Seconds that a child keeps free before its parent would end it.
constexpr double kReserve = 3;

std::string one_line(std::string text) {
  for (char& c : text) {
    if (static_cast<unsigned char>(c) < ' ') c = ' ';
  }
  return text;
}

// Lines of the child: "b NUMBER" begins a case, "e NUMBER STATE SEEN" ends it, "n REASON": the
// device cannot begin, "." all has run.
void send_line(const std::string& line) {
  const std::string all = one_line(line) + "\n";
  for (size_t done = 0; done < all.size();) {
    const ssize_t n = write(kResults, all.data() + done, all.size() - done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) std::_Exit(1);  // the parent has ended
    done += static_cast<size_t>(n);
  }
}

std::vector<std::string> split(const std::string& text, char at) {
  std::vector<std::string> parts;
  for (size_t begin = 0; begin < text.size();) {
    const size_t end = std::min(text.find(at, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& p : parts) text += (text.empty() ? "" : ",") + p;
  return text;
}

// What the parent knows about a child.
struct Child {
  bool complete = false;
  std::string no_begin;
  size_t current = SIZE_MAX;  // case under way
  bool hung = false;          // silent for too long
  bool late = false;          // ended because the time for everything was over
  std::string how;
};

struct Session {
  Device device;
  const DeviceTestOptions& options;
  const std::vector<SelfTestCase>& cases;
  const TimeLimit limit;
  std::vector<SelfTestResult> results = {};
  std::vector<std::string> skip = {};
  size_t next = 0;

  void take(const std::string& line, Child& child) {
    if (line == ".") {
      child.complete = true;
    } else if (line.starts_with("n ")) {
      child.no_begin = line.substr(2);
    } else if (line.starts_with("b ")) {
      child.current = std::strtoul(line.c_str() + 2, nullptr, 10);
    } else if (line.starts_with("e ")) {
      char* rest = nullptr;
      const size_t number = std::strtoul(line.c_str() + 2, &rest, 10);
      const long state = std::strtol(rest, &rest, 10);
      if (number >= cases.size() || state < 0 || state > 2) return;
      results.push_back(
          {number, static_cast<TestState>(state), *rest == ' ' ? std::string(rest + 1) : ""});
      next = number + 1;
      child.current = SIZE_MAX;
      show();
    }
  }

  void show() const {
    if (options.progress) options.progress({device, next, cases.size(), false});
  }

  Child run_child() {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0)
      throw Error(std::string("[self-test] cannot create a pipe for the child process: ") +
                  std::strerror(errno));
    const Descriptor from(ends[0]);
    Descriptor to(ends[1]);
    const double seconds = std::max(0.5, limit.left() - kReserve);
    ChildProcess process(
        {.arguments = {device_test_argument, to_string(device), std::to_string(seconds),
                       std::to_string(next), options.large ? "1" : "0", joined(skip),
                       joined(options.only)},
         .descriptors = {to.get()}});
    to = Descriptor();
    Child child;
    std::string text;
    // The start of the libraries takes longer than a case.
    TimeLimit quiet(2 * options.patience);
    for (bool open = true; open;) {
      pollfd watched{from.get(), POLLIN, 0};
      const double wait = std::min(quiet.left(), limit.left());
      if (wait <= 0) {
        child.hung = quiet.reached();
        child.late = !child.hung;
        process.kill();
        break;
      }
      const int ready = poll(&watched, 1, static_cast<int>(wait * 1000) + 1);
      if (ready <= 0) continue;
      char bytes[4096];
      const ssize_t n = read(from.get(), bytes, sizeof bytes);
      if (n < 0 && errno == EINTR) continue;
      open = n > 0;
      if (!open) break;
      quiet = TimeLimit(options.patience);
      text.append(bytes, static_cast<size_t>(n));
      for (size_t end; (end = text.find('\n')) != text.npos; text.erase(0, end + 1)) {
        take(text.substr(0, end), child);
      }
    }
    if (!process.wait(TimeLimit(10))) {
      process.kill();
      process.wait(TimeLimit(5));
    }
    child.how = process.how();
    return child;
  }

  // Runs children until all cases have run. Returns why the device was not tested, or "".
  std::string run() {
    int no_progress = 0;
    while (next < cases.size() && !limit.reached()) {
      const size_t before = results.size();
      const Child child = run_child();
      if (child.complete || child.late) break;
      if (!child.no_begin.empty()) return child.no_begin;
      if (child.current < cases.size()) {
        const SelfTestCase& at = cases[child.current];
        results.push_back(
            {child.current, TestState::failed,
             at.what + ": the process " + (child.hung ? "hung and was ended" : child.how)});
        skip.push_back(at.kernel + " " + at.type);
        next = child.current + 1;
      } else if (results.size() > before && results.back().state == TestState::failed) {
        // The failure has left the device unusable; more cases of the kernel would do so again.
        const SelfTestCase& at = cases[results.back().number];
        skip.push_back(at.kernel + " " + at.type);
      } else if (child.hung && results.empty()) {
        return "the device did not begin within " +
               std::to_string(static_cast<int>(2 * options.patience)) + " s";
      }
      if (results.size() == before && ++no_progress > 2) {
        return "the child process " + child.how + " before a case";
      }
    }
    return results.empty() ? "the time was over before a case had ended" : "";
  }
};

std::vector<SelfTestCase> cases_of(Device device) {
  // Without the device's memory: a GPU may admit only one process at a time, and the child is it.
  return kernels::self_test_cases(kernels::untested_table(device));
}

struct Shown {
  Mutex mutex;
  std::function<void(const DeviceTestProgress&)> show LOCKSTEP_GUARDED_BY(mutex);
};
Shown& shown() {
  static auto* instance = new Shown;
  return *instance;
}

Verdict first_use(const kernels::DeviceInfo& info) {
  DeviceTestOptions options;
  {
    const MutexLock lock(shown().mutex);
    options.progress = shown().show;
  }
  return test_and_store(info, false, options);
}

// Waits for a lock that another process may hold while it tests. Nothing if the file cannot be made
// or the wait is too long; the test then runs without it.
std::optional<FileLock> lock_for(const std::string& path, double seconds) {
  try {
    for (const TimeLimit limit(seconds); !limit.reached();) {
      if (auto lock = FileLock::take(path)) return lock;
    }
  } catch (const FileError&) {
    // A folder that cannot be written.
  }
  return std::nullopt;
}

}  // namespace

void run_as_device_test(int argc, char** argv) {
  if (argc != 8) std::_Exit(2);
  fcntl(kResults, F_SETFD, FD_CLOEXEC);
  const TimeLimit limit(std::strtod(argv[3], nullptr));  // the start of the device counts too
  kernels::SelfTestOptions options;
  try {
    const Device device = parse_device(argv[2]);
    options.first = std::strtoul(argv[4], nullptr, 10);
    options.large = argv[5] == std::string("1");
    options.skip = split(argv[6], ',');
    options.only = split(argv[7], ',');
    options.begin = [](size_t number) { send_line("b " + std::to_string(number)); };
    options.end = [](const SelfTestResult& r) {
      send_line("e " + std::to_string(r.number) + " " + std::to_string(static_cast<int>(r.state)) +
                " " + r.seen);
    };
    const kernels::UntestedDevice untested = kernels::untested_device(device);
    options.seconds = limit.left();
    const bool works = run_self_test(*untested.table, *untested.memory, options);
    if (works) send_line(".");
    // Without destructors: those of a device that has failed may hang.
    std::_Exit(works ? 0 : kPoisoned);
  } catch (const std::exception& error) {
    send_line(std::string("n ") + error.what());
    std::_Exit(kNoBegin);
  }
}

Verdict test_in_child(Device device, const DeviceTestOptions& options) {
  const auto begun = std::chrono::steady_clock::now();
  Verdict verdict;
  std::string reason;
  try {
    const std::vector<SelfTestCase> cases = cases_of(device);
    Session session{device, options, cases, TimeLimit(options.seconds)};
    session.show();
    reason = session.run();
    if (reason.empty() || !session.results.empty()) {
      verdict = verdict_of(cases, session.results);
      if (!options.only.empty()) {
        std::erase_if(verdict.kernels, [&](const kernels::KernelVerdict& k) {
          return std::find(options.only.begin(), options.only.end(), k.kernel) ==
                 options.only.end();
        });
      }
    }
  } catch (const Error& error) {
    reason = error.what();
  }
  verdict.reason = reason;
  verdict.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - begun).count();
  if (options.progress) options.progress({device, 0, 0, true});
  return verdict;
}

Verdict test_and_store(const kernels::DeviceInfo& info, bool again,
                       const DeviceTestOptions& options) {
  const kernels::VerdictKey key = kernels::verdict_key(info);
  std::string folder;
  try {
    folder = kernels::verdict_folder();
    make_folders(local_files(), folder);
    chmod(folder.c_str(), 0700);
  } catch (const Error&) {
    folder.clear();  // the verdict is then valid for this process alone
  }
  std::optional<FileLock> lock;
  if (!folder.empty()) {
    // One lock for a GPU, whatever the build.
    std::string name = info.uuid;
    std::replace_if(
        name.begin(), name.end(), [](char c) { return c == '/' || c == '.'; }, '-');
    lock = lock_for(join_path(folder, name + ".lock"), 2 * options.seconds);
    if (!again) {
      if (const auto stored = kernels::read_verdict(folder, key); stored.verdict) {
        return *stored.verdict;
      }
    }
  }
  Verdict verdict = test_in_child(info.device, options);
  // What was not tested for lack of room or time is tested at the next use.
  const bool incomplete = std::any_of(
      verdict.kernels.begin(), verdict.kernels.end(),
      [](const auto& k) { return k.state == TestState::not_tested && !refuses_all(k); });
  if (folder.empty() || !verdict.reason.empty() || verdict.kernels.empty() || incomplete ||
      !options.only.empty()) {
    return verdict;
  }
  try {
    write_verdict(folder, key, verdict);
  } catch (const FileError&) {
    // A full disk: the verdict is valid for this process.
  }
  return verdict;
}

void test_devices_at_first_use() { kernels::set_device_tester(first_use); }

void show_device_tests(std::function<void(const DeviceTestProgress&)> show) {
  const MutexLock lock(shown().mutex);
  shown().show = std::move(show);
}

}  // namespace lockstep
