// The configuration of a Slurm cluster in AWS, for AWS ParallelCluster 3. Nothing is created: the
// text is for its command, `pcluster create-cluster`. Functions are thread-safe.
#pragma once

#include <cstdint>
#include <string>

namespace lockstep {

struct AwsClusterOptions {
  std::string name = "aws";             // of the cluster; profiles are NAME-cpu and NAME-gpu
  std::string region, subnet, ssh_key;  // required
  std::string os = "ubuntu2404";        // operating system of all nodes
  std::string head_instance = "c7i.xlarge";
  std::string cpu_instance = "c7i.8xlarge", gpu_instance;  // "": no such queue
  int64_t cpu_nodes = 16, gpu_nodes = 4;                   // at most
  int64_t cpu_threads = 16, gpus = 8;                      // cores and GPUs of a node
  bool spot = false;                                       // cheaper nodes that AWS may take back
  bool efa = false;             // Elastic Fabric Adapter, for the GPU queue
  std::string bucket;           // that all nodes may read and write; "": none
  std::string storage = "efs";  // of the shared folder: "efs" or "fsx"
};

// The configuration as YAML. Its first lines are comments: the commands that make the matching
// profiles. Throws InvalidArgument for a missing or wrong field, which the message names.
std::string aws_cluster_config(const AwsClusterOptions& options);

}  // namespace lockstep
