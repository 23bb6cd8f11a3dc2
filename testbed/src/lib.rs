//! A real Kubernetes on one machine: control plane, nodes in network namespaces, pods.
