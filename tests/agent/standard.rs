//! The multi-network standard, and what Multus's users rely on, shown from outside: the agent of a node and `netloom-cni`
//! as its runtime calls it, against a real API server. A test whose name begins with a clause's number shows that clause.

mod clauses;
mod devices;
mod events;
mod failures;
mod install;
mod kubelet;
mod multus;
mod pods;
mod scene;
mod selections;
mod verbs;
