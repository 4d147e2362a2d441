// Forecasts signals by an LSTM. It learns to predict the next step of drawn signals. Then it reads
// the beginning of a new signal and continues it in two ways: open loop, where each step that is
// predicted is then measured and read, and closed loop, where the network reads its own
// predictions. predict_and_update() keeps the state of the LSTM from call to call.
//
// usage: forecast [EPOCHS]
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <random>

#include "lockstep/lockstep.h"

using namespace lockstep;

namespace {

// A sum of two waves whose periods and phases differ from signal to signal.
std::vector<float> draw_signal(uint32_t seed, int64_t steps) {
  std::mt19937 random(seed);
  const auto number = [&](double low, double high) {
    return low + (high - low) * static_cast<double>(random()) / 4294967296.0;
  };
  const double period = number(14, 26), phase = number(0, 6.283), other = number(0, 6.283);
  std::vector<float> signal;
  for (int64_t t = 0; t < steps; ++t) {
    const double angle = 6.283185307 * static_cast<double>(t) / period;
    signal.push_back(
        static_cast<float>(std::sin(angle + phase) + 0.4 * std::sin(2.5 * angle + other)));
  }
  return signal;
}

// Signals, and as targets by step the values one step later.
DatastorePtr signals(uint32_t first, int64_t count) {
  std::vector<Array> now, next;
  for (int64_t i = 0; i < count; ++i) {
    const int64_t steps = 60 + i % 41;
    const std::vector<float> signal = draw_signal(first + static_cast<uint32_t>(i), steps + 1);
    now.push_back({{steps, 1}, {signal.begin(), signal.end() - 1}});
    next.push_back({{steps, 1}, {signal.begin() + 1, signal.end()}});
  }
  return with_targets(sequence_datastore(now), sequence_datastore(next));
}

// One sequence of one channel.
Tensor segment(std::span<const float> values) {
  return Tensor::from(values, {1, static_cast<int64_t>(values.size()), 1});
}

double rmse(std::span<const float> a, std::span<const float> b) {
  double sum = 0;
  for (size_t i = 0; i < a.size(); ++i) sum += std::pow(static_cast<double>(a[i] - b[i]), 2);
  return std::sqrt(sum / static_cast<double>(a.size()));
}

constexpr size_t kKnown = 80, kForecast = 40;

struct Errors {
  double open = 0, closed = 0, unchanged = 0;
};

// Of a signal that the network has not seen.
Errors forecast(Network& network, uint32_t seed, std::vector<float>& closed) {
  const std::vector<float> signal = draw_signal(seed, kKnown + kForecast);
  const std::span<const float> known = std::span(signal).first(kKnown),
                               future = std::span(signal).last(kForecast);
  network.reset_state();  // a new signal
  const float first = network.predict_and_update(segment(known)).to_vector().back();
  Network own = network.clone();  // with the state after the known steps
  std::vector<float> open{first};
  closed = {first};
  while (open.size() < kForecast) {
    open.push_back(network.predict_and_update(segment({&future[open.size() - 1], 1})).item());
    closed.push_back(own.predict_and_update(segment({&closed.back(), 1})).item());
  }
  const std::vector<float> last(kForecast, known.back());
  return {rmse(open, future), rmse(closed, future), rmse(last, future)};
}

}  // namespace

int main(int argc, char** argv) {
  const Runtime runtime(argc, argv);
  try {
    const int64_t epochs = argc > 1 ? std::max(1, std::atoi(argv[1])) : 200;
    Network network(
        {sequence_input({.channels = 1}), lstm({.units = 48}), fully_connected({.units = 1})});
    network.set_loss("mean_squared_error");
    network.initialize(/*seed=*/0);
    const TrainingResult result = train(
        network, {.training = signals(1, 320)},
        {.max_epochs = epochs,
         .mini_batch_size = 32,
         .solver = {.type = "adam", .initial_learning_rate = 0.005, .gradient_threshold = 1}});
    std::printf("loss %.5f\n", result.iterations.back().loss);
    std::vector<float> closed;
    Errors sum;
    constexpr int kSignals = 20;
    for (uint32_t seed = 1001; seed <= 1000 + kSignals; ++seed) {
      const Errors one = forecast(network, seed, closed);
      sum.open += one.open / kSignals;
      sum.closed += one.closed / kSignals;
      sum.unchanged += one.unchanged / kSignals;
    }
    LineSeries drawn{"signal", {}}, own{"closed loop", {}};
    const std::vector<float> signal = draw_signal(1000 + kSignals, kKnown + kForecast);
    for (size_t t = 0; t < signal.size(); ++t) {
      drawn.points.emplace_back(t, signal[t]);
      if (t >= kKnown) own.points.emplace_back(t, closed[t - kKnown]);
    }
    const std::vector<LineSeries> lines{drawn, own};
    std::printf("%s", line_chart_text(lines, {.title = "a new signal and its forecast"}).c_str());
    std::printf(
        "RMSE of %d steps of %d new signals: open loop %.3f, closed loop %.3f, the last "
        "value %.3f\n",
        static_cast<int>(kForecast), kSignals, sum.open, sum.closed, sum.unchanged);
    return sum.open < 0.1 && sum.closed < sum.unchanged / 2 ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
