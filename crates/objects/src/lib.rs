//! An object store that answers a `kube::Client` as the Kubernetes API server does.
