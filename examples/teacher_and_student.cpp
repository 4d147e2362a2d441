// A small network learns from a large one (distillation, Hinton, Vinyals, Dean 2015). One student
// learns the teacher's softened probabilities of all images. Another one of the same size, without
// a teacher, learns the labels, which it has of one image in 20. Both learn from the same
// mini-batches. The loop is stopped half way and continued from its file; two worker processes,
// which are not stopped, end with the same bits.
//
// usage: teacher_and_student [ITERATIONS]   (writes teacher_and_student.safetensors)
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>

#include "lockstep/lockstep.h"

using namespace lockstep;
using Clock = std::chrono::steady_clock;

namespace {

constexpr int64_t kSide = 28, kRows = 128;
constexpr int64_t kLabeled = 20;  // the student without a teacher has the label of one image in 20
constexpr double kTemperature = 4;

LayerPtr images() {
  return image_input({.height = kSide, .width = kSide, .channels = 1, .normalization = "z-score"});
}

std::vector<DatastorePtr> open_data() {
  return split_each_label(builtin_digits(), {0.9}, /*seed=*/0);  // training and test data
}

Network train_teacher() {
  Network teacher({images(), convolution2d({.filters = 24, .kernel = {5, 5}}), relu(),
                   max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
                   convolution2d({.filters = 48, .kernel = {5, 5}}), relu(),
                   max_pooling2d({.pool = {2, 2}, .stride = {2, 2}}),
                   fully_connected({.units = 10}), softmax()});
  teacher.initialize(/*seed=*/0);
  train(teacher, {.training = open_data()[0]},
        {.max_epochs = 2, .solver = {.type = "adam", .initial_learning_rate = 0.002}});
  return teacher;
}

// The scores before softmax, of the teacher and of students.
const std::vector<std::string> kScores{"fully_connected_1"}, kStudentScores{"fully_connected_2"};

Network make_student() {
  Network student({images(), fully_connected({.units = 32}), relu(), fully_connected({.units = 10}),
                   softmax()});
  student.initialize(/*seed=*/1);
  return student;
}

// Cross-entropy of the softened probabilities. Its gradients shrink with the square of the
// temperature.
Tensor loss_by_teacher(Shard& shard, Network& teacher) {
  const Tensor taught = teacher.forward({shard[0]}, {.record = false, .outputs = kScores});
  const Tensor scores = shard.forward(shard[0], {.outputs = kStudentScores});
  return kTemperature * kTemperature *
         ops::softmax_cross_entropy(scores / kTemperature, ops::softmax(taught / kTemperature));
}

// 0 for images without a label.
Tensor loss_by_labels(Shard& shard) {
  const Tensor scores = shard.forward(shard[0], {.outputs = kStudentScores});
  return shard[2] * ops::softmax_cross_entropy(scores, shard[1]);
}

// Two students, and the loop that trains them with the same mini-batches.
struct Students {
  Network taught = make_student(), alone = make_student();
  AdamState taught_state, alone_state;
  LoopPosition at;
  std::vector<double> seconds;  // of iterations

  std::vector<LoopPart> parts() {
    return {{taught, &taught_state, "taught"}, {alone, &alone_state, "alone"}};
  }
  std::string digest() const {
    return network_digest(taught).to_string() + " " + network_digest(alone).to_string();
  }

  // Up to iteration `last`, by the threads of this process or by a group of workers.
  void train(Network& teacher, int64_t last, Group* workers) {
    const auto group_for = [&](Network& network) {
      return workers ? ShardGroup(network, {.threads = 1}, *workers)
                     : ShardGroup(network, {.threads = available_cores()});
    };
    ShardGroup with_teacher = group_for(taught), with_labels = group_for(alone);
    MiniBatchQueue queue(open_data()[0], taught.input_shapes(),
                         {.mini_batch_size = kRows, .helped = !workers, .max_epochs = 1000},
                         at.epoch, at.batch);
    const auto pixels = queue.channels(with_labels.pool());
    set_input_normalization(taught, pixels);
    set_input_normalization(alone, pixels);
    with_teacher.work_meanwhile([&](bool ahead) { return queue.help(ahead); });
    while (at.iteration < last) {
      const auto begin = Clock::now();
      const auto batch = queue.next();
      const int64_t iteration = at.iteration + 1;
      const Tensor x = batch->input().tensor();
      const Tensor labels = Tensor::from(batch->labels(), {kRows});
      std::vector<float> known;
      for (const int64_t i : batch->observations) known.push_back(i / 10 % kLabeled == 0 ? 1 : 0);
      const auto by_teacher =
          sharded_value_and_gradient([&](Shard& shard) { return loss_by_teacher(shard, teacher); },
                                     {x}, with_teacher, iteration);
      adam_update(taught, by_teacher.gradients, taught_state, {.learning_rate = 2e-3});
      const auto by_labels = sharded_value_and_gradient(
          loss_by_labels, {x, labels, Tensor::from(std::span(known), {kRows})}, with_labels,
          iteration);
      adam_update(alone, by_labels.gradients, alone_state, {.learning_rate = 2e-3});
      at = {iteration, queue.epoch(), queue.batch()};
      seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
    }
  }
};

// Returns the share of test images that are recognized.
double print_row(const char* name, Network& network) {
  const double accuracy = evaluate(network, open_data()[1]).accuracy;
  std::printf("%-24s %10d %9.1f%%\n", name, static_cast<int>(network.parameter_elements()),
              100 * accuracy);
  return accuracy;
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
    const int64_t iterations = argc > 1 ? std::max(2, std::atoi(argv[1])) : 800;
    const std::string path = "teacher_and_student.safetensors";
    Network teacher = train_teacher();
    Students stopped;
    stopped.train(teacher, iterations / 2, nullptr);
    save_loop(local_files(), path, stopped.at, stopped.parts());
    Students students;
    students.at = load_loop(local_files(), path, students.parts());
    students.train(teacher, iterations, nullptr);
    print_median(students.seconds);
    std::printf("%-24s %10s %10s\n", "network", "parameters", "accuracy");
    const double best = print_row("teacher", teacher);
    const double taught = print_row("student of the teacher", students.taught);
    const double alone = print_row("student of labels", students.alone);

    Pool pool({.workers = 2});
    const auto digests = spmd(
        pool,
        [](Spmd& block, const Bytes& model, int64_t last) {
          Network same_teacher = decode_model(model).network.clone();
          Students same;
          same.train(same_teacher, last, &block.group());
          return same.digest();
        },
        encode_model(teacher, open_data()[0]->classes()), iterations);
    const std::string digest = students.digest();
    std::printf("by threads, stopped once:  %s\nby two workers:            %s\n", digest.c_str(),
                digests[0].c_str());
    const bool good = iterations < 800 || (best > 0.97 && taught > 0.88 && taught > alone);
    return digests[0] == digest && good ? 0 : 1;
  } catch (const Error& e) {
    std::fprintf(stderr, "error: %s\n", e.what());
    if (!e.hint().empty()) std::fprintf(stderr, "hint: %s\n", e.hint().c_str());
    return 1;
  }
}
