//! A real Kubernetes: the path of a pod, addresses of a cluster, the manifests, the operator, ports of a real Neutron.

#![allow(clippy::unwrap_used, clippy::expect_used, clippy::panic, clippy::indexing_slicing, reason = "a test fails by panicking")]

mod deploy;
mod granted;
mod openstack;
mod operator;
mod own_node;
mod path;
mod testbed;
mod verify;
