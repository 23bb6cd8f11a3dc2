//! The cluster's own network, provided by agents: several machines on one wire or behind a router, an agent on each, Nodes in the API,
//! and pods whose packets are followed.

mod addresses;
mod attacks;
mod bridge;
mod by_hand;
mod history;
mod kept;
mod moves;
mod obstacles;
mod oracle;
mod paths;
mod pool_history;
mod pools;
mod scene;
