#include "lockstep/runs/text_data.h"

#include <string>
#include <vector>

#include "lockstep/base/counted.h"
#include "lockstep/base/error.h"
#include "lockstep/runs/data_options.h"
#include "lockstep/runs/jobs/job_file.h"
#include "lockstep/runs/sources/data_source.h"
#include "lockstep/runs/sources/text_source.h"
#include "lockstep/runs/splits.h"

namespace lockstep {
namespace {

// The keys of .jsonl files, of which there must be one if keys are given.
TextColumns text_columns_of(const JobData& data) {
  bool lines = false;
  for (const auto& names : {data.train, data.validation, data.test}) {
    lines |= std::ranges::any_of(names, is_json_lines_name);
  }
  if (!lines) refuse_columns(data, "folders of texts, whose folders name the classes");
  return {.text = data.text_column, .label = data.label_column};
}

}  // namespace

// The parts of a text. Validation and test data are the end of the text, or other texts.
RunData open_text_data(const Job& job, const TableColumns& columns) {
  check_options_of_texts(job.data);
  refuse_columns(job.data, "texts without classes");
  if (job.data.folds > 0) {
    throw InvalidArgument("[data] folds is not for a text whose next token is learned",
                          "validation_fraction holds out its end");
  }
  const TextFiles text = read_text_files(only_text(job.data.train));
  const Network network = build_network(job);
  const Vocabulary vocabulary =
      columns.empty() ? learn_vocabulary(text, job.data.tokens, job.data.max_tokens, network)
                      : vocabulary_of(job.data.tokens, columns);
  check_vocabulary(network, vocabulary);
  const TokensPtr all = tokens_of(text, vocabulary);
  const auto windows = [&](const TextFiles& from, const TokensPtr& tokens) {
    return windows_of(from, tokens, vocabulary,
                      {.length = job.data.window_length, .stride = job.data.window_stride});
  };
  // The last tokens of what is left, without one part the next.
  int64_t left = all->size();
  const auto cut = [&](double fraction, const char* field) -> DatastorePtr {
    if (fraction <= 0) return nullptr;
    const auto count = static_cast<int64_t>(fraction * static_cast<double>(all->size()));
    if (count < 2 || left - count < 2) {
      throw InvalidArgument("[data] " + std::string(field) + " cuts " + counted(count, "token") +
                                " from the " + std::to_string(all->size()) + " of " + text.source,
                            "each part needs two");
    }
    left -= count;
    return windows(text, part_of(all, left, count));
  };
  const auto other = [&](const std::vector<std::string>& names) -> DatastorePtr {
    if (names.empty()) return nullptr;
    const TextFiles apart = read_text_files(only_text(names));
    return windows(apart, tokens_of(apart, vocabulary));
  };
  RunData data;
  data.test =
      job.data.test.empty() ? cut(job.data.test_fraction, "test_fraction") : other(job.data.test);
  data.validation = job.data.validation.empty()
                        ? cut(job.data.validation_fraction, "validation_fraction")
                        : other(job.data.validation);
  data.training = windows(text, part_of(all, 0, left));
  data.columns = columns.empty() ? table_columns_of(*data.training) : columns;
  return data;
}

// The parts of texts with classes. Validation and test data are a share of each class, or others.
RunData open_labeled_texts(const Job& job, const TableColumns& columns) {
  check_options_of_texts(job.data);
  if (job.data.window_stride != 0) {
    throw InvalidArgument("[data] window_stride is for networks that learn the next token",
                          "of a text with a class, the first window_length tokens are used");
  }
  const TextColumns keys = text_columns_of(job.data);
  const LabeledTexts texts = read_labeled_texts(job.data.train, true, keys);
  const Network network = build_network(job);
  const Vocabulary vocabulary =
      columns.empty() ? learn_vocabulary(texts.files, job.data.tokens, job.data.max_tokens, network)
                      : vocabulary_of(job.data.tokens, columns);
  check_vocabulary(network, vocabulary);
  const DatastorePtr all = labeled_texts(texts, vocabulary, job.data.window_length);
  RunData data;
  data.columns = columns.empty() ? table_columns_of(*all) : columns;
  const auto part = [&](const std::vector<std::string>& names, const DatastorePtr& share,
                        double fraction, const char* field) -> DatastorePtr {
    if (!names.empty()) {
      return labeled_texts(read_labeled_texts(names, true, keys), vocabulary,
                           job.data.window_length, all->classes());
    }
    if (fraction <= 0) return nullptr;
    if (share->size() > 0) return share;
    throw InvalidArgument("[data] " + std::string(field) + " leaves no text of the " +
                          std::to_string(all->size()) + " of " + all->describe());
  };
  const auto parts = split_each_label(all, {job.data.validation_fraction, job.data.test_fraction},
                                      static_cast<uint64_t>(job.training.seed));
  data.validation =
      part(job.data.validation, parts[0], job.data.validation_fraction, "validation_fraction");
  data.test = part(job.data.test, parts[1], job.data.test_fraction, "test_fraction");
  data.training = parts[2];
  take_fold_of_texts(data, job);
  if (data.training->size() == 0) {
    throw InvalidArgument("[data] splitting leaves no text of " + all->describe());
  }
  return data;
}

}  // namespace lockstep
