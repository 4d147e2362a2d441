// Makes random networks, computes them, and writes results (beside_torch.py reads `frames`).
#include <CLI/CLI.hpp>
#include <cstdio>
#include <fstream>
#include <iostream>
#include <map>
#include <set>

#include "lockstep/base/error.h"
#include "lockstep/cluster/runtime.h"
#include "lockstep/runs/jobs/networks/network_text.h"
#include "tests/random_networks/compute.h"
#include "tests/random_networks/generator.h"
#include "tests/random_networks/law.h"

namespace {

using lockstep::random_networks::Frame;
using Json = nlohmann::ordered_json;

struct Arguments {
  uint64_t seed = 1, first = 0, count = 200;
  uint64_t workers_every = 20;
  std::string file;
  lockstep::random_networks::ClientToKill client;
};

Json read_case(const std::string& path) {
  std::ifstream file(path);
  if (!file) throw lockstep::InvalidArgument("[random_networks] cannot read " + path);
  return Json::parse(file);
}

// Calls f with each case that the arguments select.
template <class F>
void for_each_case(const Arguments& arguments, const F& f) {
  if (!arguments.file.empty()) return f(read_case(arguments.file));
  for (uint64_t i = arguments.first; i < arguments.first + arguments.count; ++i) {
    f(lockstep::random_networks::make_case(arguments.seed, i));
  }
}

int write_frames(const Arguments& arguments) {
  lockstep::ThreadPool pool(1);
  for_each_case(arguments, [&](const Json& description) {
    Frame failed;
    try {
      lockstep::random_networks::compute_case(description, pool,
                                              [](Frame& frame) { frame.write(stdout); });
      return;
    } catch (const std::exception& e) {
      failed.head = description;
      failed.head["error"] = e.what();
    }
    failed.write(stdout);
  });
  return 0;
}

int show(const Arguments& arguments) {
  for_each_case(arguments, [](const Json& description) {
    Json rest = description;
    rest.erase("layers");
    const lockstep::Network network = lockstep::random_networks::network_of(description);
    std::cout << "# " << rest.dump() << "\n"
              << network.summary() << "\n"
              << lockstep::network_text(network) << "\n";
  });
  return 0;
}

int describe(const Arguments& arguments) {
  for_each_case(arguments, [](const Json& description) { std::cout << description << "\n"; });
  return 0;
}

int check_laws(const Arguments& arguments) {
  uint64_t cases = 0, finds = 0;
  const auto check = [&](const Json& description) {
    ++cases;
    const uint64_t every = arguments.workers_every;
    const bool workers = every > 0 && description["case"].get<uint64_t>() % every == 0;
    const auto broken = lockstep::random_networks::broken_laws(description, workers);
    if (broken.empty()) return;
    ++finds;
    std::cout << "case " << description["case"] << " of seed " << description["seed"] << ":\n";
    for (const auto& line : broken) std::cout << "    " << line << "\n";
    std::cout << std::flush;
  };
  for_each_case(arguments, check);
  std::cout << cases << " networks: the law is broken by " << finds << "\n";
  return finds > 0 ? 1 : 0;
}

int be_killed(const Arguments& arguments) {
  lockstep::random_networks::train_until_killed(read_case(arguments.file), arguments.client);
  return 0;
}

// The cases must contain every registered layer.
int count_layers(const Arguments& arguments) {
  std::map<std::string, int> counts;
  // RandomFormulas of engine_test draws expressions. TargetScaling, CategoryEmbedding and Outputs
  // of train_test compare results and gradients of the others.
  const std::set<std::string> elsewhere{"function", "category_embedding", "denormalization",
                                        "outputs"};
  for (const auto& info : lockstep::layer_registry()) {
    if (!elsewhere.contains(info.type)) counts[info.type] = 0;
  }
  for_each_case(arguments, [&](const Json& description) {
    for (const auto& layer : description["layers"]) ++counts[layer["type"]];
  });
  bool all = true;
  for (const auto& [type, count] : counts) {
    std::cout << count << " " << type << (count == 0 ? "  MISSING" : "") << "\n";
    all &= count > 0;
  }
  return all ? 0 : 1;
}

}  // namespace

int main(int argc, char** argv) {
  const lockstep::Runtime runtime(argc, argv);
  CLI::App app("Random networks, each a function of a seed and its number");
  app.require_subcommand(1);
  Arguments arguments;
  int (*command)(const Arguments&) = nullptr;
  const auto add = [&](const char* name, const char* help, int (*run)(const Arguments&)) {
    CLI::App* sub = app.add_subcommand(name, help);
    sub->add_option("--seed", arguments.seed, "of all choices");
    sub->add_option("--first", arguments.first, "number of the first case");
    sub->add_option("--count", arguments.count, "how many");
    sub->add_option_function<uint64_t>(
        "--only",
        [&](uint64_t number) {
          arguments.first = number;
          arguments.count = 1;
        },
        "this case alone");
    sub->add_option("--case", arguments.file, "a file with one case instead");
    sub->callback([&, run] { command = run; });
    return sub;
  };
  add("describe", "cases as JSON", describe);
  add("show", "networks as in a job file", show);
  add("frames", "computes, and writes what was computed for a judge", write_frames);
  add("layers", "how often each layer occurs; fails where one never does", count_layers);
  CLI::App* const law =
      add("law", "computes in many ways that must give the same bits", check_laws);
  law->add_option("--workers-every", arguments.workers_every,
                  "interval, in networks, at which worker processes take part; 0: never");
  CLI::App* const killed =
      add("killed-client", "a part of `law`: trains until it is killed", be_killed);
  killed->add_option("--folder", arguments.client.folder, "of its checkpoints");
  killed->add_option("--point", arguments.client.point, "of its death");
  killed->add_option("--iteration", arguments.client.iteration, "of its death");
  killed->add_option("--workers", arguments.client.workers, "processes that compute");
  CLI11_PARSE(app, argc, argv);
  try {
    return command(arguments);
  } catch (const std::exception& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    return 1;
  }
}
