#include <fmt/format.h>

#include <algorithm>
#include <cstdio>
#include <memory>
#include <string>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/engine/kernels/backends/verdict_file.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/parallel/process/device_test.h"

namespace lockstep::command {
namespace {

struct VerifyDeviceArguments {
  std::string device = "cuda:0";
  std::string json;
  bool again = false;
};

// A bar on a terminal; nothing elsewhere.
void show_test(const DeviceTestProgress& p) {
  if (!error_is_terminal()) return;
  if (p.ended) {
    std::fprintf(stderr, "\r\x1b[K");
  } else {
    constexpr size_t width = 30;
    const size_t full = p.total > 0 ? p.done * width / p.total : 0;
    std::fprintf(stderr, "\r\x1b[Ktesting the kernels of %s [%s%s] %zu of %zu",
                 to_string(p.device).c_str(), std::string(full, '#').c_str(),
                 std::string(width - full, '.').c_str(), p.done, p.total);
  }
  std::fflush(stderr);
}

struct Tested {
  std::string name, uuid, note;
  bool earlier = false;  // the verdict was known
  kernels::Verdict verdict;
};

Tested test(Device device, bool again) {
  const DeviceTestOptions options{.progress = show_test};
  if (device.is_cpu()) {
    Tested tested;
    tested.name = "CPU";
    tested.verdict = test_in_child(device, options);
    return tested;
  }
  for (const kernels::DeviceInfo& info : kernels::list_devices()) {
    if (info.device != device || !info.usable()) continue;
    Tested tested;
    tested.name = info.name;
    tested.uuid = info.uuid;
    const auto known = kernels::known_verdict(device, &tested.note);
    tested.earlier = known && !again;
    tested.verdict = tested.earlier ? *known : test_and_store(info, again, options);
    return tested;
  }
  Tested tested;
  try {
    kernels::untested_device(device);
  } catch (const Unsupported& error) {
    tested.verdict.reason = error.what();
  }
  return tested;
}

int verify_device_command(const VerifyDeviceArguments& a) {
  const Device device = parse_device(a.device);
  const Tested tested = test(device, a.again);
  const kernels::Verdict& verdict = tested.verdict;
  const kernels::TestState state = verdict.state();
  if (!tested.note.empty()) std::fprintf(stderr, "note: %s\n", tested.note.c_str());
  if (!a.json.empty()) {
    write_atomically(local_files(), a.json, kernels::verdict_json(verdict) + "\n");
  }
  std::vector<std::pair<std::string, std::string>> rows{{"device", to_string(device)}};
  if (!tested.name.empty()) rows.emplace_back("model", tested.name);
  if (!tested.uuid.empty()) rows.emplace_back("UUID", tested.uuid);
  rows.emplace_back("self-test", std::string(kernels::to_string(state)) +
                                     (tested.earlier ? ", by an earlier test" : ""));
  if (!verdict.reason.empty()) rows.emplace_back("reason", verdict.reason);
  int cases = 0;
  for (const kernels::KernelVerdict& k : verdict.kernels) cases += k.cases;
  if (!verdict.kernels.empty()) {
    const auto passed =
        std::count_if(verdict.kernels.begin(), verdict.kernels.end(),
                      [](const auto& k) { return k.state == kernels::TestState::passed; });
    rows.emplace_back("kernels", fmt::format("{} of {} passed, in {} cases and {:.1f} s", passed,
                                             verdict.kernels.size(), cases, verdict.seconds));
    rows.emplace_back("digest", verdict.digest().to_string());
  }
  for (const kernels::KernelVerdict& k : verdict.kernels) {
    if (k.state == kernels::TestState::passed) continue;
    rows.emplace_back(k.kernel + " " + k.type,
                      std::string(kernels::to_string(k.state)) + ": " + k.seen);
  }
  print_table(rows);
  if (state == kernels::TestState::passed) return 0;
  return state == kernels::TestState::failed ? exit_failure : exit_not_tested;
}

}  // namespace

void show_device_tests_of_trainings() { show_device_tests(show_test); }

void add_verify_device(Commands& commands) {
  auto a = std::make_shared<VerifyDeviceArguments>();
  Subcommand sub = commands.add(
      "verify-device", "Compare the kernels of a GPU with the CPU's, and store the result",
      "Runs every kernel with every type and layout on the device and on the CPU, on two "
      "streams, repeated and recorded. It takes at most 60 seconds, in a child process. The "
      "result is stored for this GPU, driver, libraries and build; trainings use what has passed "
      "and refuse the rest by name. The first use of a GPU runs the same test automatically. `cpu` "
      "compares the CPU's kernels with themselves; nothing is stored. Exit code 0: all passed; 1: "
      "something failed; 3: not tested (no such device, busy or out of memory).",
      {{"lockstep verify-device cuda:0", "the stored result, after a test if there is none yet"},
       {"lockstep verify-device cuda:1 --again --json verdict.json",
        "test again; a file for programs"}},
      [a] { return verify_device_command(*a); });
  sub.add_option("device", a->device, "\"cuda:N\" or \"cpu\"; default cuda:0").type_name("DEVICE");
  sub.add_option("--json", a->json, "Also write the result to a file")
      .type_name("FILE")
      .not_empty();
  sub.add_flag("--again", a->again, "Test even if there is a stored result");
}

}  // namespace lockstep::command
