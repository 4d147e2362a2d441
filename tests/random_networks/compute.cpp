#include "tests/random_networks/compute.h"

#include "lockstep/base/numeric/arithmetic.h"
#include "lockstep/engine/kernels/cpu/batch_lanes/layout.h"
#include "lockstep/engine/ops/ops.h"
#include "lockstep/train/iteration/shards.h"
#include "lockstep/train/loop/make_training_iteration.h"
#include "tests/random_networks/case_data.h"
#include "tests/random_networks/dice.h"
#include "tests/random_networks/generator.h"
#include "tests/random_networks/sequence_maker.h"

namespace lockstep::random_networks {
namespace {

using Json = nlohmann::ordered_json;

// Records the inputs of a solver and forwards them.
class Listener final : public Solver {
 public:
  Listener(Network& network, const TrainingOptions& options)
      : solver_(make_solver(network, options)) {
    for (const auto& p : network.parameters()) {
      sums.emplace_back(static_cast<size_t>(p.value.shape().elements()));
    }
    never_learn_ = never_learning(network, options);
    divisors.resize(sums.size());
  }
  void update(size_t index, const IndexRange& elements, const float* sum,
              const UpdateScalars& scalars) override {
    if (!never_learn_[index]) {
      std::copy_n(sum, elements.count, sums[index].begin() + elements.first);
    }
    if (elements.first == 0) divisors[index] = scalars.observations;
    solver_->update(index, elements, sum, scalars);
  }
  UpdateNumbers numbers(size_t index, const UpdateScalars& scalars) const override {
    return solver_->numbers(index, scalars);
  }
  std::vector<Tensor> state(size_t index) const override { return solver_->state(index); }
  std::vector<std::string> state_names() const override { return solver_->state_names(); }

  std::vector<std::vector<float>> sums;
  std::vector<double> divisors;

