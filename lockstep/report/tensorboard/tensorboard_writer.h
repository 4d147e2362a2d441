// Writes a training as TensorBoard event files, next to the log in the run's folder.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "lockstep/engine/nn/metrics/confusion_matrix.h"
#include "lockstep/report/tensorboard/events.h"
#include "lockstep/train/evaluation/evaluation.h"
#include "lockstep/train/records/observer.h"

namespace lockstep {

// Charts: training/loss, training/accuracy, training/learning_rate and
// training/observations_per_second of every iteration; validation/loss, validation/accuracy and the
// job's metrics; test/... at the end.
//
// Errors of files never end the training: the writer stops to write, and `problem` receives the
// reason once. Not thread-safe.
class TensorBoardWriter : public TrainingObserver {
 public:
  // `histograms`: also histograms of the network's parameters and states at every checkpoint, by
  // reading the checkpoint. A resumed training writes a new file, which replaces the steps after
  // the resume in earlier ones.
  TensorBoardWriter(FileSystem& files, std::string folder, bool histograms,
                    std::function<void(const std::string& text)> problem);

  void start(const TrainingStart& start) override;
  void iteration(const IterationRecord& record) override;
  void validation(const ValidationRecord& record) override;
  void checkpoint(const std::string& path, int64_t iteration) override;
  void stopped(int64_t iteration) override;
  // After the training: the scores of the finished network over some data, named "validation" or
  // "test", and its confusion as an image with a table of the classes. Nothing for `evaluation`
  // that is empty.
  void evaluation(const std::string& part, const Evaluation& evaluation, int64_t iteration);
  // Writes the rest.
  void finish();

 private:
  template <class Work>
  void guarded(Work work);

  FileSystem& files_;
  std::string folder_;
  bool histograms_;
  std::function<void(const std::string&)> problem_;
  std::unique_ptr<EventFile> file_;
  bool broken_ = false;
  bool classifies_ = true;
};

}  // namespace lockstep
