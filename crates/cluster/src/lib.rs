//! Everything asked of the Kubernetes API and of the kubelet.