 private:
  std::unique_ptr<Solver> solver_;
  std::vector<bool> never_learn_;
};

Json layer_keys(const Network& network) {
  Json keys = Json::object();
  for (const auto& layer : network.layers()) keys[layer.name] = key_from_text(layer.name);
  return keys;
}

void add_values(Frame& frame, const Network& network, const std::string& prefix) {
  for (const auto& l : network.parameters()) frame.add(prefix + l.name, l.value);
  for (const auto& s : network.state()) frame.add(prefix + s.name, s.value);
}

void add_solver_state(Frame& frame, const Network& network, const Solver& solver,
                      const std::string& prefix) {
  for (size_t p = 0; p < network.parameters().size(); ++p) {
    const auto state = solver.state(p);
    for (size_t k = 0; k < state.size(); ++k) {
      frame.add(prefix + network.parameters()[p].name + "." + solver.state_names()[k], state[k]);
    }
  }
}

void add_batch(Frame& frame, const MiniBatch& batch) {
  const RowArray& input = batch.input();
  const Shape shape = input.tensor_spec().shape;
  if (input.type == DType::u8) {
    frame.add<uint8_t>("input.0", input.values<uint8_t>(), shape);
  } else {
    frame.add<float>("input.0", input.values<float>(), shape);
  }
  frame.add<int32_t>("labels", batch.labels(), Shape{batch.size()});
  const RowArray* const targets = batch.find("targets");
  if (targets) frame.add<float>("targets", targets->values<float>(), targets->tensor_spec().shape);
}

void begin(Frame& frame, const Json& description, const Network& network) {
  frame.clear();
  frame.head = description;
  // With all fields, and data that has no field.
  frame.head["layers"] = network.to_json()["layers"];
  frame.head["winograd"] = kernels::cpu::lanes_are_chosen();
  frame.head["keys"] = layer_keys(network);
  for (const auto& l : network.parameters()) {
    frame.head["parameters"].push_back({{"name", l.name},
                                        {"l2_factor", l.spec.l2_factor},
                                        {"learning_rate_factor", l.spec.learning_rate_factor}});
  }
}

void compute_training(const Json& description, ThreadPool& pool,
                      const std::function<void(Frame&)>& done) {
  Network network = network_of(description);
  fill_network(network, description);
  const TrainingOptions options = options_of(description);
  Listener listener(network, options);
  const bool pixels = network.input_shapes()[0].rank() == 3;
  const auto step =
      make_training_iteration(network, listener, pool, options, {pixels ? DType::u8 : DType::f32});
  Frame frame;
  const auto iterations = description["iterations"].get<int64_t>();
  for (int64_t iteration = 1; iteration <= iterations; ++iteration) {
    begin(frame, description, network);
    const MiniBatch batch = make_batch(network, description, iteration);
    add_batch(frame, batch);
    add_values(frame, network, "before.");
    add_solver_state(frame, network, listener, "solver_before.");
    const UpdateScalars scalars{options.solver.initial_learning_rate, iteration,
                                static_cast<double>(batch.size())};
    step->begin(batch, scalars);
    const IterationOutcome result = step->finish();
    add_values(frame, network, "after.");
    add_solver_state(frame, network, listener, "solver_after.");
    for (size_t p = 0; p < network.parameters().size(); ++p) {
      const auto& l = network.parameters()[p];
      frame.add<float>("sum." + l.name, listener.sums[p], l.value.shape());
      frame.head["divisors"][l.name] = listener.divisors[p];
    }
    frame.head["iteration"] = iteration;
    frame.head["loss_sum"] = result.loss_sum;
    for (const auto& shard : cut_into_shards(batch.size(), options.shards.size)) {
      frame.head["shards"].push_back({shard.first, shard.count});
    }
    Json resolved;
    FieldWriter writer(resolved);
    TrainingOptions copy = options;
    copy.visit(writer);
    frame.head["options"] = resolved;
    frame.head["learning_rate"] = options.solver.initial_learning_rate;
    done(frame);
  }
}

void compute_tape(const Json& description, const std::function<void(Frame&)>& done) {
  Network network = network_of(description);
  fill_network(network, description);
  Dice dice(description["seed"], description["case"], 3);
  Frame frame;
  begin(frame, description, network);
  add_values(frame, network, "before.");
  const bool sequences = description.contains("lengths");
  const std::vector<Tensor> inputs = sequences ? std::vector{make_sequences(network, description)}
                                               : make_inputs(network, description),
                            lengths = sequences ? std::vector{lengths_of(description)}
                                                : std::vector<Tensor>();
  const std::vector<NetworkValue> values = network.outputs();
  // What follows the ends of sequences is not defined.
  const auto defined = [&](const Tensor& y, size_t k) {
    return values[k].sequence ? without_padding(y, description) : y;
  };
  const RandomContext step{static_cast<uint64_t>(dice.between(0, 1000)),
                           static_cast<uint64_t>(dice.between(1, 9)), dice.between(0, 50)};
  frame.head["step"] = {step.seed, step.iteration, step.first_row};
  Tape tape;
  tape.watch(network.parameter_values());
  std::vector<Tensor> wanted = network.parameter_values();
  std::vector<std::string> names;
  for (const auto& l : network.parameters()) names.push_back(l.name);
  for (size_t i = 0; i < inputs.size(); ++i) {
    const std::string name = "input." + std::to_string(i);
    if (inputs[i].dtype() == DType::f32) {
      frame.add(name, inputs[i]);
      tape.watch(inputs[i]);
      wanted.push_back(inputs[i]);
      names.push_back(name);
    } else if (inputs[i].dtype() == DType::i32) {
      const std::span tokens(inputs[i].data<int32_t>(), inputs[i].bytes() / sizeof(int32_t));
      frame.add<int32_t>(name, tokens, inputs[i].shape());
    } else {
      const std::span pixels(inputs[i].data<uint8_t>(), inputs[i].bytes());
      frame.add<uint8_t>(name, pixels, inputs[i].shape());
    }
  }
  const auto outputs =
      network.forward_all(inputs, {.training = true, .step = step, .lengths = lengths});
  std::vector<Tensor> terms;
  for (size_t k = 0; k < outputs.size(); ++k) {
    std::vector<float> factors(static_cast<size_t>(outputs[k].shape().elements()));
    for (auto& f : factors) f = static_cast<float>(dice.normal());
    const Tensor factor = defined(Tensor::from(factors, outputs[k].shape()), k);
    frame.add("output." + std::to_string(k), defined(outputs[k], k));
    frame.add("factor." + std::to_string(k), factor);
    terms.push_back(ops::sum(ops::multiply({outputs[k], factor})));
  }
  const auto gradients = tape.gradient(ops::add(terms), wanted, {.create_graph = true});
  for (size_t i = 0; i < wanted.size(); ++i) frame.add("gradient." + names[i], gradients[i]);
  // The Hessian times a direction: the gradient of the gradients' product with it.
  terms.clear();
  for (size_t i = 0; i < wanted.size(); ++i) {
    std::vector<float> along(static_cast<size_t>(gradients[i].shape().elements()));
    for (auto& a : along) a = static_cast<float>(dice.normal());
    const Tensor direction = Tensor::from(along, gradients[i].shape());
    frame.add("direction." + names[i], direction);
    terms.push_back(ops::sum(ops::multiply({gradients[i], direction})));
  }
  const Tensor slope = terms.empty() ? Tensor() : ops::add(terms);
  std::vector<Tensor> second;
  for (const Tensor& t : wanted) second.push_back(Tensor::zeros(t.shape()));
  if (slope.defined() && tape.tracks({&slope, 1})) second = tape.gradient(slope, wanted);
  for (size_t i = 0; i < wanted.size(); ++i) frame.add("second." + names[i], second[i]);
  add_values(frame, network, "after.");
  const auto predicted = network.forward_all(inputs, {.record = false, .lengths = lengths});
  for (size_t k = 0; k < predicted.size(); ++k) {
    frame.add("predicted." + std::to_string(k), defined(predicted[k], k));
  }
  done(frame);
}

}  // namespace

void compute_case(const Json& description, ThreadPool& pool,
                  const std::function<void(Frame& frame)>& done) {
  if (description["form"] == "tape") {
    compute_tape(description, done);
  } else {
    compute_training(description, pool, done);
  }
}

}  // namespace lockstep::random_networks
