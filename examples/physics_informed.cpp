// A physics-informed network (Raissi, Perdikaris, Karniadakis 2019) solves the heat equation
// u_t = u_xx / pi^2 on a rod whose ends have temperature 0, from u(x, 0) = sin(pi x). The loss has
// first and second derivatives of the network's output with respect to its inputs; there are no
// data. The loop is stopped half way and continued from its file; two worker processes, which are
// not stopped, end with the same bits.
//
// usage: physics_informed [ITERATIONS]   (writes physics_informed.safetensors)
#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <numbers>

#include "lockstep/lockstep.h"

using namespace lockstep;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int64_t kRows = 64, kShard = 32;  // two shards; each costs as much as some 20 points
constexpr double kPi = std::numbers::pi;
constexpr uint64_t kPoints = 1;  // a draw of random numbers

// Temperature as a function of position and time, both from 0 to 1.
Network make_network() {
  Network network({feature_input({.features = 2, .normalization = "none"}),
                   fully_connected({.units = 32}), tanh(), fully_connected({.units = 32}), tanh(),
                   fully_connected({.units = 1})});
  network.initialize(/*seed=*/0);
  return network;
}

// Column 0 is the position, column 1 the time.
Tensor column(const Tensor& points, int64_t k) { return ops::slice(points, {{}, {k, k + 1}}); }

Tensor points_at(const Tensor& position, const Tensor& time) {
  return ops::concat({position, time});
}

// For each observation a random point inside, and its projections to the beginning and to both
// ends of the rod.
Tensor heat_loss(Shard& shard) {
  const Tensor points = ops::random_uniform(shard[0], kPoints, shard.step());
  const Tensor position = column(points, 0), time = column(points, 1);
  Tape tape;
  tape.watch(points);
  const auto slope_of = [&](const Tensor& value) {
    return tape.gradient(ops::sum(value), {points}, {.create_graph = true})[0];
  };
  const Tensor slope = slope_of(shard.forward(points));
  const Tensor u_t = column(slope, 1), u_xx = column(slope_of(column(slope, 0)), 0);

  const Tensor zero = Tensor::zeros(position.shape()), one = Tensor::full(position.shape(), 1);
  const Tensor begin = shard.forward(points_at(position, zero)) - ops::sin(kPi * position);
  const Tensor left = shard.forward(points_at(zero, time));
  const Tensor right = shard.forward(points_at(one, time));
  return ops::square(u_t - u_xx / (kPi * kPi)) +
         10 * (ops::square(begin) + ops::square(left) + ops::square(right));
}

struct Solution {
  Network network = make_network();
  AdamState state;
  LoopPosition at;
  std::vector<double> seconds;  // of iterations
  LineSeries losses;

  // Up to iteration `last` of `all`, by the threads of this process or by a group of workers.
  void train(int64_t last, int64_t all, Group* workers) {
    const ShardGroupOptions options{
        .threads = workers ? 1 : available_cores(), .shard_size = kShard, .seed = 1};
    ShardGroup group =
        workers ? ShardGroup(network, options, *workers) : ShardGroup(network, options);
    const Tensor rows = Tensor::zeros({kRows, 2});  // there are no data
    while (at.iteration < last) {
      const auto begin = Clock::now();
      const int64_t iteration = at.iteration + 1;
      const auto [loss, gradients] =
          sharded_value_and_gradient(heat_loss, {rows}, group, iteration);
      const double left = 1 - static_cast<double>(iteration - 1) / static_cast<double>(all);
      adam_update(network, gradients, state, {.learning_rate = 5e-3 * left});
      losses.points.emplace_back(iteration, std::log10(loss));
      at.iteration = iteration;
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
};

// Prints the network's temperatures and the exact ones. Returns the largest error.
double print_table(Network& network) {
  double largest = 0;
  std::printf("%6s %6s %10s %10s %10s\n", "x", "time", "network", "exact", "error");
  for (const double time : {0.0, 0.5, 1.0}) {
    for (const double position : {0.0, 0.25, 0.5, 0.75, 1.0}) {
      const std::vector<float> point{static_cast<float>(position), static_cast<float>(time)};
      const auto value =
          static_cast<double>(network.predict(Tensor::from(std::span(point), {1, 2})).item());
      const double exact = std::exp(-time) * std::sin(kPi * position);
      std::printf("%6.2f %6.2f %10.4f %10.4f %10.4f\n", position, time, value, exact,
                  value - exact);
      largest = std::max(largest, std::abs(value - exact));
    }
  }
  return largest;
}

// Prints the median duration of the iterations after the stop; benchmarks/peers/examples.py reads
// it.
void print_median(std::vector<double> seconds) {
  const auto middle = seconds.begin() + static_cast<ptrdiff_t>(seconds.size() / 2);
  std::nth_element(seconds.begin(), middle, seconds.end());
  std::printf("an iteration: %.3f ms (median)\n", 1e3 * *middle);
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  try {
    const int64_t iterations = argc > 1 ? std::max(2, std::atoi(argv[1])) : 3000;
    const std::string path = "physics_informed.safetensors";
    Solution stopped;
    stopped.train(iterations / 2, iterations, nullptr);
    save_loop(local_files(), path, stopped.at, {{stopped.network, &stopped.state}});
    Solution whole;
    whole.losses = stopped.losses;
    whole.at = load_loop(local_files(), path, {{whole.network, &whole.state}});
    whole.train(iterations, iterations, nullptr);
    print_median(whole.seconds);
    std::printf("%s", line_chart_text({&whole.losses, 1}, {.title = "log10 of the loss"}).c_str());
    const double error = print_table(whole.network);
    std::printf("largest error: %.4f\n", error);

    Pool pool({.workers = 2});
    const auto digests = spmd(
        pool,
        [](Spmd& block, int64_t all) {
          Solution same;
          same.train(all, all, &block.group());
          return network_digest(same.network).to_string();
        },
        iterations);
    const std::string digest = network_digest(whole.network).to_string();
    std::printf("by threads, stopped once:  %s\nby two workers:            %s\n", digest.c_str(),
                digests[0].c_str());
    return digests[0] == digest && error < (iterations < 1000 ? 0.5 : 0.05) ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
