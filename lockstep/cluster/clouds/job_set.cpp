#include "lockstep/cluster/clouds/job_set.h"

#include <fmt/format.h>

#include <utility>

#include "lockstep/base/error.h"
#include "lockstep/cluster/clouds/checked_words.h"

namespace lockstep {
namespace {

constexpr int64_t kPorts = 100;

void check_job_set(const JobSetOptions& o) {
  checked_word("the name", o.name, "-");
  for (const char c : o.name) {
    if (c >= 'A' && c <= 'Z') {
      throw InvalidArgument("[cluster] Kubernetes takes names of lower-case letters: " + o.name);
    }
  }
  // The pods' names, which are host names, add "-workers-0-" and the index.
  if (o.name.size() > 40 || o.name.front() == '-' || o.name.back() == '-') {
    throw InvalidArgument("[cluster] the name " + o.name + " cannot begin the names of pods",
                          "up to 40 letters, digits and -, not at its ends");
  }
  checked_word("--image", o.image, "./:@_-");
  checked_word("--job", o.job, "./_-");
  checked_word("--claim", o.claim, ".-");
  if (!o.node_type.empty()) checked_word("--node-type", o.node_type, "._-");
  const auto in_range = [](const char* option, int64_t number, int64_t least, int64_t most) {
    if (number >= least && number <= most) return;
    throw InvalidArgument(fmt::format("[cluster] {} must be from {} to {}", option, least, most));
  };
  in_range("--pods", o.hosts, 1, 100000);
  in_range("--pod-workers", o.workers, 1, 1000);
  in_range("--pod-threads", o.threads, 1, 1000);
  in_range("--pod-gpus", o.gpus, 0, 64);
  in_range("--user", o.user, 1, 2147483647);
  in_range("--port", o.port, 1024, 65535 - kPorts);
}

// `item`: the file of the Secret. A volume of a Secret belongs to root, and with fsGroup its files
// can be read by the group. Lockstep takes a key that its user alone can read: a first container of
// the same user copies it to memory.
std::string pod_text(const JobSetOptions& o, const std::string& item,
                     const std::string& container) {
  std::string text = fmt::format(
      "            spec:\n"
      "              restartPolicy: Never\n");
  if (!o.node_type.empty()) {
    text += fmt::format(
        "              nodeSelector:\n"
        "                node.kubernetes.io/instance-type: \"{}\"\n",
        o.node_type);
  }
  text += fmt::format(
      "              securityContext:\n"
      "                runAsNonRoot: true\n"
      "                runAsUser: {0}\n"
      "                runAsGroup: {0}\n"
      "                fsGroup: {0}\n"
      "              volumes:\n"
      "                - name: secret\n"
      "                  secret:\n"
      "                    secretName: {1}-key\n"
      "                    defaultMode: 0400\n"
      "                    items:\n"
      "                      - key: {2}\n"
      "                        path: key\n"
      "                - name: key\n"
      "                  emptyDir:\n"
      "                    medium: Memory\n"
      "                - name: shared\n"
      "                  persistentVolumeClaim:\n"
      "                    claimName: {3}\n"
      "              initContainers:\n"
      "                - name: key\n"
      "                  image: \"{4}\"\n"
      "                  command: [\"install\", \"-m\", \"0400\", \"/secret/key\", \"/key/key\"]\n"
      "                  volumeMounts:\n"
      "                    - {{name: secret, mountPath: /secret, readOnly: true}}\n"
      "                    - {{name: key, mountPath: /key}}\n"
      "              containers:\n",
      o.user, o.name, item, o.claim, o.image);
  return text + container;
}

std::string container_text(const JobSetOptions& o, const char* name, const std::string& command,
                           int64_t processors, int64_t gpus) {
  std::string text = fmt::format(
      "                - name: {0}\n"
      "                  image: \"{1}\"\n"
      "                  workingDir: /shared\n"
      "                  command: [{2}]\n"
      "                  env:\n"
      "                    - {{name: LOCKSTEP_INTERFACE, value: eth0}}\n"
      "                    - {{name: LOCKSTEP_PORTS, value: \"{3}-{4}\"}}\n"
      "                    - {{name: HOME, value: /shared}}\n"
      "                  volumeMounts:\n"
      "                    - {{name: key, mountPath: /key, readOnly: true}}\n"
      "                    - {{name: shared, mountPath: /shared}}\n"
      "                  resources:\n"
      "                    requests: {{cpu: \"{5}\"}}\n",
      name, o.image, command, o.port, o.port + kPorts - 1, processors);
  if (gpus > 0) text += fmt::format("                    limits: {{nvidia.com/gpu: {}}}\n", gpus);
  return text;
}

std::string words(std::initializer_list<std::string> all) {
  std::string text;
  for (const std::string& word : all) text += (text.empty() ? "\"" : ", \"") + word + "\"";
  return text;
}

// `again`: how many pods of the job may fail before the job fails.
std::string job_text(const char* name, int64_t pods, int64_t again, const std::string& pod) {
  return fmt::format(
             "    - name: {}\n"
             "      replicas: 1\n"
             "      template:\n"
             "        spec:\n"
             "          completionMode: Indexed\n"
             "          parallelism: {}\n"
             "          completions: {}\n"
             "          backoffLimit: {}\n"
             "          template:\n",
             name, pods, pods, again) +
         pod;
}

}  // namespace

std::string job_set_manifest(const JobSetOptions& o) {
  check_job_set(o);
  std::string hosts;
  for (int64_t i = 0; i < o.hosts; ++i) {
    hosts += fmt::format("{}pod{}:{}", i == 0 ? "" : ",", i, o.workers);
  }
  const std::string train =
      words({"lockstep", "train", o.job, "--out", "out-" + o.name, "--hosts", hosts,
             "--host-launch", "join /key/key", "--threads", std::to_string(o.threads), "--device",
             o.gpus > 0 ? "cuda" : "cpu"});
  const std::string join =
      words({"lockstep", "worker", "--join", fmt::format("{0}-client-0-0.{0}:{1}", o.name, o.port),
             "--key-file", "/key/key", "--patience", "600"});
  return fmt::format(
             "# A training as a JobSet. First, the job's key:\n"
             "#   lockstep worker --new-key job.key\n"
             "#   grep -v server-secret job.key > member.key\n"
             "#   kubectl create secret generic {0}-key --from-file=client=job.key "
             "--from-file=member=member.key\n"
             "apiVersion: jobset.x-k8s.io/v1alpha2\n"
             "kind: JobSet\n"
             "metadata:\n"
             "  name: {0}\n"
             "spec:\n"
             "  network:\n"
             "    enableDNSHostnames: true\n"
             "  successPolicy:\n"
             "    operator: All\n"
             "    targetReplicatedJobs: [client]\n"
             "  failurePolicy:\n"
             "    maxRestarts: 0\n"
             "  replicatedJobs:\n",
             o.name) +
         job_text("client", 1, 0, pod_text(o, "client", container_text(o, "client", train, 1, 0))) +
         job_text("workers", o.hosts, 100 * o.hosts,
                  pod_text(o, "member",
                           container_text(o, "worker", join, o.workers * o.threads, o.gpus)));
}

}  // namespace lockstep
