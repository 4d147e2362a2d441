#include "lockstep/cluster/clouds/aws_config.h"

#include <fmt/format.h>

#include "lockstep/base/error.h"
#include "lockstep/cluster/clouds/checked_words.h"

namespace lockstep {
namespace {

constexpr const char* kShared = "/shared";

struct Queue {
  std::string name, instance;
  int64_t nodes = 0;
  bool efa = false;
};

void check_aws(const AwsClusterOptions& o) {
  checked_word("the name", o.name, "-");
  checked_word("--region", o.region, "-");
  checked_word("--subnet", o.subnet, "-");
  checked_word("--ssh-key", o.ssh_key, "-_.@");
  checked_word("--os", o.os, "");
  checked_word("--head-instance", o.head_instance, ".-");
  if (!o.bucket.empty()) checked_word("--bucket", o.bucket, ".-");
  if (o.cpu_instance.empty() && o.gpu_instance.empty()) {
    throw InvalidArgument("[cluster] the cluster has no queue",
                          "give --cpu-instance or --gpu-instance");
  }
  if (!o.cpu_instance.empty()) checked_word("--cpu-instance", o.cpu_instance, ".-");
  if (!o.gpu_instance.empty()) checked_word("--gpu-instance", o.gpu_instance, ".-");
  for (const auto& [option, number] :
       {std::pair("--cpu-nodes", o.cpu_nodes), std::pair("--gpu-nodes", o.gpu_nodes),
        std::pair("--node-threads", o.cpu_threads), std::pair("--node-gpus", o.gpus)}) {
    if (number < 1 || number > 10000) {
      throw InvalidArgument(fmt::format("[cluster] {} must be from 1 to 10000", option));
    }
  }
  if (o.storage != "efs" && o.storage != "fsx") {
    throw InvalidArgument("[cluster] --storage cannot be \"" + o.storage + "\"", "efs or fsx");
  }
  if (o.efa && o.gpu_instance.empty()) {
    throw InvalidArgument("[cluster] --efa needs --gpu-instance",
                          "NCCL uses EFA between GPUs; workers on processors exchange over TCP");
  }
}

// Access to the bucket, for a node.
std::string access_to(const std::string& bucket, int indent) {
  if (bucket.empty()) return "";
  const std::string blanks(static_cast<size_t>(indent), ' ');
  return fmt::format(
      "{0}Iam:\n{0}  S3Access:\n{0}    - BucketName: \"{1}\"\n{0}      EnableWriteAccess: true\n",
      blanks, bucket);
}

// One instance type for a queue: other processors would change a training's bits.
std::string queue_text(const AwsClusterOptions& o, const Queue& q) {
  std::string text = fmt::format(
      "    - Name: {0}\n"
      "      CapacityType: {1}\n"
      "      ComputeResources:\n"
      "        - Name: {0}-nodes\n"
      "          InstanceType: {2}\n"
      "          MinCount: 0\n"
      "          MaxCount: {3}\n"
      "          DisableSimultaneousMultithreading: true\n",
      q.name, o.spot ? "SPOT" : "ONDEMAND", q.instance, q.nodes);
  if (q.efa) text += "          Efa:\n            Enabled: true\n";
  text += fmt::format(
      "      Networking:\n"
      "        SubnetIds:\n"
      "          - {}\n"
      "        PlacementGroup:\n"
      "          Enabled: true\n",
      o.subnet);
  return text + access_to(o.bucket, 6);
}

// The command that makes a queue's profile; `devices` are its options for the workers' devices.
std::string profile_command(const AwsClusterOptions& o, const Queue& q, int64_t workers,
                            int64_t threads, const std::string& devices) {
  return fmt::format(
      "#   lockstep cluster add {0}-{1} --scheduler slurm --partition {1} --nodes {2} --workers {3}"
      " --threads {4} {5} --folder {6}/lockstep\n",
      o.name, q.name, q.nodes, workers, threads, devices, kShared);
}

}  // namespace

std::string aws_cluster_config(const AwsClusterOptions& o) {
  check_aws(o);
  std::string commands, queues;
  if (!o.cpu_instance.empty()) {
    const Queue cpu{"cpu", o.cpu_instance, o.cpu_nodes, false};
    queues += queue_text(o, cpu);
    commands += profile_command(o, cpu, o.cpu_nodes, o.cpu_threads, "--device cpu");
  }
  if (!o.gpu_instance.empty()) {
    const Queue gpu{"gpu", o.gpu_instance, o.gpu_nodes, o.efa};
    queues += queue_text(o, gpu);
    commands += profile_command(o, gpu, o.gpu_nodes * o.gpus, 1,
                                fmt::format("--device cuda --option=--gpus-per-node={}", o.gpus));
  }
  const std::string storage =
      o.storage == "efs" ? "    StorageType: Efs\n"
                           "    EfsSettings:\n      Encrypted: true\n      DeletionPolicy: Retain\n"
                         : "    StorageType: FsxLustre\n"
                           "    FsxLustreSettings:\n      DeploymentType: SCRATCH_2\n"
                           "      StorageCapacity: 1200\n      DeletionPolicy: Retain\n";
  return fmt::format(
             "# AWS ParallelCluster 3. Create the cluster: pcluster create-cluster --cluster-name "
             "{0} --cluster-configuration FILE\n"
             "# Then, on its head node, with lockstep in {1}/bin:\n{2}"
             "Region: {3}\n"
             "Image:\n"
             "  Os: {4}\n"
             "HeadNode:\n"
             "  InstanceType: {5}\n"
             "  Networking:\n"
             "    SubnetId: {6}\n"
             "  Ssh:\n"
             "    KeyName: \"{7}\"\n",
             o.name, kShared, commands, o.region, o.os, o.head_instance, o.subnet, o.ssh_key) +
         access_to(o.bucket, 2) +
         "Scheduling:\n"
         "  Scheduler: slurm\n"
         "  SlurmSettings:\n"
         "    ScaledownIdletime: 10\n"
         "  SlurmQueues:\n" +
         queues +
         fmt::format(
             "SharedStorage:\n"
             "  - MountDir: {}\n"
             "    Name: shared\n",
             kShared) +
         storage;
}

}  // namespace lockstep
