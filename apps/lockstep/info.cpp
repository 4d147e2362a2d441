#include <fmt/format.h>
#include <muParserDef.h>
#include <toml++/toml.h>
#include <unistd.h>
#include <xxhash.h>

#include <CLI/Version.hpp>
#include <fstream>
#include <memory>
#include <nlohmann/json.hpp>
#include <set>
#include <sstream>

#include "apps/lockstep/command.h"
#include "lockstep/base/error.h"
#include "lockstep/base/text.h"
#include "lockstep/base/threads/thread_pool.h"
#include "lockstep/engine/kernels/interface/library_versions.h"
#include "lockstep/engine/kernels/loading.h"
#include "lockstep/report/progress.h"
#include "lockstep/runs/folders/run_folder.h"
#include "lockstep/train/state/fingerprint.h"
#include "lockstep/train/state/receipt.h"

namespace lockstep::command {
namespace {

// The value of the first line "name : value" in /proc/cpuinfo; "" if there is none.
std::string processor_field(const std::string& name) {
  std::ifstream file("/proc/cpuinfo");
  for (std::string line; std::getline(file, line);) {
    if (!line.starts_with(name)) continue;
    const size_t colon = line.find(':');
    if (colon != std::string::npos && colon + 2 <= line.size()) return line.substr(colon + 2);
  }
  return "";
}

// The instruction sets of the processor that matter to kernels, with the system's names.
std::vector<std::string> instruction_sets() {
  const std::vector<std::string> known{"sse4_1",   "sse4_2",      "avx",         "avx2",
                                       "fma",      "avx_vnni",    "avx512f",     "avx512bw",
                                       "avx512vl", "avx512_vnni", "avx512_bf16", "avx512_fp16",
                                       "amx_tile", "amx_bf16",    "amx_int8"};
  std::istringstream flags(processor_field("flags"));
  const std::set<std::string> present{std::istream_iterator<std::string>(flags), {}};
  std::vector<std::string> found;
  for (const std::string& name : known) {
    if (present.contains(name)) found.push_back(name);
  }
  return found;
}

int64_t memory_mib(int pages) {
  return static_cast<int64_t>(sysconf(pages)) * (sysconf(_SC_PAGESIZE) >> 10) >> 10;
}

// The GPUs, or the reason why there are none.
nlohmann::ordered_json collect_gpus() {
  nlohmann::ordered_json devices = nlohmann::ordered_json::array();
  for (const auto& info : kernels::list_devices()) {
    std::string note;
    const auto verdict = kernels::known_verdict(info.device, &note);
    devices.push_back(
        {{"device", to_string(info.device)},
         {"name", info.name},
         {"compute_capability", fmt::format("{}.{}", info.capability_major, info.capability_minor)},
         {"memory_mib", info.memory_total >> 20},
         {"memory_available_mib", info.memory_free >> 20},
         {"usable", info.usable()},
         {"problem", info.problem},
         {"uuid", info.uuid},
         {"self_test", verdict ? verdict->summary() : "not tested yet"},
         {"self_test_digest", verdict ? verdict->digest().to_string() : ""},
         {"self_test_note", note}});
  }
  nlohmann::ordered_json libraries = nlohmann::ordered_json::object();
  for (const auto& [name, version] : kernels::backend_versions()) libraries[name] = version;
  const kernels::Reason reason = kernels::no_devices_reason();
  return {{"devices", devices},
          {"reason", reason.text},
          {"hint", reason.hint},
          {"library", kernels::backend_path()},
          {"libraries", libraries}};
}

nlohmann::ordered_json collect() {
  nlohmann::ordered_json fingerprint = nlohmann::ordered_json::object();
  for (const FingerprintEntry& entry : numerics_fingerprint())
    fingerprint[entry.name] = entry.value;
  nlohmann::ordered_json chosen = nlohmann::ordered_json::object();
  for (const auto& [what, kernels] : kernels::chosen_kernels()) chosen[what] = kernels;
  return {
      {"version", LOCKSTEP_VERSION},
      {"processor", processor_field("model name")},
      {"instruction_sets", instruction_sets()},
      {"cores", available_cores()},
      {"memory_mib", memory_mib(_SC_PHYS_PAGES)},
      {"memory_available_mib", memory_mib(_SC_AVPHYS_PAGES)},
      {"kernels", chosen},
      {"gpus", collect_gpus()},
      {"libraries",
       {{"CLI11", CLI11_VERSION},
        {"fmt",
         fmt::format("{}.{}.{}", FMT_VERSION / 10000, FMT_VERSION / 100 % 100, FMT_VERSION % 100)},
        {"muParser", mu::ParserVersion},
        {"nlohmann-json", fmt::format("{}.{}.{}", NLOHMANN_JSON_VERSION_MAJOR,
                                      NLOHMANN_JSON_VERSION_MINOR, NLOHMANN_JSON_VERSION_PATCH)},
        {"toml++", fmt::format("{}.{}.{}", TOML_LIB_MAJOR, TOML_LIB_MINOR, TOML_LIB_PATCH)},
        {"xxHash",
         fmt::format("{}.{}.{}", XXH_VERSION_MAJOR, XXH_VERSION_MINOR, XXH_VERSION_RELEASE)}}},
      {"fingerprint", fingerprint}};
}

// For example "a 1.0, b 2.0".
std::string listed(const nlohmann::ordered_json& versions) {
  std::string text;
  for (const auto& [name, version] : versions.items()) {
    text += (text.empty() ? "" : ", ") + name + " " + version.get<std::string>();
  }
  return text;
}

struct InfoArguments {
  std::string run;
  bool as_json = false;
};

// Prints the state of a run.
int run_info_command(const InfoArguments& a) {
  FileSystem& files = local_files();
  const RunState state = run_state(files, a.run);
  if (state.status == RunStatus::none) {
    throw InvalidArgument("[info] " + a.run + " is not a run folder",
                          "use the folder that lockstep train wrote");
  }
  const std::string receipt = join_path(a.run, "receipt.jsonl");
  const Receipt read = files.exists(receipt) ? read_whole_receipt(files, receipt) : Receipt{};
  const auto iterations = static_cast<int64_t>(read.lines.size());
  if (!read.rest_note.empty()) {
    std::fprintf(stderr, "note: %s\n", printable(read.rest_note).c_str());
  }
  const std::string model = join_path(a.run, run_model_name);
  const bool has_model = files.exists(model);
  if (a.as_json) {
    print_json({{"run", a.run},
                {"state", to_string(state.status)},
                {"reason", state.reason},
                {"since", state.time},
                {"iterations", iterations},
                {"model", has_model ? nlohmann::ordered_json(model) : nlohmann::ordered_json()}});
    return 0;
  }
  std::vector<std::pair<std::string, std::string>> rows{{"run", a.run},
                                                        {"state", to_string(state.status)}};
  if (!state.reason.empty()) rows.emplace_back("reason", state.reason);
  if (!state.time.empty()) rows.emplace_back("since", state.time);
  rows.emplace_back("iterations", format_count(iterations) + " in the receipt");
  rows.emplace_back("model", has_model ? model : "none yet");
  print_table(rows);
  return 0;
}

int info_command(bool as_json) {
  const nlohmann::ordered_json info = collect();
  if (as_json) {
    print_json(info);
    return 0;
  }
  std::string sets;
  for (const auto& name : info["instruction_sets"]) {
    sets += (sets.empty() ? "" : " ") + name.get<std::string>();
  }
  std::vector<std::pair<std::string, std::string>> rows{
      {"version", info["version"]},
      {"processor", info["processor"]},
      {"instruction sets", sets},
      {"cores", std::to_string(info["cores"].get<int>())},
      {"memory", fmt::format("{} MiB, {} MiB free", info["memory_mib"].get<int64_t>(),
                             info["memory_available_mib"].get<int64_t>())}};
  for (const auto& [what, kernels] : info["kernels"].items()) {
    rows.emplace_back("kernels: " + what, kernels.get<std::string>());
  }
  const nlohmann::ordered_json& gpus = info["gpus"];
  for (const nlohmann::ordered_json& gpu : gpus["devices"]) {
    std::string text =
        fmt::format("{}, compute capability {}, {} MiB", gpu["name"].get<std::string>(),
                    gpu["compute_capability"].get<std::string>(), gpu["memory_mib"].get<int64_t>());
    const auto available = gpu["memory_available_mib"].get<int64_t>();
    text += available > 0 ? fmt::format(", {} MiB free", available) : "";
    if (!gpu["usable"]) text += "; cannot be used: " + gpu["problem"].get<std::string>();
    rows.emplace_back(gpu["device"].get<std::string>(), text);
    std::string verdict = gpu["self_test"].get<std::string>();
    for (const char* const more : {"self_test_digest", "self_test_note"}) {
      const std::string value = gpu[more];
      if (!value.empty()) verdict += "; " + value;
    }
    rows.emplace_back(gpu["device"].get<std::string>() + " self-test", verdict);
  }
  if (gpus["devices"].empty()) {
    const std::string hint = gpus["hint"];
    rows.emplace_back(
        "GPUs", "none: " + gpus["reason"].get<std::string>() + (hint.empty() ? "" : "; " + hint));
  }
  rows.emplace_back("libraries", listed(info["libraries"]));
  if (!gpus["libraries"].empty()) rows.emplace_back("GPU libraries", listed(gpus["libraries"]));
  for (const auto& [name, value] : info["fingerprint"].items()) {
    rows.emplace_back("fingerprint: " + name, value.get<std::string>());
  }
  print_table(rows);
  return 0;
}

}  // namespace

void add_info(Commands& commands) {
  auto a = std::make_shared<InfoArguments>();
  Subcommand sub = commands.add(
      "info", "Version, processor, GPUs, libraries; or the state of a run",
      "Two runs can have the same bits only if their `fingerprint` lines are equal.\n\n"
      "For a run it prints the state (running, interrupted by a kill, stopped, failed or "
      "finished), "
      "the reason and the time.",
      {{"lockstep info", "a table"},
       {"lockstep info runs/digits-1", "the state of a run"},
       {"lockstep info --json", "for programs"}},
      [a] { return a->run.empty() ? info_command(a->as_json) : run_info_command(*a); });
  sub.add_option("run", a->run, "Folder of a run").type_name("RUN");
  sub.add_flag("--json", a->as_json, "Print one JSON object");
}

}  // namespace lockstep::command
