//! Messages between `netloom-cni`, which a runtime executes, and the agent.
