#include "lockstep/report/tensorboard/tensorboard_writer.h"

#include <fmt/format.h>

#include <cmath>
#include <new>

#include "lockstep/base/error.h"
#include "lockstep/base/os/memory_room.h"
#include "lockstep/base/text.h"
#include "lockstep/data/images/image.h"
#include "lockstep/engine/tensor/tensor.h"
#include "lockstep/report/tensorboard/confusion_image.h"
#include "lockstep/train/records/training_start.h"
#include "lockstep/train/state/checkpoint.h"

namespace lockstep {
namespace {

// Class names may be any text; they must not become Markdown or HTML.
std::string markdown_text(const std::string& text) {
  std::string out;
  for (const char c : printable(text)) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (std::string_view("\\`*_{}[]()#+!|>~").find(c) != std::string_view::npos) {
      out += '\\';
      out += c;
    } else {
      out += c;
    }
  }
  return out;
}

std::string class_table(const ConfusionMatrix& matrix) {
  const auto share = [](double value) {
    return std::isfinite(value) ? fmt::format("{:.2f} %", 100 * value) : std::string("-");
  };
  const std::vector<int64_t> shown = matrix.worst_classes(most_confusion_classes);
  std::string text;
  if (shown.size() < matrix.classes.size()) {
    text =
        fmt::format("The {} of {} classes with the most errors:\n\n", shown.size(), matrix.size());
  }
  text += "| number | class | observations | recall | precision |\n|---|---|---|---|---|\n";
  for (const int64_t c : shown) {
    const ClassCounts& counts = matrix.of_class(c);
    text += fmt::format("| {} | {} | {} | {} | {} |\n", c,
                        markdown_text(matrix.classes[static_cast<size_t>(c)]), counts.observed,
                        share(counts.recall()), share(counts.precision()));
  }
  return text;
}

}  // namespace

TensorBoardWriter::TensorBoardWriter(FileSystem& files, std::string folder, bool histograms,
                                     std::function<void(const std::string& text)> problem)
    : files_(files),
      folder_(std::move(folder)),
      histograms_(histograms),
      problem_(std::move(problem)) {}

template <class Work>
void TensorBoardWriter::guarded(Work work) {
  if (broken_) return;
  std::string reason;
  try {
    return work();
  } catch (const DataError& error) {
    reason = error.what();
  } catch (const std::bad_alloc&) {
    reason = out_of_memory_text();
  }
  broken_ = true;
  file_.reset();
  problem_("the events for TensorBoard are incomplete: " + reason);
}

void TensorBoardWriter::start(const TrainingStart& start) {
  classifies_ = start.classifies;
  guarded([&] { file_ = std::make_unique<EventFile>(files_, folder_, start.first_iteration); });
}

void TensorBoardWriter::iteration(const IterationRecord& r) {
  if (!file_) return;
  guarded([&] {
    EventValues values;
    values.scalar("training/loss", r.loss);
    if (classifies_) values.scalar("training/accuracy", r.accuracy);
    values.scalar("training/learning_rate", r.learning_rate);
    if (r.seconds > 0) {
      values.scalar("training/observations_per_second",
                    static_cast<double>(r.observations_count) / r.seconds);
    }
    if (r.seconds > 0 && r.steps_count > 0) {
      values.scalar("training/steps_per_second", static_cast<double>(r.steps_count) / r.seconds);
    }
    file_->add(r.iteration, values);
  });
}

void TensorBoardWriter::validation(const ValidationRecord& r) {
  if (!file_) return;
  guarded([&] {
    EventValues values;
    values.scalar("validation/loss", r.loss);
    if (classifies_) values.scalar("validation/accuracy", r.accuracy);
    for (const MetricValue& m : r.metrics) values.scalar("validation/" + m.name, m.value);
    file_->add(r.iteration, values);
    file_->flush();
  });
}

void TensorBoardWriter::checkpoint(const std::string& path, int64_t iteration) {
  if (!file_ || !histograms_) return;
  guarded([&] {
    EventValues values;
    for (const NamedTensor& named : checkpoint_values(files_, path)) {
      if (named.tensor.dtype() != DType::f32) continue;
      values.histogram(named.name, {named.tensor.data<float>(),
                                    static_cast<size_t>(named.tensor.shape().elements())});
    }
    file_->add(iteration, values);
    file_->flush();
  });
}

void TensorBoardWriter::stopped(int64_t) { finish(); }

void TensorBoardWriter::evaluation(const std::string& part, const Evaluation& evaluation,
                                   int64_t iteration) {
  if (!file_) return;
  guarded([&] {
    EventValues values;
    // Validations have written the others.
    if (part == "test") {
      values.scalar("test/loss", evaluation.loss);
      if (classifies_) values.scalar("test/accuracy", evaluation.accuracy);
      for (const MetricValue& m : evaluation.metrics) values.scalar("test/" + m.name, m.value);
    }
    if (evaluation.confusion) {
      const Image image = confusion_image(*evaluation.confusion);
      const std::vector<std::byte> png = encode_png(image);
      values.image("confusion/" + part, image.height, image.width,
                   {reinterpret_cast<const char*>(png.data()), png.size()});
      values.text("confusion/" + part + "/classes", class_table(*evaluation.confusion));
    }
    file_->add(iteration, values);
    file_->flush();
  });
}

void TensorBoardWriter::finish() {
  if (!file_) return;
  guarded([&] { file_->flush(); });
}

}  // namespace lockstep
