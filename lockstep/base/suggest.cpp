#include "lockstep/base/suggest.h"

#include <algorithm>
#include <utility>

#include "lockstep/base/text.h"

namespace lockstep {
namespace {

// Drops the differences that do not make another name: case, '-' and '_'.
std::string plain(std::string_view name) {
  std::string result;
  for (char c : name) {
    if (c == '-' || c == '_') continue;
    result += c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c;
  }
  return result;
}

// Counts the insertions, deletions, replacements and swaps of neighbors that turn `a` into `b`
// (optimal string alignment).
size_t edit_distance(const std::string& a, const std::string& b) {
  std::vector<size_t> before(b.size() + 1), last(b.size() + 1), row(b.size() + 1);
  for (size_t j = 0; j <= b.size(); ++j) last[j] = j;
  for (size_t i = 1; i <= a.size(); ++i) {
    row[0] = i;
    for (size_t j = 1; j <= b.size(); ++j) {
      const size_t replaced = last[j - 1] + (a[i - 1] == b[j - 1] ? 0 : 1);
      row[j] = std::min({last[j] + 1, row[j - 1] + 1, replaced});
      if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1]) {
        row[j] = std::min(row[j], before[j - 2] + 1);
      }
    }
    std::swap(before, last);
    std::swap(last, row);
  }
  return last[b.size()];
}

// Words of PyTorch, Keras, scikit-learn and MATLAB, and those of job files, both plain().
constexpr std::pair<std::string_view, std::string_view> other_words[] = {
    {"lr", "initiallearningrate"},
    {"learningrate", "initiallearningrate"},
    {"epochs", "maxepochs"},
    {"numepochs", "maxepochs"},
    {"iterations", "maxiterations"},
    {"maxsteps", "maxiterations"},
    {"batchsize", "minibatchsize"},
    {"optimizer", "solver"},
    {"weightdecay", "l2"},
    {"l2regularization", "l2"},
    {"beta1", "gradientdecay"},
    {"beta2", "squaredgradientdecay"},
    {"scheduler", "learningrateschedule"},
    {"patience", "validationpatience"},
    {"clipnorm", "gradientthreshold"},
    {"maxnorm", "gradientthreshold"},
    {"numworkers", "loaderthreads"},
    {"val", "validation"},
    {"validationsplit", "validationfraction"},
    {"dense", "fullyconnected"},
    {"linear", "fullyconnected"},
    {"conv1d", "convolution1d"},
    {"conv2d", "convolution2d"},
    {"conv3d", "convolution3d"},
    {"convtranspose2d", "transposedconvolution2d"},
    {"conv2dtranspose", "transposedconvolution2d"},
    {"batchnorm", "batchnormalization"},
    {"batchnorm1d", "batchnormalization"},
    {"batchnorm2d", "batchnormalization"},
    {"batchnorm3d", "batchnormalization"},
    {"layernorm", "layernormalization"},
    {"groupnorm", "groupnormalization"},
    {"instancenorm2d", "instancenormalization"},
    {"rmsnorm", "rmsnormalization"},
    {"localresponsenorm", "channelnormalization"},
    {"maxpool1d", "maxpooling1d"},
    {"maxpool2d", "maxpooling2d"},
    {"maxpool3d", "maxpooling3d"},
    {"avgpool1d", "averagepooling1d"},
    {"avgpool2d", "averagepooling2d"},
    {"avgpool3d", "averagepooling3d"},
    {"adaptiveavgpool2d", "adaptiveaveragepooling2d"},
    {"add", "addition"},
    {"multiply", "multiplication"},
    {"concat", "concatenation"},
    {"silu", "swish"},
    {"upsample", "upsampling2d"},
    {"multiheadattention", "selfattention"},
    {"transformerencoderlayer", "transformerblock"},
    {"size", "features"},
    {"infeatures", "features"},
    {"outfeatures", "units"},
    {"hiddensize", "units"},
    {"outchannels", "filters"},
    {"kernelsize", "kernel"},
    {"filtersize", "kernel"},
    {"poolsize", "pool"},
    {"numheads", "heads"},
    {"numembeddings", "vocabulary"},
    {"negativeslope", "scale"},
    {"p", "probability"},
    {"rate", "probability"},
    {"mse", "meansquarederror"},
    {"mseloss", "meansquarederror"},
    {"categoricalcrossentropy", "crossentropy"},
    {"crossentropyloss", "crossentropy"},
    {"dice", "diceloss"},
    {"jaccard", "iou"},
    {"auroc", "auc"},
};

bool are_one_word(const std::string& a, const std::string& b) {
  return std::ranges::any_of(other_words, [&](const auto& pair) {
    return (pair.first == a && pair.second == b) || (pair.first == b && pair.second == a);
  });
}

// Names that contain the one that was given, and those that are at least half of it.
std::vector<std::string> related_names(std::string_view name,
                                       const std::vector<std::string>& candidates) {
  constexpr size_t shortest = 4;  // letters
  const std::string wanted = plain(name);
  std::vector<std::string> related;
  for (const std::string& candidate : candidates) {
    const std::string known = plain(candidate);
    if (std::min(wanted.size(), known.size()) < shortest) continue;
    const bool is_half = 2 * known.size() >= wanted.size();
    if (known.find(wanted) != known.npos || (is_half && wanted.find(known) != wanted.npos)) {
      related.push_back(candidate);
    }
  }
  return related;
}

}  // namespace

std::string nearest_name(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string wanted = plain(name);
  std::string best;
  size_t best_distance = 0;
  for (const std::string& candidate : candidates) {
    const std::string known = plain(candidate);
    const size_t longer = std::max(wanted.size(), known.size());
    const size_t shorter = std::min(wanted.size(), known.size());
    if ((longer - shorter) * 3 > longer) continue;  // cheap test first
    const size_t distance = edit_distance(wanted, known);
    if (distance * 3 > longer) continue;
    if (best.empty() || distance < best_distance) {
      best = candidate;
      best_distance = distance;
    }
  }
  if (!best.empty() && best_distance <= 1) return best;
  const auto same = std::ranges::find_if(candidates, [&](const std::string& candidate) {
    return are_one_word(wanted, plain(candidate));
  });
  return same != candidates.end() ? *same : best;
}

std::string suggest(std::string_view name, const std::vector<std::string>& candidates) {
  const std::string nearest = nearest_name(name, candidates);
  if (!nearest.empty()) return "did you mean `" + nearest + "`?";
  constexpr size_t most_related = 5;
  if (const auto related = related_names(name, candidates);
      !related.empty() && related.size() <= most_related) {
    std::string text = "did you mean `" + related[0] + "`";
    for (size_t i = 1; i < related.size(); ++i) {
      text += (i + 1 < related.size() ? ", `" : " or `") + related[i] + "`";
    }
    return text + "?";
  }
  constexpr size_t most = 20;
  if (candidates.empty()) return "";
  return "known names: " +
         list_of_some(candidates, candidates.size() > most + 1 ? most : candidates.size());
}

}  // namespace lockstep
