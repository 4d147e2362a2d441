#include "lockstep/train/state/receipt_check.h"

#include <fmt/format.h>

#include <nlohmann/json.hpp>

#include "lockstep/base/json/json_text.h"
#include "lockstep/base/os/file.h"
#include "lockstep/train/records/training_start.h"

namespace lockstep {
namespace {

using nlohmann::json;

int64_t whole(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw DataError(std::string("it has no ") + key);
  if (!found->is_number_integer()) throw DataError(std::string(key) + " is not a whole number");
  return found->get<int64_t>();
}

double number(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw DataError(std::string("it has no ") + key);
  if (!found->is_number()) throw DataError(std::string(key) + " is not a number");
  return found->get<double>();
}

Digest digest(const json& object, const char* key) {
  const auto found = object.find(key);
  if (found == object.end()) throw DataError(std::string("it has no ") + key);
  try {
    if (found->is_string()) return Digest::parse(found->get<std::string>());
  } catch (const InvalidArgument&) {
    // Handled like a value that is not text.
  }
  throw DataError(std::string(key) + " is not a digest");
}

// Throws DataError if the line cannot follow the chain `before`.
ReceiptLine next_line(std::string_view text, int64_t iteration, const Digest& before,
                      const ReceiptExpectation& expected) {
  const ReceiptLine line = parse_receipt_line(text);
  if (line.iteration != iteration) {
    throw DataError(
        fmt::format("it has iteration {} instead of {}: lines are missing, "
                    "repeated or in another order",
                    line.iteration, iteration));
  }
  if (receipt_link(before, line.iteration, line.observations, line.loss, line.digest) !=
      line.chain) {
    throw DataError(iteration == 1
                        ? "it does not match the chain of this run: it was changed, or the receipt "
                          "belongs to another run"
                        : "it does not match its chain: it was changed");
  }
  const int64_t epoch = (iteration - 1) / expected.iterations_per_epoch + 1;
  if (line.epoch != epoch) {
    throw DataError(fmt::format("it has epoch {}, but iteration {} is in epoch {}", line.epoch,
                                iteration, epoch));
  }
  return line;
}

}  // namespace

std::string receipt_text(const ReceiptLine& line) {
  return fmt::format(
      R"({{"iteration":{},"epoch":{},"observations":"{}","loss":{},"digest":"{}","chain":"{}"}})",
      line.iteration, line.epoch, line.observations.to_string(), json(line.loss).dump(),
      line.digest.to_string(), line.chain.to_string());
}

ReceiptLine parse_receipt_line(std::string_view text) {
  const json object = parse_json_or_discard<json>(text);
  if (object.is_discarded() || !object.is_object()) throw DataError("it is not a JSON object");
  const ReceiptLine line{.iteration = whole(object, "iteration"),
                         .epoch = whole(object, "epoch"),
                         .loss = number(object, "loss"),
                         .observations = digest(object, "observations"),
                         .digest = digest(object, "digest"),
                         .chain = digest(object, "chain")};
  if (receipt_text(line) != text) {
    throw DataError("it does not have the form of a receipt line: it was changed");
  }
  return line;
}

std::string population_text(const PopulationLine& line) {
  return fmt::format(
      R"({{"phase":"population statistics","iteration":{},"observations":"{}","digest":"{}","chain":"{}"}})",
      line.iteration, line.observations.to_string(), line.digest.to_string(),
      line.chain.to_string());
}

PopulationLine parse_population_line(std::string_view text, const std::vector<ReceiptLine>& lines) {
  const json object = parse_json_or_discard<json>(text);
  if (!object.is_object()) throw DataError("it is not a JSON object");
  const PopulationLine line{whole(object, "iteration"), digest(object, "observations"),
                            digest(object, "digest"), digest(object, "chain")};
  if (population_text(line) != text) {
    throw DataError("it does not have the form of a receipt line: it was changed");
  }
  PopulationRecord record;
  record.iteration = line.iteration;
  record.observations = line.observations;
  record.digest = line.digest;
  if (!lines.empty() && receipt_link(lines.back().chain, record) != line.chain) {
    throw DataError("it does not match its chain: it, or the line before it, was changed");
  }
  return line;
}

ReceiptFinding check_receipt(std::string_view text, const ReceiptExpectation& expected) {
  ReceiptFinding found;
  Digest chain = expected.first;
  for (int64_t i = 1; i <= expected.iterations; ++i) {
    const auto problem = [&](const std::string& what) {
      found.problem = fmt::format("line {}: {}", i, what);
      return found;
    };
    const size_t end = text.find('\n', found.bytes);
    if (end == std::string_view::npos) {
      return problem(found.bytes < text.size() ? "the file ends in the middle of it"
                     : i == 1                  ? "the file has no lines"
                                               : "the file ends before it");
    }
    try {
      chain = next_line(text.substr(found.bytes, end - found.bytes), i, chain, expected).chain;
    } catch (const DataError& error) {
      return problem(error.what());
    }
    if (i == expected.iterations && chain != expected.last) {
      return problem("its chain differs from the checkpoint's");
    }
    found.sound = i;
    found.bytes = end + 1;
  }
  return found;
}

std::string sound_receipt(FileSystem& files, const std::string& path, const TrainingStart& start) {
  const int64_t last = start.first_iteration - 1;
  if (last == 0) return {};
  const bool there = files.exists(path);
  std::string text = there ? read_text(files, path) : std::string();
  const ReceiptFinding found =
      check_receipt(text, {start.first_chain, start.iterations_per_epoch, last, start.chain});
  if (!found.problem.empty()) {
    throw ReceiptDamage("[receipt] " + path + (there ? ", " + found.problem : " is missing") +
                            "; the checkpoint of iteration " + std::to_string(last) +
                            " needs all lines up to this iteration",
                        "restore the receipt, or compute the missing iterations again with "
                        "--rebuild-receipt",
                        {found.sound, last, start.chain});
  }
  text.resize(found.bytes);
  return text;
}

}  // namespace lockstep
