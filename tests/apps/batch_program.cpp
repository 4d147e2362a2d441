// A user's program with batch jobs, for batch_function_test.py:
//   batch_program submit FUNCTION [--cluster NAME] [--attach FILE] [ARGUMENTS...]
//   batch_program state|wait|sum|text|twice|fetch|diary|cancel|resume|remove ID [OUT]
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <map>
#include <string>
#include <thread>
#include <vector>

#include "lockstep/lockstep.h"

namespace {

using namespace lockstep;

double sum(const std::vector<double>& values) {
  std::printf("adding %zu numbers\n", values.size());
  double total = 0;
  for (const double value : values) total += value;
  return total;
}

std::map<std::string, int64_t> twice(const std::map<std::string, int64_t>& counts) {
  std::map<std::string, int64_t> result;
  for (const auto& [name, count] : counts) result[name] = 2 * count;
  return result;
}

void fail() { throw DataError("[user] the file is damaged", "make it again"); }

void crash() { std::abort(); }

// Goes on where it was stopped: it counts in its output folder.
int64_t count_to(int64_t last) {
  const std::string path = batch_output_folder() + "/count";
  int64_t count = 0;
  std::ifstream(path) >> count;
  while (count < last) {
    check_cancelled();
    std::ofstream(path) << ++count;
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  return count;
}

// What the process sees.
std::string surroundings() {
  const char* const variable = std::getenv("BATCH_TEST");
  std::string text;
  std::getline(std::ifstream(attached_file("notes.txt")), text);
  return text + " " + (variable == nullptr ? "-" : variable);
}

// A pool of worker processes inside the job.
int64_t in_pool(int64_t n) {
  Pool pool({.workers = 2});
  const auto square = [](int64_t i) { return i * i; };
  std::vector<Future<int64_t>> futures;
  for (int64_t i = 1; i <= n; ++i) futures.push_back(pool.submit(square, i));
  int64_t total = 0;
  for (auto& future : futures) total += future.get();
  return total;
}

struct Line {
  BatchOptions options;
  std::vector<std::string> words;
};

Line line_of(int argc, char** argv) {
  Line line;
  for (int i = 1; i < argc; ++i) {
    const std::string word = argv[i];
    if (word == "--cluster") {
      line.options.cluster = argv[++i];
    } else if (word == "--attach") {
      line.options.attach.push_back(argv[++i]);
    } else {
      line.words.push_back(word);
    }
  }
  return line;
}

BatchHandle submit(const Line& line) {
  const std::string& what = line.words.at(1);
  const BatchOptions& o = line.options;
  if (what == "sum") return batch_with<&sum>(o, std::vector<double>{1, 2, 39.5});
  if (what == "twice") {
    return batch_with<&twice>(o, std::map<std::string, int64_t>{{"a", 1}, {"b", 21}});
  }
  if (what == "fail") return batch<&fail>();
  if (what == "crash") return batch<&crash>();
  if (what == "count") return batch_with<&count_to>(o, std::stoll(line.words.at(2)));
  if (what == "surroundings") return batch_with<&surroundings>(o);
  if (what == "pool") return batch_with<&in_pool>(o, 10);
  if (what == "lambda") {
    return batch([](const std::string& a, int64_t b) { return a + std::to_string(b); }, "n", 7);
  }
  throw InvalidArgument("no function " + what);
}

void act(const Line& line) {
  const std::string& action = line.words.at(0);
  const BatchHandle job = action == "submit"
                              ? submit(line)
                              : BatchHandle(std::stoll(line.words.at(1)), line.options.cluster);
  const auto show = [](const BatchState& state) {
    std::printf("%s %s\n", to_string(state.status).c_str(), state.reason.c_str());
  };
  if (action == "submit") std::printf("%lld\n", static_cast<long long>(job.id()));
  if (action == "state") show(job.state());
  if (action == "wait") show(job.wait(120));
  if (action == "sum") std::printf("%.17g\n", job.result<double>());
  if (action == "int") std::printf("%lld\n", static_cast<long long>(job.result<int64_t>()));
  if (action == "text") std::printf("%s\n", job.result<std::string>().c_str());
  if (action == "void") job.result<void>();
  if (action == "twice") {
    for (const auto& [name, count] : job.result<std::map<std::string, int64_t>>()) {
      std::printf("%s %lld\n", name.c_str(), static_cast<long long>(count));
    }
  }
  if (action == "fetch") job.fetch(line.words.at(2));
  if (action == "diary") std::printf("%s", job.diary().c_str());
  if (action == "cancel") job.cancel();
  if (action == "resume") job.resume();
  if (action == "remove") job.remove();
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  try {
    act(line_of(argc, argv));
    return 0;
  } catch (const DataError& error) {
    std::printf("DataError: %s (%s)\n", error.what(), error.hint().c_str());
  } catch (const Cancelled& error) {
    std::printf("Cancelled: %s\n", error.what());
  } catch (const InvalidArgument& error) {
    std::printf("InvalidArgument: %s\n", error.what());
  } catch (const Error& error) {
    std::printf("Error: %s\n", error.what());
  }
  return 1;
}
