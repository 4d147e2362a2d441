// Worker processes that run functions: results, errors, output of tasks, a parallel loop, and a
// block that all workers run at once.
#include <cstdio>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

int64_t factorial(int64_t n) { return n < 2 ? 1 : n * factorial(n - 1); }

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);  // must come first: workers run this program, too
  Pool pool({.workers = 4});
  std::printf("a pool of %d workers\n", pool.size());

  // A future represents the result of a task.
  const auto ten = pool.submit<&factorial>(10);
  const auto greeting = pool.submit(
      [](const std::string& name) {
        std::printf("this goes to the diary\n");
        return "hello, " + name;
      },
      "pool");
  const std::string hello = greeting.get();
  std::printf("10! = %lld, %s; its diary: %s", static_cast<long long>(ten.get()), hello.c_str(),
              greeting.diary().c_str());

  // Errors are rethrown with their original type. The loss of a worker is an error of
  // its own task only.
  for (const auto& bad : {pool.submit([] { throw DataError("there are no images"); }),
                          pool.submit([] { abort(); })}) {
    try {
      bad.get();
    } catch (const Error& e) {
      std::printf(
          "%s: %s\n", to_string(bad.state()),
          bad.error().starts_with("[pool]") ? "the worker was lost and replaced" : e.what());
    }
  }

  // In order of completion.
  std::vector<Future<int>> futures;
  for (const int ms : {60, 20, 40}) {
    futures.push_back(pool.submit(
        [](int wait) {
          std::this_thread::sleep_for(std::chrono::milliseconds(wait));
          return wait;
        },
        ms));
  }
  FetchNext<int> next(futures);
  while (const auto i = next.next()) {
    std::printf("task %d slept %d ms\n", static_cast<int>(*i), next[*i].get());
  }

  // The sum has the same bits for any number of workers.
  const float sum = parallel_reduce(
      pool, 1000000, [](int64_t i) { return 1.0f / static_cast<float>(i + 1); },
      [](float a, float b) { return a + b; });
  std::printf("1 + 1/2 + ... + 1/1000000 = %.9g\n", static_cast<double>(sum));

  // All workers at once, each with its index. Values arrive through a queue meanwhile.
  DataQueue<std::string> queue(pool);
  queue.after_each([](const std::string& text) { std::printf("%s\n", text.c_str()); });
  const auto totals = spmd(
      pool,
      [](Spmd& block, const QueueSender<std::string>& client) {
        const int sum_of_indexes = block.plus(block.index());
        if (block.index() == 0)
          client.send("worker 0 of " + std::to_string(block.size()) + " is here");
        return sum_of_indexes;
      },
      queue.sender());
  queue.finish();
  std::printf("each worker knows the sum of all indexes: %d\n", totals[0]);
  return totals == std::vector<int>(4, 6) ? 0 : 1;
}
